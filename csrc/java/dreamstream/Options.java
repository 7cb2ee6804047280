package dreamstream;

/** How a model is loaded: {@code ds_model_options} of the C API. What is not set has its default, 0 or null. */
public final class Options {
    long threads;
    long maxStreams;
    long maxBytes;
    boolean copy;
    String backend;

    /** Sets the threads of one step, up to 1024; 0: those of DREAMSTREAM_THREADS, else 1. */
    public Options threads(int threads) {
        this.threads = notNegative(threads, "threads");
        return this;
    }

    /** Sets the most streams that may be open; 0: no limit. */
    public Options maxStreams(int maxStreams) {
        this.maxStreams = notNegative(maxStreams, "maxStreams");
        return this;
    }

    /** Sets the most bytes that the model may take; 0: the engine's limit. */
    public Options maxBytes(long maxBytes) {
        this.maxBytes = notNegative(maxBytes, "maxBytes");
        return this;
    }

    /** Sets whether the file is read into memory instead of mapped: for files that may be changed in place. */
    public Options copy(boolean copy) {
        this.copy = copy;
        return this;
    }

    /** Sets the kernels by a name of {@link Engine#backends}; null: the best. */
    public Options backend(String backend) {
        this.backend = backend;
        return this;
    }

    private static long notNegative(long value, String name) {
        if (value < 0) {
            throw new IllegalArgumentException(name + " must not be negative, got " + value);
        }
        return value;
    }
}
