package dreamstream;

import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The engine refused a call. Unless the message says otherwise, everything is as it was before the call: in a
 * batch, no stream has advanced.
 */
public final class DreamStreamException extends Exception {
    private static final long serialVersionUID = 1;

    private final Status status;
    private transient List<Stream> streams = List.of();

    /** Called by the native code. */
    DreamStreamException(int status, byte[] message) {
        this(Status.of(status), new String(message, StandardCharsets.UTF_8));
    }

    DreamStreamException(Status status, String message) {
        super(message);
        this.status = status;
    }

    /** Returns what kind of failure it is. */
    public Status status() {
        return status;
    }

    /** Returns the streams of a batch because of which it failed; none where no stream is to blame. */
    public List<Stream> streams() {
        return streams == null ? List.of() : streams;
    }

    DreamStreamException blame(List<Stream> refused) {
        streams = List.copyOf(refused);
        return this;
    }
}
