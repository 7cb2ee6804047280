package dreamstream;

import java.lang.ref.Reference;
import java.util.Arrays;

/**
 * One step of some streams: it checks the tensors, lays out the numbers that {@code jni.c} reads, and brings back what
 * came out. Its streams and their model have been entered.
 */
final class Call {
    private final Model model;
    private final int streams;
    private final long[] numbers;
    private final Tensor[] used;
    private final Tensor.Memory[] memory;

    /** {@code spare} serves as its numbers if it is long enough; null: none is there. */
    Call(Model model, int streams, long[] spare) {
        this.model = model;
        this.streams = streams;
        int n = Math.addExact(model.outputs.length, Math.multiplyExact(streams, stride()));
        numbers = spare != null && spare.length >= n ? spare : new long[n];
        used = new Tensor[streams * model.outputs.length];
        memory = new Tensor.Memory[streams * (model.inputs.length + model.outputs.length)];
        for (int k = 0; k < model.outputs.length; k++) {
            numbers[k] = model.outputs[k].frameBytes;
        }
    }

    private int stride() {
        return 2 + 3 * model.inputs.length + 4 * model.outputs.length;
    }

    /** Returns the numbers, for another call when this one is done. */
    long[] numbers() {
        return numbers;
    }

    private int outputAt(int stream, int k) {
        return model.outputs.length + stream * stride() + 2 + 3 * model.inputs.length + 4 * k;
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
        for (int j = 0; j < model.inputs.length; j++, at += 3) {
            Tensor tensor = inputs == null ? null : inputs[j];
            if (tensor == null) {
                Arrays.fill(numbers, at, at + 3, 0);
            } else {
                model.inputs[j].check(tensor);
                memory[m] = tensor.putInput(numbers, at);
            }
            m++;
        }
        for (int k = 0; k < model.outputs.length; k++, at += 4) {
            Tensor tensor = outputs[k];
            if (tensor == null) {
                throw new IllegalArgumentException("output " + model.outputs[k].port.name() + ": the tensor is null");
            }
            model.outputs[k].check(tensor);
            int place = i * model.outputs.length + k;
            if (tensor.place < place && used[tensor.place] == tensor) {
                throw new IllegalArgumentException("output " + model.outputs[k].port.name() + " of stream " + i
                        + ": the tensor takes another output of this step");
            }
            tensor.place = place;
            used[place] = tensor;
            memory[m++] = tensor.putOutput(numbers, at);
        }
    }

    /** Steps, and hands each output its frames. */
    void run() throws DreamStreamException {
        try {
            Native.step(model.handle.pointer, numbers, streams, model.inputs.length, model.outputs.length);
            boolean expected = true;
            for (int i = 0; i < streams; i++) {
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
            Arrays.fill(memory, null);
            Arrays.fill(used, null);
        }
    }
}
