package dreamstream;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;

/**
 * Frames of one input or output of one stream, in a direct buffer of the machine's byte order: {@code [frames][frame
 * shape]}, one frame after the other. The engine reads an input where it lies; frames of an output are written into
 * the buffer.
 *
 * <p>Its memory belongs to the garbage collector. A tensor is used by one thread at a time; the buffers that it gives
 * ({@link #bytes}, {@link #floats}, …) show its memory, not a copy.
 */
public final class Tensor {
    /** A direct buffer and where it lies: never changed, so that a call sees an address and a size that go together. */
    static final class Memory {
        final ByteBuffer buffer;
        final long address;
        final int bytes;
        final boolean readOnly;

        private Memory(ByteBuffer buffer, long address) {
            this.buffer = buffer.order(ByteOrder.nativeOrder());
            this.address = address;
            bytes = buffer.capacity();
            readOnly = buffer.isReadOnly();
        }

        static Memory of(ByteBuffer buffer) {
            return new Memory(buffer, Native.address(buffer));
        }

        static Memory of(long bytes) {
            if (bytes > Integer.MAX_VALUE) {
                throw new IllegalArgumentException("a tensor has at most 2 GiB, asked for " + bytes + " bytes");
            }
            return of(ByteBuffer.allocateDirect((int) bytes));
        }

        Memory slice(int from, int bytes) {
            return new Memory(buffer.slice(from, bytes), address + from);
        }
    }

    final DType dtype;
    private final long[] shape;
    final int frameBytes;
    int place; // among the outputs of the last call that it took one of
    private boolean grows;
    private Memory memory;
    private int frames;
    private long start;

    private Tensor(DType dtype, long[] shape, int frameBytes, Memory memory, int frames, boolean grows) {
        this.dtype = dtype;
        this.shape = shape;
        this.frameBytes = frameBytes;
        this.memory = memory;
        this.frames = frames;
        this.grows = grows;
    }

    /**
     * Returns a tensor of zeros with room for {@code frames} frames, each of the axes {@code shape} (none: a number).
     * As an output it grows where a step gives more.
     */
    public static Tensor allocate(DType dtype, int frames, long... shape) {
        if (frames < 0) {
            throw new IllegalArgumentException("frames must not be negative, got " + frames);
        }
        int frameBytes = frameBytes(dtype, shape);
        Loader.load();
        return new Tensor(dtype, shape.clone(), frameBytes, Memory.of((long) frames * frameBytes), frames, true);
    }

    /**
     * Returns a tensor of what lies between the position and the limit of {@code buffer}, which must be direct, of the
     * machine's byte order, and hold whole frames. Nothing is copied. (Buffers over memory that is released by hand,
     * such as a segment's, must not be: the call could meet memory that is gone.)
     */
    public static Tensor of(ByteBuffer buffer, DType dtype, long... shape) {
        int frameBytes = frameBytes(dtype, shape);
        if (buffer == null) {
            throw new IllegalArgumentException("the buffer is null");
        }
        if (!buffer.isDirect()) {
            throw new IllegalArgumentException("the buffer must be direct: ByteBuffer.allocateDirect; of an array "
                    + "Tensor.of makes a copy");
        }
        if (buffer.order() != ByteOrder.nativeOrder()) {
            throw new IllegalArgumentException("the buffer must have the machine's byte order: "
                    + "buffer.order(ByteOrder.nativeOrder()), also after slice() and duplicate()");
        }
        int bytes = buffer.remaining();
        if (frameBytes == 0 ? bytes != 0 : bytes % frameBytes != 0) {
            throw new IllegalArgumentException("the buffer has " + bytes + " bytes between position and limit, which "
                    + "are no whole frames of " + frameBytes + " bytes");
        }
        Loader.load();
        int frames = frameBytes == 0 ? 0 : bytes / frameBytes;
        return new Tensor(dtype, shape.clone(), frameBytes, Memory.of(buffer.slice()), frames, false);
    }

    /** Returns a tensor of F32 with a copy of {@code values}. */
    public static Tensor of(float[] values, long... shape) {
        Tensor tensor = allocate(DType.F32, whole(values.length, shape), shape);
        tensor.floats().put(values);
        return tensor;
    }

    /** Returns a tensor of I16 with a copy of {@code samples}. */
    public static Tensor of(short[] samples) {
        Tensor tensor = allocate(DType.I16, samples.length);
        tensor.shorts().put(samples);
        return tensor;
    }

    private static int whole(int values, long[] shape) {
        int each = frameBytes(DType.BOOL, shape);
        if (each == 0 || values % each != 0) {
            throw new IllegalArgumentException(values + " values are no whole frames of " + Arrays.toString(shape));
        }
        return values / each;
    }

