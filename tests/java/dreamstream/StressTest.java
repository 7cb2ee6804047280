package dreamstream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.junit.jupiter.api.Test;

/** Many threads that share, close, replace and forget the same objects: calls succeed, or throw what they may. */
class StressTest {
    private static final int THREADS = 12;
    private static final int SHARED = 6;

    /** What a program may hand over by mistake: null, nothing, too much, or bytes of something else. */
    private static byte[] damaged(Random random, byte[] bytes) {
        switch (random.nextInt(4)) {
            case 0 -> bytes = null;
            case 1 -> bytes = new byte[random.nextInt(2) * 1_000_000];
            case 2 -> bytes = Arrays.copyOf(bytes, random.nextInt(2 * bytes.length + 1));
            default -> bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
        }
        return bytes;
    }

    private static Tensor unfit(Random random) {
        ByteBuffer buffer = ByteBuffer.allocateDirect(8 * random.nextInt(40));
        return switch (random.nextInt(5)) {
            case 0 -> null;
            case 1 -> Tensor.allocate(DType.F64, Integer.MAX_VALUE, random.nextInt(3) * (1L << 40));
            case 2 -> Tensor.of(buffer.asReadOnlyBuffer().order(ByteOrder.nativeOrder()), DType.F32);
            case 3 -> Tensor.of(buffer.order(ByteOrder.nativeOrder()), DType.F32, random.nextInt(3), 4);
            default -> Tensor.allocate(DType.values()[random.nextInt(DType.values().length)], random.nextInt(50));
        };
    }

