package dreamstream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** What a program does wrong throws, whatever the order. */
class MisuseTest {
    private static Model model(Engine engine) throws Exception {
        return engine.load(Files.path("samples.dsm"));
    }

    @Test
    void closingInAnyOrder() throws Exception {
        Engine engine = new Engine();
        Model model = model(engine);
        Stream stream = model.open();
        Stream other = model.open();
        other.close();
        other.close();
        assertFalse(other.isOpen());
        assertThrows(IllegalStateException.class, other::finish);
        assertThrows(IllegalStateException.class, other::fork);
        assertTrue(stream.isOpen());
        model.close();
        model.close();
        assertFalse(stream.isOpen());
        assertThrows(IllegalStateException.class, () -> stream.step(new float[9], 0));
        assertThrows(IllegalStateException.class, stream::reset);
        assertThrows(IllegalStateException.class, stream::snapshot);
        assertThrows(IllegalStateException.class, model::open);
        assertThrows(IllegalStateException.class, model::info);
        stream.close();
        Model second = model(engine); // the engine goes on
        Stream third = second.open();
        engine.close();
        engine.close();
        assertThrows(IllegalStateException.class, third::begun);
        assertThrows(IllegalStateException.class, () -> model(engine));
        try (Engine again = new Engine()) {
            assertEquals(1, model(again).inputs().size());
        }
    }

    @Test
    void arraysOfAnotherTypeAreRefusedBeforeTheStep() throws Exception {
        try (Engine engine = new Engine(); Model model = engine.load(Files.path("positive.dsm"));
                Stream stream = model.open()) {
            assertThrows(IllegalArgumentException.class, () -> stream.step(new float[9], Stream.START));
            assertThrows(IllegalArgumentException.class, () -> stream.step(new short[9], Stream.START));
            assertFalse(stream.begun());
            assertEquals(9, stream.step(Stream.START, Tensor.of(new float[9]))[0].frames());
        }
    }

    @Test
    void whatACallIsUsing() throws Exception {
        try (Engine engine = new Engine(); Model model = model(engine); Stream stream = model.open()) {
            stream.handle.enter(); // as a call in another thread does
            assertThrows(IllegalStateException.class, stream::close);
            assertThrows(IllegalStateException.class, model::close);
            assertThrows(IllegalStateException.class, engine::close);
            assertThrows(IllegalStateException.class, stream::finish);
            assertThrows(IllegalStateException.class, () -> stream.step(new float[9], 0));
            Stream[] batch = {model.open(), stream};
            Tensor[][] out = {model.newOutputs(), model.newOutputs()};
            assertThrows(IllegalStateException.class, () -> model.step(batch, null, out, null));
            assertTrue(stream.isOpen() && model.isOpen());
            stream.handle.leave();
            model.step(batch, null, out, null); // and what waited is free
        }
    }

    @Test
    void filesThatAreNone() {
        try (Engine engine = new Engine()) {
            DreamStreamException error = assertThrows(
                    DreamStreamException.class, () -> engine.load(Path.of("no such file \u00e9")));
            assertEquals(Status.FORMAT, error.status());
            assertTrue(error.getMessage().contains("no such file \u00e9"), error.getMessage());
            error = assertThrows(DreamStreamException.class, () -> engine.load(Files.path("samples.in")));
            assertEquals(Status.FORMAT, error.status());
            error = assertThrows(DreamStreamException.class, () -> engine.load(Files.path("lacking.dsm")));
            assertEquals(Status.FORMAT, error.status());
            Options unknown = new Options().backend("abacus");
            error = assertThrows(
                    DreamStreamException.class, () -> engine.load(Files.path("samples.dsm"), unknown));
            assertEquals(Status.ARGUMENT, error.status());
            assertTrue(error.getMessage().contains("abacus"));
            assertThrows(NullPointerException.class, () -> engine.load((Path) null));
            assertThrows(IllegalArgumentException.class, () -> engine.load(ByteBuffer.allocate(9), new Options()));
        }
        assertThrows(IllegalArgumentException.class, () -> new Options().threads(-1));
    }

