import dreamstream.*;
import java.io.*;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/** What capi.c does, by the Java classes: java -cp dreamstream.jar Capi.java MODEL IN OUT STREAMS FRAMES WALL */
public final class Capi {
    public static void main(String[] arguments) throws Exception {
        int n = Integer.parseInt(arguments[3]);
        int frames = Integer.parseInt(arguments[4]);
        boolean wall = arguments[5].equals("1");
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        byte[] file = Files.readAllBytes(Path.of(arguments[1]));
        ByteBuffer data = ByteBuffer.allocateDirect(file.length).order(ByteOrder.nativeOrder()).put(file).flip();
        try (Engine engine = new Engine(); Model model = engine.load(Path.of(arguments[0]))) {
            Port port = model.inputs().get(0);
            Tensor all = Tensor.of(data, port.dtype(), port.shape().stream().mapToLong(Long::longValue).toArray());
            Stream[] streams = new Stream[n];
            Tensor[][] inputs = new Tensor[n][];
            Tensor[][] outputs = new Tensor[n][];
            for (int i = 0; i < n; i++) {
                streams[i] = model.open();
                inputs[i] = new Tensor[] {all.slice(i * frames, frames)};
                outputs[i] = model.newOutputs();
            }
            step(model, streams, inputs, outputs);
            try (OutputStream out = new FileOutputStream(arguments[2])) {
                for (Tensor[] made : outputs) {
                    for (Tensor one : made) {
                        byte[] copy = new byte[one.bytes().remaining()];
                        one.bytes().get(copy);
                        out.write(copy);
                    }
                }
            }
            BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
            for (String line = asked.readLine(); line != null; line = asked.readLine()) {
                StringBuilder times = new StringBuilder();
                for (long left = Long.parseLong(line); left > 0; left--) {
                    long begin = wall ? System.nanoTime() : threads.getCurrentThreadCpuTime();
                    step(model, streams, inputs, outputs);
                    times.append((wall ? System.nanoTime() : threads.getCurrentThreadCpuTime()) - begin).append(' ');
                }
                System.out.println(times);
            }
        }
    }

    private static void step(Model model, Stream[] streams, Tensor[][] inputs, Tensor[][] outputs) throws Exception {
        if (streams.length == 1) {
            streams[0].step(inputs[0], outputs[0], 0);
        } else {
            model.step(streams, inputs, outputs, null);
        }
    }
}