    static int frameBytes(DType dtype, long[] shape) {
        long bytes = dtype.bytes;
        for (long size : shape) {
            if (size < 0 || (size > 0 && bytes > Integer.MAX_VALUE / size)) {
                throw new IllegalArgumentException("a frame of " + Arrays.toString(shape) + " can't be");
            }
            bytes *= size;
        }
        return (int) bytes;
    }

    /** Returns the type of the elements. */
    public DType dtype() {
        return dtype;
    }

    /** Returns the sizes of a frame's axes, a copy. */
    public long[] shape() {
        return shape.clone();
    }

    /** Returns how many frames there are. */
    public int frames() {
        return frames;
    }

    /** Sets how many frames there are, within the room; returns this. */
    public Tensor frames(int frames) {
        if (frames < 0 || frames > room()) {
            throw new IllegalArgumentException("frames must be 0 to " + room() + ", got " + frames);
        }
        this.frames = frames;
        return this;
    }

    /** Returns how many frames there is room for. */
    public int room() {
        return frameBytes == 0 ? Integer.MAX_VALUE : memory.bytes / frameBytes;
    }

    /** Returns, of an output, the position of its first frame, counted from the beginning of the stream. */
    public long start() {
        return start;
    }

    /** Returns a tensor of {@code count} frames from frame {@code from} on, which shares the memory. */
    public Tensor slice(int from, int count) {
        if (from < 0 || count < 0 || from > frames - count) {
            throw new IllegalArgumentException(
                    "frames " + from + " to " + ((long) from + count) + " of a tensor of " + frames);
        }
        Memory part = memory.slice(from * frameBytes, count * frameBytes);
        return new Tensor(dtype, shape, frameBytes, part, count, false);
    }

    /** Returns a buffer of the frames, from position 0 on. */
    public ByteBuffer bytes() {
        return memory.buffer.slice(0, frames * frameBytes).order(ByteOrder.nativeOrder());
    }

    /** Returns a buffer of the elements, of a tensor of F32. */
    public FloatBuffer floats() {
        expect(DType.F32);
        return bytes().asFloatBuffer();
    }

    /** Returns a buffer of the elements, of a tensor of F64. */
    public DoubleBuffer doubles() {
        expect(DType.F64);
        return bytes().asDoubleBuffer();
    }

    /** Returns a buffer of the elements, of a tensor of I64. */
    public LongBuffer longs() {
        expect(DType.I64);
        return bytes().asLongBuffer();
    }

    /** Returns a buffer of the elements, of a tensor of I16. */
    public ShortBuffer shorts() {
        expect(DType.I16);
        return bytes().asShortBuffer();
    }

    /** Returns a copy of the elements, of a tensor of F32. */
    public float[] toFloats() {
        FloatBuffer from = floats();
        float[] values = new float[from.remaining()];
        from.get(values);
        return values;
    }

    private void expect(DType wanted) {
        if (dtype != wanted) {
            throw new IllegalArgumentException("the tensor is of " + dtype + ", not of " + wanted);
        }
    }

    @Override
    public String toString() {
        return "Tensor(" + dtype + ", " + frames + " frames of " + Arrays.toString(shape) + ")";
    }

    /* What a call does: the numbers that jni.c takes for an input and for an output. */

    boolean hasShape(long[] wanted) {
        return Arrays.equals(shape, wanted);
    }

    /** The last place of a model that the tensor was found to fit: neither ever changes. */
    Model.Place fits;

    /** Writes address, frames and dtype; returns the memory, which must stay reachable during the call. */
    Memory putInput(long[] numbers, int at) {
        Memory now = memory;
        int n = frames;
        if ((long) n * frameBytes > now.bytes) {
            throw new IllegalStateException("another thread is using the tensor");
        }
        numbers[at] = now.address;
        numbers[at + 1] = n;
        numbers[at + 2] = dtype.code;
        return now;
    }

    /** Writes the address and the bytes of the room. */
    Memory putOutput(long[] numbers, int at) {
        Memory now = memory;
        if (now.readOnly) {
            throw new IllegalArgumentException("a read-only buffer can't take an output");
        }
        numbers[at] = now.address;
        numbers[at + 1] = now.bytes;
        return now;
    }

    /**
     * Takes the frames that a call gave, from the engine's memory at {@code numbers[at]} where {@code used} has no room
     * for them: then into a larger buffer. Returns false if {@code used} was the caller's.
     */
    boolean takeOutput(long[] numbers, int at, Memory used) {
        long bytes = numbers[at + 2] * frameBytes;
        boolean fits = bytes <= numbers[at + 1];
        if (!fits) {
            used = Memory.of(Math.max(bytes, Math.min(Integer.MAX_VALUE, 2L * used.bytes)));
            Native.copy(used.address, numbers[at], bytes);
        }
        final boolean asked = fits || grows;
        grows |= !fits;
        if (memory != used) { // storing what is there costs a collector's barrier all the same
            memory = used;
        }
        frames = (int) numbers[at + 2];
        start = numbers[at + 3];
        return asked;
    }
}
