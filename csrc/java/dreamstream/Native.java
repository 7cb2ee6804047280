package dreamstream;

import java.nio.Buffer;

/** The functions of {@code jni.c}. Whoever calls one has entered the handles of all objects that it names. */
final class Native {
    /** Changes with the methods below, and with the number of the same name in jni.c. */
    static final int METHODS_VERSION = 2;

    private Native() {}

    static native long[] versions();

    static native byte[] version();

    static native long backends();

    static native byte[] backend(long index);

    static native long address(Buffer buffer);

    static native void copy(long to, long from, long bytes);

    static native long load(byte[] path, long address, long bytes, long[] numbers, byte[] backend)
            throws DreamStreamException;

    static native void close(long object, boolean model);

    static native long[] modelInfo(long model) throws DreamStreamException;

    static native byte[] modelText(long model, boolean backend) throws DreamStreamException;

    static native long[] portInfo(long model, boolean output, long index) throws DreamStreamException;

    static native byte[] portName(long model, boolean output, long index) throws DreamStreamException;

    static native long open(long model) throws DreamStreamException;

    static native void reset(long stream) throws DreamStreamException;

    static native long fork(long stream) throws DreamStreamException;

    static native long[] streamInfo(long stream) throws DreamStreamException;

    static native long frames(long stream, long input) throws DreamStreamException;

    static native byte[] snapshot(long stream) throws DreamStreamException;

    static native void restore(long stream, byte[] snapshot) throws DreamStreamException;

    static native void step(long model, long[] numbers, int streams, int inputs, int outputs)
            throws DreamStreamException;
}
