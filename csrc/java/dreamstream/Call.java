package dreamstream;

import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * A step of some streams: it checks the tensors, lays out the numbers that {@code jni.c} reads, and brings back what
 * came out. Its streams and their model have been entered.
 *
 * <p>What a call has laid out stays for the next one: where a tensor still has the memory that it had in the same place
 * of the last call, neither is looked at again. After a step of the engine little of a batch's objects is in the
 * processor's caches, and what a call costs is the number of objects that it has to visit.
 */
final class Call {
    /** A reference that doesn't keep the call, and with it the tensors of a batch that is done, from being collected. */
    final WeakReference<Call> self = new WeakReference<>(this);

    private final Model model;
    private final Stream[] streams;
    private final Handle[] handles;
    private final long[] numbers;
    private final Tensor[] used;
    private final Tensor.Memory[] memory;

    /** {@code streams}: how many there may be. */
    Call(Model model, int streams) {
        this.model = model;
        this.streams = new Stream[streams];
        handles = new Handle[streams];
        numbers = new long[Math.addExact(model.outputs.length, Math.multiplyExact(streams, stride()))];
        used = new Tensor[streams * model.outputs.length];
        memory = new Tensor.Memory[streams * (model.inputs.length + model.outputs.length)];
        for (int k = 0; k < model.outputs.length; k++) {
            numbers[k] = model.outputs[k].frameBytes;
        }
    }

    private int stride() {
        return 2 + 4 * model.inputs.length + 4 * model.outputs.length;
    }

    /** Returns for how many streams there is room. */
    int room() {
        return streams.length;
    }

    private int outputAt(int stream, int k) {
        return model.outputs.length + stream * stride() + 2 + 4 * model.inputs.length + 4 * k;
    }

    /** Enters a stream as number {@code i}, which stays reachable until it is left. */
    Handle enter(int i, Stream stream) {
        if (streams[i] != stream) { // storing what is there costs a collector's barrier all the same
            streams[i] = stream;
            handles[i] = stream.handle;
        }
        handles[i].enterAlone();
        return handles[i];
    }

    /** Leaves the first {@code n} streams. */
    void leave(int n) {
        while (n > 0) {
            handles[--n].leaveAlone();
        }
        Reference.reachabilityFence(streams);
    }

    /** Returns those of the first {@code n} streams that the engine refused. */
    List<Stream> refused(int n) throws DreamStreamException {
        List<Stream> found = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            if (Native.streamInfo(handles[i].pointer)[2] != 0) {
                found.add(streams[i]);
            }
        }
        return found;
    }

    /** Says what stream {@code i} of the call takes and where its outputs go; null as an input: no frames. */
    void put(int i, Handle stream, Tensor[] inputs, Tensor[] outputs, int flags) {
        int at = model.outputs.length + i * stride();
        int m = i * (model.inputs.length + model.outputs.length);
        numbers[at++] = stream.pointer;
        numbers[at++] = flags;
        if (inputs != null && inputs.length != model.inputs.length) {
            throw new IllegalArgumentException(
                    "the model has " + model.inputs.length + " inputs, got " + inputs.length);
        }
        if (outputs == null || outputs.length != model.outputs.length) {
            throw new IllegalArgumentException("the model has " + model.outputs.length + " outputs, got "
                    + (outputs == null ? "null" : String.valueOf(outputs.length)));
        }
        for (int j = 0; j < model.inputs.length; j++, at += 4) {
            Tensor tensor = inputs == null ? null : inputs[j];
            if (tensor == null) {
                Arrays.fill(numbers, at, at + 4, 0);
                memory[m++] = null;
            } else {
                Tensor.Memory now = tensor.memory();
                if (now != memory[m]) {
                    model.inputs[j].check(tensor);
                    tensor.putInput(numbers, at, now);
                    memory[m] = now;
                }
                tensor.putFrames(numbers, at);
                m++;
            }
        }
        for (int k = 0; k < model.outputs.length; k++, at += 4) {
            Tensor tensor = outputs[k];
            if (tensor == null) {
                throw new IllegalArgumentException("output " + model.outputs[k].port.name() + ": the tensor is null");
            }
            Tensor.Memory now = tensor.memory();
            if (now != memory[m]) {
                model.outputs[k].check(tensor);
                tensor.putOutput(numbers, at, now);
                used[i * model.outputs.length + k] = tensor;
                memory[m] = now;
            }
            m++;
        }
    }

    /** Steps the first {@code n} streams, and hands each output its frames. */
    void run(int n) throws DreamStreamException {
        try {
            Native.step(model.handle.pointer, numbers, n, model.inputs.length, model.outputs.length);
            boolean expected = true;
            for (int i = 0; i < n; i++) {
                for (int k = 0; k < model.outputs.length; k++) {
                    int m = i * (model.inputs.length + model.outputs.length) + model.inputs.length + k;
                    expected &= used[i * model.outputs.length + k].takeOutput(numbers, outputAt(i, k), memory[m]);
                }
            }
            if (!expected) {
                throw new DreamStreamException(Status.LIMIT, "a buffer was too small for the frames of its output. The "
                        + "step is done, and nothing is lost: the tensor has them in a larger buffer of its own");
            }
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    /** Lets go of the tensors. */
    void forget() {
        Arrays.fill(memory, null);
        Arrays.fill(used, null);
    }
}
