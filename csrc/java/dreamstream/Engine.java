package dreamstream;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;

/**
 * Where models come from. It loads the native library, and closes with it the models that are still open.
 *
 * <p>What a program does wrong with objects (one that was closed, one that another thread uses) is an
 * IllegalStateException, a wrong argument an IllegalArgumentException; what the engine itself refuses is a
 * {@link DreamStreamException}.
 */
public final class Engine implements AutoCloseable {
    private final Set<Handle> models = Collections.newSetFromMap(new WeakHashMap<>());
    private boolean closed;

    /**
     * Makes an engine. Throws UnsatisfiedLinkError if the native library isn't found, or its binary interface is not
     * the one that the classes were made for.
     */
    public Engine() {
        Loader.load();
    }

    /** Returns the version of the native library. */
    public static String version() {
        Loader.load();
        return Model.text(Native.version());
    }

    /** Returns the names of the sets of kernels that this machine can run, the plainest first. */
    public static List<String> backends() {
        Loader.load();
        List<String> names = new ArrayList<>();
        for (long i = 0; i < Native.backends(); i++) {
            byte[] name = Native.backend(i);
            if (name != null) {
                names.add(Model.text(name));
            }
        }
        return names;
    }

    /** Loads a model file. */
    public Model load(Path path) throws DreamStreamException {
        return load(path, new Options());
    }

    /** Loads a model file. */
    public Model load(Path path, Options options) throws DreamStreamException {
        return load(path.toString().getBytes(StandardCharsets.UTF_8), 0, 0, options);
    }

    /** Loads the model file that lies between position and limit of a direct buffer; it is copied. */
    public Model load(ByteBuffer bytes, Options options) throws DreamStreamException {
        if (!bytes.isDirect()) {
            throw new IllegalArgumentException("the buffer must be direct");
        }
        ByteBuffer part = bytes.slice();
        try {
            return load(null, Native.address(part), part.capacity(), options);
        } finally {
            java.lang.ref.Reference.reachabilityFence(part);
        }
    }

    private Model load(byte[] path, long address, long bytes, Options options) throws DreamStreamException {
        checkOpen();
        byte[] backend = options.backend == null ? null : options.backend.getBytes(StandardCharsets.UTF_8);
        long[] numbers = {options.threads, options.maxStreams, options.copy ? 1 : 0, options.maxBytes};
        Model model = new Model(Native.load(path, address, bytes, numbers, backend));
        synchronized (this) {
            if (!closed) {
                models.add(model.handle);
                return model;
            }
        }
        model.close(); // another thread has closed the engine meanwhile
        checkOpen();
        return model;
    }

    private synchronized void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the engine was closed");
        }
    }

    /**
     * Closes the models that are open; once closed, nothing. Throws IllegalStateException, and stays open, while
     * another thread is in a call with one of them.
     */
    @Override
    public synchronized void close() {
        for (Handle model : models) {
            model.close();
        }
        models.clear();
        closed = true;
    }
}
