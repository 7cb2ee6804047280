package dreamstream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;

/** What test_java.py has made: models, inputs and the outputs that Python gets. */
final class Files {
    static final Path FOLDER = Path.of(System.getProperty("dreamstream.test.folder"));

    private Files() {}

    static Path path(String name) {
        return FOLDER.resolve(name);
    }

    static ByteBuffer bytes(String name) throws IOException {
        byte[] read = java.nio.file.Files.readAllBytes(path(name));
        ByteBuffer direct = ByteBuffer.allocateDirect(read.length).order(ByteOrder.nativeOrder());
        return direct.put(read).flip();
    }

    /** The array of a file as a tensor of a port. */
    static Tensor tensor(String name, Port port) throws IOException {
        return Tensor.of(bytes(name), port.dtype(), port.shape().stream().mapToLong(Long::longValue).toArray());
    }

    static float[] floats(String name) throws IOException {
        return Tensor.of(bytes(name), DType.F32).toFloats();
    }
}
