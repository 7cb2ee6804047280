package dreamstream;

/** Why the engine refused a call: {@code ds_status} of the C API, by the same names. */
public enum Status {
    OK,
    SHAPE,
    DTYPE,
    FORMAT,
    STREAM_ID,
    MISMATCH,
    NOT_STREAMABLE,
    BUSY,
    LIMIT,
    MODE,
    CLOSED,
    NO_MEMORY,
    CAPTURE,
    INTERNAL,
    ARGUMENT,
    INDEX,
    /** A number that this version doesn't know. */
    UNKNOWN;

    static Status of(int code) {
        return code >= 0 && code < UNKNOWN.ordinal() ? values()[code] : UNKNOWN;
    }
}