    private static void together(Callable<Void> work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            all.add(pool.submit(work));
        }
        for (Future<Void> one : all) {
            one.get();
        }
        pool.shutdown();
    }

    @Test
    void streamsOfOneModelInTheirThreads() throws Exception {
        float[] values = Files.floats("samples.in");
        float[] expected = Files.floats("samples.out");
        try (Engine engine = new Engine(); Model model = engine.load(Files.path("samples.dsm"))) {
            together(() -> {
                try (Stream stream = model.open()) {
                    for (int turn = 0; turn < 5; turn++) {
                        assertArrayEquals(expected, stream.step(values, Stream.START | Stream.END));
                    }
                }
                return null;
            });
            assertEquals(0, model.info().openStreams());
        }
    }

    @Test
    void misuseInAnyOrder() throws Exception {
        AtomicReferenceArray<Model> models = new AtomicReferenceArray<>(SHARED);
        AtomicReferenceArray<Stream> streams = new AtomicReferenceArray<>(SHARED);
        AtomicReferenceArray<Tensor> tensors = new AtomicReferenceArray<>(SHARED);
        AtomicLong seed = new AtomicLong();
        AtomicLong done = new AtomicLong();
        AtomicLong refused = new AtomicLong();
        AtomicReferenceArray<Engine> engines = new AtomicReferenceArray<>(2);
        for (int i = 0; i < 2; i++) {
            engines.set(i, new Engine());
        }
        for (int i = 0; i < SHARED; i++) {
            models.set(i, engines.get(i % 2).load(Files.path(i < 2 ? "rates.dsm" : "samples.dsm")));
            streams.set(i, models.get(i).open());
            tensors.set(i, Tensor.allocate(DType.F32, 100 * i));
        }
        long until = System.nanoTime() + 1_000_000L * Long.getLong("dreamstream.test.stress", 2000);
        together(() -> {
            Random random = new Random(seed.incrementAndGet());
            while (System.nanoTime() < until) {
                int i = random.nextInt(SHARED);
                Model model = models.get(i);
                Stream stream = streams.get(random.nextInt(SHARED));
                Tensor tensor = tensors.get(random.nextInt(SHARED));
                try {
                    switch (random.nextInt(48)) {
                        case 0 -> model.close();
                        case 1, 2, 3 -> stream.close();
                        case 4, 5 -> models.set(i, engines.get(i % 2).load(Files.path("samples.dsm")));
                        case 6, 7, 8, 9, 10 -> streams.set(i, model.open());
                        case 11 -> streams.set(i, stream.fork());
                        case 12 -> stream.restore(streams.get(i).snapshot());
                        case 13 -> stream.reset();
                        case 14 -> tensors.set(i, Tensor.allocate(DType.F32, random.nextInt(3000)));
                        case 15 -> tensors.set(i, tensor.slice(0, tensor.frames() / 2));
                        case 16 -> tensor.frames(random.nextInt(1 + tensor.room()));
                        case 17 -> tensor.floats().put(new float[tensor.frames()]);
                        case 18 -> {
                            engines.get(i % 2).close();
                            engines.set(i % 2, new Engine());
                        }
                        case 19 -> System.gc(); // objects that nobody has any more are closed by the cleaner
                        case 20 -> stream.finish();
                        case 21 -> model.info();
                        case 22, 23, 24 -> {
                            Stream[] batch = new Stream[3];
                            Tensor[][] in = new Tensor[3][];
                            Tensor[][] out = new Tensor[3][];
                            for (int j = 0; j < 3; j++) {
                                batch[j] = random.nextBoolean() ? model.open() : streams.get(random.nextInt(SHARED));
                                in[j] = new Tensor[] {tensors.get(random.nextInt(SHARED))};
                                out[j] = model.newOutputs();
                            }
                            model.step(batch, in, out, null);
                        }
                        case 25, 26 -> model.open().step(0, tensor); // forgotten at once
                        case 27, 28 -> stream.restore(damaged(random, streams.get(i).snapshot()));
                        case 29 -> stream.step(tensor, tensor, 0); // an output on its own input
                        case 30 -> stream.step(unfit(random), unfit(random), random.nextInt(5));
                        case 31 -> stream.step(Arrays.asList(tensor, unfit(random)).toArray(new Tensor[2]), new Tensor[] {tensor}, 0);
                        case 32 -> stream.step(new float[random.nextInt(3) * 100_000], random.nextInt(4));
                        case 33 -> stream.step(random.nextBoolean() ? null : new short[random.nextInt(99)], 0);
                        case 34 -> {
                            byte[] file = damaged(random, java.nio.file.Files.readAllBytes(Files.path("rates.dsm")));
                            ByteBuffer bytes = ByteBuffer.allocateDirect(file.length).put(file).flip();
                            models.set(i, engines.get(i % 2).load(bytes, new Options().copy(random.nextBoolean())));
                        }
                        case 36, 37, 38 -> { // the same batch again, whose tensors others change and whose streams they close
                            Stream[] batch = {model.open(), streams.get(i), model.open()};
                            Tensor[][] in = {{tensor}, {tensors.get(i)}, {tensor.slice(0, tensor.frames() / 3)}};
                            Tensor[][] out = {model.newOutputs(), model.newOutputs(), {tensors.get(random.nextInt(SHARED))}};
                            for (int turn = 0; turn < 9; turn++) {
                                model.step(batch, in, out, null);
                                in[turn % 3] = random.nextBoolean() ? in[turn % 3] : in[random.nextInt(3)].clone();
                            }
                        }
                        case 35 -> model.step(new Stream[] {stream, null, stream}, null, new Tensor[3][], new int[random.nextInt(4)]);
                        default -> stream.step(random.nextInt(8) == 0 ? Stream.START : 0, tensor);
                    }
                    done.incrementAndGet();
                } catch (IllegalStateException | IllegalArgumentException | DreamStreamException
                        | NullPointerException | java.nio.BufferOverflowException expected) {
                    refused.incrementAndGet();
                }
            }
            return null;
        });
        assertTrue(done.get() > 100 && refused.get() > 10, done + " done, " + refused + " refused");
        System.out.println(done + " calls done, " + refused + " refused");
        for (int i = 0; i < 2; i++) {
            engines.get(i).close();
        }
    }

    @Test
    void forgottenStreamsAreClosed() throws Exception {
        try (Engine engine = new Engine(); Model model = engine.load(Files.path("samples.dsm"))) {
            float[] values = new float[500];
            for (int i = 0; i < 300; i++) {
                Arrays.fill(values, i);
                model.open().step(values, 0);
            }
            for (int i = 0; i < 200 && model.info().openStreams() > 0; i++) {
                System.gc();
                Thread.sleep(10);
            }
            assertEquals(0, model.info().openStreams());
        }
    }
}
