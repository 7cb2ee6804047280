package dreamstream;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The native object of a model or stream, and who is using it. A native pointer is used between {@link #enter} and
 * {@link #leave} only, and released when nobody is in between, so that no call meets memory that is gone.
 *
 * <p>It doesn't refer to the Java object that it belongs to, which may therefore be collected; then it is the
 * cleaner's action.
 */
final class Handle implements Runnable {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final int CLOSED = -1;

    final long pointer;
    private final Handle model;
    /** How many calls are using it, or CLOSED. */
    private final AtomicInteger users = new AtomicInteger();

    /** {@code model} is null for a model, which many threads may enter; a stream is entered by one at a time. */
    Handle(long pointer, Handle model) {
        this.pointer = pointer;
        this.model = model;
    }

    Cleaner.Cleanable cleanWith(Object owner) {
        return CLEANER.register(owner, this);
    }

    void enter() {
        if (model != null) {
            model.enter();
        }
        for (;;) {
            int n = users.get();
            if (n == CLOSED || (n > 0 && model != null)) {
                if (model != null) {
                    model.leave();
                }
                throw n == CLOSED ? closed() : busy("in use by another thread, or given twice");
            }
            if (users.compareAndSet(n, n + 1)) {
                return;
            }
        }
    }

    void leave() {
        users.decrementAndGet();
        if (model != null) {
            model.leave();
        }
    }

    boolean isOpen() {
        return users.get() != CLOSED && (model == null || model.isOpen());
    }

    /** Releases the native object, once. Throws IllegalStateException, and leaves it open, while a call is using it. */
    void close() {
        if (!users.compareAndSet(0, CLOSED)) {
            if (users.get() != CLOSED) {
                throw busy("in use by another thread: it can't be closed");
            }
        } else if (model == null) {
            Native.closeModel(pointer); // and all of its streams
        } else {
            try {
                model.enter();
            } catch (IllegalStateException gone) {
                return; // the model's end was the stream's
            }
            Native.closeStream(pointer);
            model.leave();
        }
    }

    @Override
    public void run() {
        close();
    }

    private String name() {
        return model == null ? "the model" : "the stream";
    }

    private IllegalStateException closed() {
        return new IllegalStateException(name() + " was closed");
    }

    private IllegalStateException busy(String why) {
        return new IllegalStateException(name() + " is " + why);
    }
}
