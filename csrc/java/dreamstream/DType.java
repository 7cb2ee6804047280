package dreamstream;

/** The type of a tensor's elements. */
public enum DType {
    F32(1, 4),
    F64(2, 8),
    I64(3, 8),
    /** One byte, 0 or 1. */
    BOOL(4, 1),
    /** Audio samples: an input of F32 whose frame is one number takes them, divided by 32768. */
    I16(5, 2);

    final int code;
    final int bytes;

    DType(int code, int bytes) {
        this.code = code;
        this.bytes = bytes;
    }

    static DType of(long code) {
        for (DType dtype : values()) {
            if (dtype.code == code) {
                return dtype;
            }
        }
        throw new IllegalStateException("the model has an element type that this dreamstream.jar doesn't know: " + code);
    }
}
