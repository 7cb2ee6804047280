package dreamstream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Values: the same bits as Python's, however a stream is cut and whoever is in its batch. */
class StepTest {
    private Engine engine;
    private Model samples;
    private Model rates;

    @BeforeEach
    void load() throws Exception {
        engine = new Engine();
        samples = engine.load(Files.path("samples.dsm"));
        rates = engine.load(Files.path("rates.dsm"));
    }

    @AfterEach
    void close() {
        engine.close();
    }

    private static byte[] bytes(Tensor tensor) {
        byte[] copy = new byte[tensor.bytes().remaining()];
        tensor.bytes().get(copy);
        return copy;
    }

    @Test
    void signature() throws Exception {
        assertEquals(List.of("x", "y"), rates.inputs().stream().map(Port::name).toList());
        assertEquals(List.of("tags", "fine", "whole", "over"), rates.outputs().stream().map(Port::name).toList());
        assertEquals(List.of(5L), rates.input("x").shape());
        assertEquals(List.of(4L, 3L), rates.input("y").shape());
        assertEquals(DType.F32, rates.input("y").dtype());
        assertEquals(DType.BOOL, rates.output("over").dtype());
        assertEquals(100, rates.input("x").rateNum());
        assertEquals(0, rates.output("whole").rateNum());
        assertEquals(-1, rates.output("whole").delay());
        assertThrows(IllegalArgumentException.class, () -> rates.input("z"));
        ModelInfo info = samples.info();
        assertEquals("Samples", info.name());
        assertTrue(info.bitwise());
        assertTrue(info.stateSize() > 0);
        assertEquals(0, info.openStreams());
        assertTrue(Engine.backends().contains("ref"));
        assertTrue(Engine.version().matches("\\d+\\.\\d+\\.\\d+"));
    }

    @Test
    void anyChunks() throws Exception {
        Tensor all = Files.tensor("samples.in", samples.input("x"));
        byte[] expected = bytes(Files.tensor("samples.out", samples.outputs().get(0)));
        Random random = new Random(1);
        for (int turn = 0; turn < 20; turn++) {
            ByteArrayOutputStream got = new ByteArrayOutputStream();
            try (Stream stream = samples.open()) {
                Tensor out = samples.outputs().get(0).tensor(0);
                int at = 0;
                while (!stream.ended()) {
                    int n = Math.min(random.nextInt(2 + 200 * turn), all.frames() - at);
                    long before = got.size() / out.frameBytes;
                    stream.step(all.slice(at, n), out, at + n == all.frames() ? Stream.END : 0);
                    at += n;
                    got.write(bytes(out));
                    assertTrue(out.frames() == 0 || out.start() == before);
                }
            }
            assertArrayEquals(expected, got.toByteArray());
        }
    }

    @Test
    void arraysAndIntegers() throws Exception {
        float[] values = Files.floats("samples.in");
        float[] expected = Files.floats("samples.out");
        try (Stream stream = samples.open()) {
            assertArrayEquals(expected, stream.step(values, Stream.END));
            short[] whole = new short[values.length];
            float[] divided = new float[values.length];
            for (int i = 0; i < whole.length; i++) {
                whole[i] = (short) (values[i] * 3000);
                divided[i] = whole[i] / 32768f;
            }
            assertArrayEquals(stream.step(divided, Stream.START | Stream.END), stream.step(whole, Stream.START | Stream.END));
            assertEquals(0, stream.step(new float[0], Stream.START).length);
        }
    }

    @Test
    void severalInputsByName() throws Exception {
        Tensor x = Files.tensor("rates.x", rates.input("x"));
        Tensor y = Files.tensor("rates.y", rates.input("y"));
        try (Stream stream = rates.open()) {
            stream.step(Map.of("x", x.slice(0, 20), "y", y.slice(0, 10)), 0);
            assertEquals(20, stream.frames("x"));
            assertEquals(10, stream.frames("y"));
            stream.reset();
            Map<String, Tensor> out = stream.step(Map.of("x", x, "y", y), Stream.END);
            for (Port port : rates.outputs()) {
                Tensor expected = Files.tensor("rates." + port.name(), port);
                assertArrayEquals(bytes(expected), bytes(out.get(port.name())), port.name());
            }
            assertThrows(IllegalArgumentException.class, () -> stream.step(Map.of("z", x), Stream.START));
        }
    }

