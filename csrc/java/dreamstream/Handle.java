package dreamstream;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.atomic.AtomicIntegerFieldUpdater;

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
    private static final AtomicIntegerFieldUpdater<Handle> USERS =
            AtomicIntegerFieldUpdater.newUpdater(Handle.class, "users");

    final long pointer;
    private final Handle model;
    /** How many calls are using it, or CLOSED. */
    private volatile int users;

    /** {@code model} is null for a model, which many threads may enter; a stream is entered by one at a time. */
    Handle(long pointer, Handle model) {
        this.pointer = pointer;
        this.model = model;
    }

    Cleaner.Cleanable cleanWith(Object owner) {
        return CLEANER.register(owner, this);
    }

    /** What is done with a native object. */
    interface Use<T> {
        T of(long pointer) throws DreamStreamException;
    }

    /** Uses the native object, of {@code owner}, which stays alive meanwhile. */
    <T> T within(Object owner, Use<T> use) throws DreamStreamException {
        enter();
        try {
            return use.of(pointer);
        } finally {
            leave();
            Reference.reachabilityFence(owner);
        }
    }

    /** Enters a model, or a stream with its model. */
    void enter() {
        if (model == null) {
            for (int n = users; n == CLOSED || !USERS.compareAndSet(this, n, n + 1); n = users) {
                if (n == CLOSED) {
                    throw closed();
                }
            }
            return;
        }
        model.enter();
        try {
            enterAlone();
        } catch (IllegalStateException refused) {
            model.leave();
            throw refused;
        }
    }

    void leave() {
        if (model == null) {
            USERS.decrementAndGet(this);
        } else {
            leaveAlone();
            model.leave();
        }
    }

    /** Enters a stream whose model has been entered, and is left later. */
    void enterAlone() {
        if (!USERS.compareAndSet(this, 0, 1)) {
            throw users == CLOSED ? closed() : busy("in use by another thread, or given twice");
        }
    }

    void leaveAlone() {
        USERS.lazySet(this, 0); // nobody else changes it meanwhile
    }

    boolean isOpen() {
        return users != CLOSED && (model == null || model.isOpen());
    }

    /** Releases the native object, once. Throws IllegalStateException, and leaves it open, while a call is using it. */
    void close() {
        if (!USERS.compareAndSet(this, 0, CLOSED)) {
            if (users != CLOSED) {
                throw busy("in use by another thread: it can't be closed");
            }
        } else if (model == null) {
            Native.close(pointer, true); // and all of its streams
        } else {
            try {
                model.enter();
            } catch (IllegalStateException gone) {
                return; // the model's end was the stream's
            }
            Native.close(pointer, false);
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