    @Test
    void wrongBuffers() throws Exception {
        ByteOrder other = ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN;
        ByteBuffer direct = ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder());
        ByteBuffer[] wrong = {
            null, ByteBuffer.allocate(64).order(ByteOrder.nativeOrder()), ByteBuffer.allocateDirect(64).order(other),
            ByteBuffer.allocateDirect(63).order(ByteOrder.nativeOrder())
        };
        for (ByteBuffer buffer : wrong) {
            assertThrows(IllegalArgumentException.class, () -> Tensor.of(buffer, DType.F32));
        }
        assertThrows(IllegalArgumentException.class, () -> Tensor.of(direct, DType.F32, 5));
        assertThrows(IllegalArgumentException.class, () -> Tensor.of(direct, DType.F32, 1L << 40, 1L << 40));
        assertThrows(IllegalArgumentException.class, () -> Tensor.of(direct, DType.F32, -1));
        assertThrows(IllegalArgumentException.class, () -> Tensor.allocate(DType.F64, Integer.MAX_VALUE, 9));
        assertThrows(IllegalArgumentException.class, () -> Tensor.allocate(DType.F64, -1));
        Tensor tensor = Tensor.of(direct, DType.F32, 4);
        assertEquals(4, tensor.frames());
        assertThrows(IllegalArgumentException.class, () -> tensor.frames(5));
        assertThrows(IllegalArgumentException.class, () -> tensor.slice(3, 2));
        assertThrows(IllegalArgumentException.class, () -> tensor.slice(2, Integer.MAX_VALUE));
        assertThrows(IllegalArgumentException.class, tensor::doubles);
        assertEquals(0, Tensor.allocate(DType.F32, 7, 0).bytes().remaining());
    }

    @Test
    void wrongTensors() throws Exception {
        try (Engine engine = new Engine(); Model model = model(engine); Stream stream = model.open()) {
            Tensor in = Tensor.allocate(DType.F32, 800);
            Tensor out = model.outputs().get(0).tensor(9);
            Tensor[] wrongIn = {Tensor.allocate(DType.F32, 800, 1), Tensor.allocate(DType.F32, 800, 4)};
            for (Tensor tensor : wrongIn) {
                assertThrows(IllegalArgumentException.class, () -> stream.step(tensor, out, 0));
            }
            Tensor integers = Tensor.allocate(DType.I64, 800);
            DreamStreamException error =
                    assertThrows(DreamStreamException.class, () -> stream.step(integers, out, 0));
            assertEquals(Status.DTYPE, error.status());
            ByteBuffer readOnly = ByteBuffer.allocateDirect(64).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
            Tensor[] wrongOut = {
                null, Tensor.allocate(DType.F32, 9), Tensor.allocate(DType.F64, 9, 4), Tensor.allocate(DType.I64, 9, 2),
                Tensor.of(readOnly, DType.F32, 4)
            };
            for (Tensor tensor : wrongOut) {
                assertThrows(IllegalArgumentException.class, () -> stream.step(in, tensor, 0));
            }
            assertThrows(IllegalArgumentException.class, () -> stream.step(new Tensor[2], new Tensor[] {out}, 0));
            assertThrows(IllegalArgumentException.class, () -> stream.step(new Tensor[] {in}, new Tensor[2], 0));
            assertThrows(IllegalArgumentException.class, () -> stream.step(new Tensor[] {in}, null, 0));
            assertEquals(Status.ARGUMENT,
                    assertThrows(DreamStreamException.class, () -> stream.step(in, out, 64)).status());
            assertEquals(0, stream.frames("x")); // none of these advanced it
            Tensor input = Tensor.of(
                    ByteBuffer.allocateDirect(3200).asReadOnlyBuffer().order(ByteOrder.nativeOrder()), DType.F32);
            stream.step(input, out, 0); // inputs may be read-only
            assertEquals(800, stream.frames("x"));
        }
    }

    @Test
    void wrongBatches() throws Exception {
        try (Engine engine = new Engine(); Model model = model(engine); Model twin = model(engine)) {
            Stream a = model.open();
            Stream b = twin.open();
            Tensor[][] out = {model.newOutputs(), model.newOutputs()};
            assertThrows(IllegalStateException.class, () -> model.step(new Stream[] {a, a}, null, out, null));
            assertThrows(IllegalArgumentException.class, () -> model.step(new Stream[] {a, b}, null, out, null));
            assertThrows(IllegalArgumentException.class, () -> model.step(new Stream[] {a, null}, null, out, null));
            assertThrows(IllegalArgumentException.class, () -> model.step(new Stream[] {a}, null, out, null));
            assertThrows(IllegalArgumentException.class,
                    () -> model.step(new Stream[] {a, model.open()}, null, new Tensor[][] {out[0], null}, null));
            Tensor[][] twice = {out[0], out[0]}; // what the first stream gives would be lost
            assertThrows(IllegalArgumentException.class,
                    () -> model.step(new Stream[] {a, model.open()}, null, twice, null));
            model.step(new Stream[0], null, new Tensor[0][], null);
            model.step(new Stream[] {a, model.open()}, null, out, null); // all of them are free again
            b.close();
        }
    }

    @Test
    void librariesOfAnotherInterface() {
        Loader.check(new long[] {Native.METHODS_VERSION, 1, 1});
        Loader.check(new long[] {Native.METHODS_VERSION, 1, 2});
        assertThrows(UnsatisfiedLinkError.class, () -> Loader.check(new long[] {Native.METHODS_VERSION, 2, 1}));
        assertThrows(UnsatisfiedLinkError.class, () -> Loader.check(new long[] {Native.METHODS_VERSION + 1, 1, 1}));
    }
}
