package dreamstream;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

/** A model file that was loaded, shared by all threads: {@code ds_model} of the C API. */
public final class Model implements AutoCloseable {
    /** A port, and what a tensor of it must be. */
    static final class Place {
        final Port port;
        final long[] shape;
        final int frameBytes;
        private final boolean output;

        Place(Port port, boolean output) {
            this.port = port;
            this.output = output;
            this.shape = port.shape().stream().mapToLong(Long::longValue).toArray();
            this.frameBytes = Tensor.frameBytes(port.dtype(), shape);
        }

        /** Throws IllegalArgumentException unless the tensor is one of this port; an input may have another type. */
        void check(Tensor tensor) {
            if (tensor.fits == this) {
                return;
            }
            if (!tensor.hasShape(shape)) {
                throw new IllegalArgumentException((output ? "output " : "input ") + port.name() + " has frames of " + port.shape() + ", got "
                        + tensor);
            }
            if (output && tensor.dtype != port.dtype()) {
                throw new IllegalArgumentException(
                        "output " + port.name() + " is of " + port.dtype() + ", got " + tensor);
            }
            tensor.fits = this;
        }
    }

    final Handle handle;
    final Place[] inputs;
    final Place[] outputs;
    private final Cleaner.Cleanable cleaner;
    private final List<Port> inputPorts;
    private final List<Port> outputPorts;
    /** The numbers of a batch that is done, for the next one. */
    private final AtomicReference<long[]> spare = new AtomicReference<>();

    Model(long pointer) throws DreamStreamException {
        handle = new Handle(pointer, null);
        cleaner = handle.cleanWith(this);
        long[] info = Native.modelInfo(pointer);
        inputPorts = ports(pointer, false, info[2]);
        outputPorts = ports(pointer, true, info[3]);
        inputs = inputPorts.stream().map(port -> new Place(port, false)).toArray(Place[]::new);
        outputs = outputPorts.stream().map(port -> new Place(port, true)).toArray(Place[]::new);
    }

    private static List<Port> ports(long model, boolean output, long n) throws DreamStreamException {
        List<Port> made = new ArrayList<>();
        for (long i = 0; i < n; i++) {
            long[] info = Native.portInfo(model, output, i);
            List<Long> shape = Arrays.stream(info).skip(4).boxed().toList();
            String name = text(Native.portName(model, output, i));
            made.add(new Port(name, DType.of(info[0]), shape, info[1], info[2], info[3]));
        }
        return List.copyOf(made);
    }

    static String text(byte[] utf8) {
        return new String(utf8, StandardCharsets.UTF_8);
    }

    /** Returns the inputs, in their order. */
    public List<Port> inputs() {
        return inputPorts;
    }

    /** Returns the outputs, in their order. */
    public List<Port> outputs() {
        return outputPorts;
    }

    /** Returns the input of a name. */
    public Port input(String name) {
        return inputPorts.get(index(inputPorts, name, "input"));
    }

    /** Returns the output of a name. */
    public Port output(String name) {
        return outputPorts.get(index(outputPorts, name, "output"));
    }

    static int index(List<Port> ports, String name, String what) {
        for (int i = 0; i < ports.size(); i++) {
            if (ports.get(i).name().equals(name)) {
                return i;
            }
        }
        throw new IllegalArgumentException("the model has no " + what + " " + name + ", but "
                + ports.stream().map(Port::name).toList());
    }

    /** Returns tensors for the outputs of one stream, with no frames yet: they grow. */
    public Tensor[] newOutputs() {
        return outputPorts.stream().map(port -> port.tensor(0)).toArray(Tensor[]::new);
    }

    /** Returns what holds for the model as a whole, now. */
    public ModelInfo info() throws DreamStreamException {
        return handle.within(this, pointer -> {
            long[] n = Native.modelInfo(pointer);
            return new ModelInfo(
                    text(Native.modelText(pointer, false)), text(Native.modelText(pointer, true)), n[0] != 0, (int) n[1],
                    n[4], n[5], n[6], Double.longBitsToDouble(n[7]), n[8], n[9], n[10], n[11], n[12], n[13]);
        });
    }

    /** Opens a stream, at its beginning. */
    public Stream open() throws DreamStreamException {
        return handle.within(this, pointer -> new Stream(this, Native.open(pointer)));
    }

    /**
     * Advances streams of this model, each once, by chunks of any lengths, in one native call. What a stream gets
     * doesn't depend on which others are there. All or nothing: where it fails, no stream has advanced, and the
     * exception names those to blame.
     *
     * @param inputs per stream its tensors, in the order of {@link #inputs}; null, also for single ones: no frames
     * @param outputs per stream where its outputs go, in the order of {@link #outputs}
     * @param flags per stream {@link Stream#START}, {@link Stream#END}, both or 0; null: 0 for all
     */
    public void step(Stream[] streams, Tensor[][] inputs, Tensor[][] outputs, int[] flags) throws DreamStreamException {
        streams = streams.clone();
        int n = streams.length;
        if ((inputs != null && inputs.length != n) || outputs.length != n || (flags != null && flags.length != n)) {
            throw new IllegalArgumentException("inputs, outputs and flags must be of " + n + " streams");
        }
        int entered = 0;
        handle.enter();
        try {
            Call call = new Call(this, n, spare.getAndSet(null));
            while (entered < n) {
                Stream stream = streams[entered];
                if (stream == null || stream.model() != this) {
                    throw new IllegalArgumentException(
                            "stream " + entered + (stream == null ? " is null" : " is of another model"));
                }
                stream.handle.enterAlone();
                int i = entered++;
                call.put(i, stream.handle, inputs == null ? null : inputs[i], outputs[i], flags == null ? 0 : flags[i]);
            }
            if (n > 0) {
                call.run();
            }
            spare.set(call.numbers());
        } catch (DreamStreamException error) {
            throw error.blame(refused(streams));
        } finally {
            while (entered > 0) {
                streams[--entered].handle.leaveAlone();
            }
            handle.leave();
            Reference.reachabilityFence(streams);
            Reference.reachabilityFence(this);
        }
    }

    private static List<Stream> refused(Stream[] streams) throws DreamStreamException {
        List<Stream> found = new ArrayList<>();
        for (Stream stream : streams) {
            if (Native.streamInfo(stream.handle.pointer)[2] != 0) {
                found.add(stream);
            }
        }
        return found;
    }

    /** Returns whether it is open. */
    public boolean isOpen() {
        return handle.isOpen();
    }

    /**
     * Closes the model and all of its streams; once closed, nothing. Throws IllegalStateException, and stays open,
     * while another thread is in a call with it.
     */
    @Override
    public void close() {
        handle.close();
        cleaner.clean();
    }
}