    @Test
    void raggedBatch() throws Exception {
        Tensor all = Files.tensor("samples.in", samples.input("x"));
        byte[] expected = bytes(Files.tensor("samples.out", samples.outputs().get(0)));
        int n = 30;
        Random random = new Random(2);
        Stream[] streams = new Stream[n];
        int[] at = new int[n];
        List<ByteArrayOutputStream> got = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            streams[i] = samples.open();
            got.add(new ByteArrayOutputStream());
        }
        for (;;) {
            List<Integer> chosen = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                if (!streams[i].ended() && random.nextBoolean()) {
                    chosen.add(i);
                }
            }
            if (Arrays.stream(at).allMatch(t -> t == all.frames()) && chosen.isEmpty()) {
                break;
            }
            int size = chosen.size();
            Stream[] batch = new Stream[size];
            Tensor[][] in = new Tensor[size][];
            Tensor[][] out = new Tensor[size][];
            int[] flags = new int[size];
            for (int j = 0; j < size; j++) {
                int i = chosen.get(j);
                int count = Math.min(random.nextInt(1500), all.frames() - at[i]);
                batch[j] = streams[i];
                in[j] = new Tensor[] {all.slice(at[i], count)};
                out[j] = samples.newOutputs();
                at[i] += count;
                flags[j] = at[i] == all.frames() ? Stream.END : 0;
            }
            samples.step(batch, in, out, flags);
            for (int j = 0; j < size; j++) {
                got.get(chosen.get(j)).write(bytes(out[j][0]));
            }
        }
        for (ByteArrayOutputStream one : got) {
            assertArrayEquals(expected, one.toByteArray());
        }
        assertEquals(n, samples.info().openStreams());
    }

    /** What a batch has laid out serves the next one only where it is still so. */
    @Test
    void batchesOneAfterTheOther() throws Exception {
        Tensor all = Files.tensor("samples.in", samples.input("x"));
        byte[] expected = bytes(Files.tensor("samples.out", samples.outputs().get(0)));
        int n = 6;
        Random random = new Random(3);
        Stream[] streams = new Stream[n];
        Tensor[][] in = new Tensor[n][1];
        Tensor[][] out = new Tensor[n][];
        int[] at = new int[n];
        List<ByteArrayOutputStream> got = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            streams[i] = samples.open();
            in[i][0] = samples.input("x").tensor(3000);
            out[i] = samples.newOutputs();
            got.add(new ByteArrayOutputStream());
        }
        for (int turn = 0; turn < 100; turn++) {
            int a = random.nextInt(n);
            int b = random.nextInt(n);
            switch (random.nextInt(6)) {
                case 0 -> in[a][0] = samples.input("x").tensor(random.nextInt(3000));
                case 1 -> out[a] = samples.newOutputs();
                case 2 -> { // tensors change places, streams don't
                    Tensor[] other = in[a];
                    in[a] = in[b];
                    in[b] = other;
                    other = out[a];
                    out[a] = out[b];
                    out[b] = other;
                }
                case 3 -> assertThrows(IllegalArgumentException.class, () -> samples.step(
                        streams, new Tensor[][] {in[0], in[1], {all, all}, in[3], in[4], in[5]}, out, null));
                case 4 -> {
                    ByteBuffer small = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder());
                    out[a][0] = Tensor.of(small, DType.F32, 4);
                }
                default -> {} // all as it was
            }
            Tensor[][] given = in.clone();
            int[] flags = new int[n];
            for (int i = 0; i < n; i++) {
                int count = Math.min(random.nextInt(200), Math.min(in[i][0].room(), all.frames() - at[i]));
                if (turn == 99) {
                    in[i][0] = all.slice(at[i], all.frames() - at[i]);
                    flags[i] = Stream.END;
                } else if (random.nextInt(4) == 0) {
                    given[i] = null;
                } else {
                    in[i][0].frames(count).floats().put(all.slice(at[i], count).floats());
                    at[i] += count;
                }
            }
            int size = turn == 99 ? n : 1 + random.nextInt(n);
            for (int i = size; i < n; i++) {
                at[i] -= given[i] == null ? 0 : in[i][0].frames();
            }
            try {
                samples.step(Arrays.copyOf(streams, size), Arrays.copyOf(given, size), Arrays.copyOf(out, size), Arrays.copyOf(flags, size));
            } catch (DreamStreamException error) {
                assertEquals(Status.LIMIT, error.status());
            }
            for (int i = 0; i < size; i++) {
                got.get(i).write(bytes(out[i][0]));
            }
        }
        for (ByteArrayOutputStream one : got) {
            assertArrayEquals(expected, one.toByteArray());
        }
    }

    @Test
    void refusedBatchNamesItsStreams() throws Exception {
        Tensor all = Files.tensor("samples.in", samples.input("x"));
        Stream[] streams = {samples.open(), samples.open(), samples.open()};
        streams[1].finish();
        Tensor[][] in = {{all.slice(0, 800)}, {all.slice(0, 800)}, {all.slice(0, 800)}};
        Tensor[][] out = {samples.newOutputs(), samples.newOutputs(), samples.newOutputs()};
        DreamStreamException error =
                assertThrows(DreamStreamException.class, () -> samples.step(streams, in, out, null));
        assertEquals(Status.STREAM_ID, error.status());
        assertEquals(List.of(streams[1]), error.streams());
        assertEquals(0, streams[0].frames("x"));
        error = assertThrows(DreamStreamException.class, () -> streams[1].step(0, all.slice(0, 1)));
        assertEquals(List.of(streams[1]), error.streams());
    }

    @Test
    void snapshotsAndForks() throws Exception {
        float[] values = Files.floats("samples.in");
        float[] expected = Files.floats("samples.out");
        int half = values.length / 2 + 77;
        float[] rest = Arrays.copyOfRange(values, half, values.length);
        try (Stream stream = samples.open(); Stream other = samples.open()) {
            float[] begun = stream.step(Arrays.copyOf(values, half), 0);
            float[] tail = Arrays.copyOfRange(expected, begun.length, expected.length);
            byte[] snapshot = stream.snapshot();
            try (Stream fork = stream.fork()) {
                assertArrayEquals(tail, fork.step(rest, Stream.END));
            }
            assertArrayEquals(tail, stream.step(rest, Stream.END));
            other.restore(snapshot);
            assertEquals(half, other.frames("x"));
            assertArrayEquals(tail, other.step(rest, Stream.END));
            snapshot[snapshot.length / 2] ^= 1;
            DreamStreamException error = assertThrows(DreamStreamException.class, () -> other.restore(snapshot));
            assertEquals(Status.FORMAT, error.status());
            assertThrows(IllegalArgumentException.class, () -> other.restore(null));
            assertEquals(Status.STREAM_ID, assertThrows(DreamStreamException.class, stream::snapshot).status());
        }
    }

    @Test
    void callersBuffers() throws Exception {
        ByteBuffer in = Files.bytes("samples.in");
        byte[] expected = bytes(Files.tensor("samples.out", samples.outputs().get(0)));
        Port port = samples.outputs().get(0);
        ByteBuffer room = ByteBuffer.allocateDirect(expected.length + 64).order(ByteOrder.nativeOrder());
        room.position(32).limit(32 + expected.length);
        Tensor out = Tensor.of(room, port.dtype(), 4);
        try (Stream stream = samples.open()) {
            stream.step(Tensor.of(in, DType.F32), out, Stream.END);
            room.clear();
            byte[] got = new byte[expected.length];
            room.get(32, got);
            assertArrayEquals(expected, got);
            assertEquals(0, room.get(31));
            assertEquals(0, room.get(32 + expected.length));

            room.position(0).limit(16 * 3);
            Tensor small = Tensor.of(room, port.dtype(), 4);
            Tensor all = Tensor.of(in, DType.F32);
            DreamStreamException error =
                    assertThrows(DreamStreamException.class, () -> stream.step(all, small, Stream.START | Stream.END));
            assertEquals(Status.LIMIT, error.status());
            assertTrue(stream.ended());
            assertArrayEquals(expected, bytes(small)); // nothing is lost
            stream.step(all, small, Stream.START | Stream.END);
            assertArrayEquals(expected, bytes(small));
        }
    }

    @Test
    void fromMemoryWithOptions() throws Exception {
        Options options = new Options().backend("ref").threads(2).maxStreams(1);
        try (Model model = engine.load(Files.bytes("samples.dsm"), options); Stream stream = model.open()) {
            assertEquals("ref", model.info().backend());
            assertEquals(2, model.info().threads());
            assertArrayEquals(Files.floats("samples.out"), stream.step(Files.floats("samples.in"), Stream.END));
            assertEquals(Status.LIMIT, assertThrows(DreamStreamException.class, model::open).status());
            assertFalse(stream.idleSeconds() < 0);
        }
    }
}
