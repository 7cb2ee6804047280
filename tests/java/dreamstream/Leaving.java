package dreamstream;

import java.nio.file.Path;

/** Leaves while six threads step: java Leaving MODEL prints the library's version. */
final class Leaving {
    private Leaving() {}

    public static void main(String[] arguments) throws Exception {
        Model model = new Engine().load(Path.of(arguments[0]));
        for (int i = 0; i < 6; i++) {
            Stream stream = model.open();
            new Thread(() -> {
                try {
                    for (;;) {
                        stream.step(new float[20000], Stream.START | Stream.END);
                    }
                } catch (DreamStreamException error) {
                    Runtime.getRuntime().halt(3);
                }
            }).start();
        }
        Thread.sleep(100);
        System.out.println(Engine.version());
        System.exit(0);
    }
}
