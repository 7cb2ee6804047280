package dreamstream;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * One sequence on its way through a model: {@code ds_stream} of the C API. One thread uses it at a time, whichever; a
 * second one gets an IllegalStateException, at once.
 */
public final class Stream implements AutoCloseable {
    /** A flag of a step: the stream begins anew, with its first chunk. */
    public static final int START = 1;

    /** A flag of a step: the stream ends, and all that is left comes out. */
    public static final int END = 2;

    final Handle handle;
    private final Model model;
    private final Cleaner.Cleanable cleaner;
    private final Call call;
    /** What the steps return that aren't given outputs; made when first wanted. */
    private Tensor[] outputs;
    /** The arrays of the calls with arrays, in direct memory. */
    private Tensor floats;
    private Tensor shorts;

    Stream(Model model, long pointer) {
        this.model = model;
        handle = new Handle(pointer, model.handle);
        cleaner = handle.cleanWith(this);
        call = new Call(model, 1, null);
    }

    /** Returns the model that it is a stream of. */
    public Model model() {
        return model;
    }

    private void advance(Tensor[] inputs, Tensor[] into, int flags) throws DreamStreamException {
        call.put(0, handle, inputs, into, flags);
        try {
            call.run();
        } catch (DreamStreamException error) {
            throw error.status() == Status.LIMIT ? error : error.blame(List.of(this));
        }
    }

    private Tensor[] own() {
        if (outputs == null) {
            outputs = model.newOutputs();
        }
        return outputs;
    }

    /**
     * Advances the stream by a chunk.
     *
     * @param inputs the chunk, in the order of {@link Model#inputs}; null, also for single ones: no frames
     * @param outputs where the outputs go, in the order of {@link Model#outputs}
     * @param flags {@link #START}, {@link #END}, both or 0
     */
    public void step(Tensor[] inputs, Tensor[] outputs, int flags) throws DreamStreamException {
        handle.enter();
        try {
            advance(inputs, outputs, flags);
        } finally {
            handle.leave();
            Reference.reachabilityFence(this);
        }
    }

    /** The same of a model with one input and one output. */
    public void step(Tensor input, Tensor output, int flags) throws DreamStreamException {
        step(new Tensor[] {input}, new Tensor[] {output}, flags);
    }

    /** Advances the stream by a chunk; returns the outputs, which belong to the stream and change with its next step. */
    public Tensor[] step(int flags, Tensor... inputs) throws DreamStreamException {
        return handle.within(this, pointer -> {
            advance(inputs, own(), flags);
            return own().clone();
        });
    }

    /** The same by names: inputs that are not there have no frames. */
    public Map<String, Tensor> step(Map<String, Tensor> inputs, int flags) throws DreamStreamException {
        Tensor[] ordered = new Tensor[model.inputs.length];
        for (Map.Entry<String, Tensor> entry : inputs.entrySet()) {
            ordered[Model.index(model.inputs(), entry.getKey(), "input")] = entry.getValue();
        }
        Tensor[] made = step(flags, ordered);
        Map<String, Tensor> named = new HashMap<>();
        for (int k = 0; k < made.length; k++) {
            named.put(model.outputs().get(k).name(), made[k]);
        }
        return named;
    }

    /**
     * Advances a stream of a model with one input and one output, of F32, by whole frames in an array; returns a copy of
     * the output's.
     */
    public float[] step(float[] values, int flags) throws DreamStreamException {
        return handle.within(this, pointer -> {
            int each = one().frameBytes / DType.F32.bytes;
            if (each == 0 || values.length % each != 0) {
                throw new IllegalArgumentException(values.length + " values are no whole frames of "
                        + model.inputs().get(0).shape());
            }
            floats = roomy(floats, DType.F32, values.length / each);
            floats.floats().put(values);
            return advanceOne(floats, flags);
        });
    }

    /** The same of 16-bit samples, for an input of F32 whose frame is one number. */
    public float[] step(short[] samples, int flags) throws DreamStreamException {
        return handle.within(this, pointer -> {
            one();
            shorts = roomy(shorts, DType.I16, samples.length);
            shorts.shorts().put(samples);
            return advanceOne(shorts, flags);
        });
    }

    private Model.Place one() {
        if (model.inputs.length != 1 || model.outputs.length != 1) {
            throw new IllegalArgumentException("arrays go to models with one input and one output; this one has "
                    + model.inputs.length + " and " + model.outputs.length);
        }
        if (model.outputs[0].port.dtype() != DType.F32) {
            throw new IllegalArgumentException("arrays are of F32, the output is of " + model.outputs[0].port.dtype());
        }
        return model.inputs[0];
    }

    private Tensor roomy(Tensor tensor, DType dtype, int frames) {
        Tensor enough = tensor != null && tensor.room() >= frames
                ? tensor
                : Tensor.allocate(dtype, frames, model.inputs[0].shape);
        return enough.frames(frames);
    }

    private float[] advanceOne(Tensor input, int flags) throws DreamStreamException {
        advance(new Tensor[] {input}, own(), flags);
        return own()[0].toFloats();
    }

    /** Ends the stream without another chunk; returns the outputs as {@link #step(int, Tensor...)} does. */
    public Tensor[] finish() throws DreamStreamException {
        return step(END, (Tensor[]) null);
    }

    /** Puts the stream at its beginning. */
    public void reset() throws DreamStreamException {
        handle.within(this, pointer -> {
            Native.reset(pointer);
            return null;
        });
    }

    /** Opens another stream that has seen what this one has: from here on the two go their own ways. */
    public Stream fork() throws DreamStreamException {
        return handle.within(this, pointer -> new Stream(model, Native.fork(pointer)));
    }

    /** Returns the frames of an input that the stream has taken since its beginning; 0 once it has ended. */
    public long frames(String input) throws DreamStreamException {
        int index = Model.index(model.inputs(), input, "input");
        return handle.within(this, pointer -> Native.frames(pointer, index));
    }

    private long[] info() throws DreamStreamException {
        return handle.within(this, Native::streamInfo);
    }

    /** Returns whether it has been stepped since it was opened or reset. */
    public boolean begun() throws DreamStreamException {
        return info()[0] != 0;
    }

    /** Returns whether it has ended. */
    public boolean ended() throws DreamStreamException {
        return info()[1] != 0;
    }

    /** Returns the seconds since its last step, or since it was opened. */
    public double idleSeconds() throws DreamStreamException {
        return Double.longBitsToDouble(info()[3]);
    }

    /**
     * Returns all that the stream remembers: {@link #restore} takes it, in any process and on any machine that has the
     * same model.
     */
    public byte[] snapshot() throws DreamStreamException {
        return handle.within(this, Native::snapshot);
    }

    /** Puts the stream where the snapshot was taken. Where it fails the stream is as it was. */
    public void restore(byte[] snapshot) throws DreamStreamException {
        if (snapshot == null) {
            throw new IllegalArgumentException("the snapshot is null");
        }
        handle.within(this, pointer -> {
            Native.restore(pointer, snapshot);
            return null;
        });
    }

    /** Returns whether it is open, and its model is. */
    public boolean isOpen() {
        return handle.isOpen();
    }

    /**
     * Closes the stream; once closed, or when its model was, nothing. Throws IllegalStateException, and stays open,
     * while another thread is in a call with it.
     */
    @Override
    public void close() {
        handle.close();
        cleaner.clean();
    }
}
