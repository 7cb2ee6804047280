import dreamstream.Engine;
import dreamstream.Model;
import dreamstream.Port;
import dreamstream.Stream;
import dreamstream.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/** Prints where somebody speaks: java -cp dreamstream.jar Speech.java silero.dsm samples.f32 */
public final class Speech {
    public static void main(String[] arguments) throws Exception {
        byte[] file = Files.readAllBytes(Path.of(arguments[1])); // float32 samples
        ByteBuffer samples = ByteBuffer.allocateDirect(file.length).order(ByteOrder.nativeOrder()).put(file).flip();
        try (Engine engine = new Engine();
                Model model = engine.load(Path.of(arguments[0]));
                Stream stream = model.open()) {
            Port port = model.inputs().get(0);
            Tensor all = Tensor.of(samples, port.dtype()); // where the samples lie: no copy
            Tensor out = model.outputs().get(0).tensor(8);
            for (int at = 0; !stream.ended(); ) {
                int n = Math.min(1600, all.frames() - at); // as they would come, 100 ms at a time
                stream.step(all.slice(at, n), out, at + n == all.frames() ? Stream.END : 0);
                at += n;
                for (float probability : out.toFloats()) {
                    System.out.println(Float.floatToIntBits(probability) + " " + probability);
                }
            }
        }
    }
}
