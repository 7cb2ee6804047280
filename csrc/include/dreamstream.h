/*
 * dreamstream.h - the public C API of DreamStream, a streaming engine for neural models.
 *
 * Conventions, which hold for every declaration below:
 *
 * Errors. A function that can fail returns a ds_status. On failure its outputs and all state are
 *   as they were before the call, and ds_last_error() tells in words what went wrong. The library
 *   never prints, aborts or exits.
 *
 * Ownership. "borrows": uses the argument during the call only (what holds where nothing is
 *   said). "keeps": uses it later too; the caller lets it outlive the object. "copies": makes its
 *   own. "takes": becomes the owner. "returns owned": the caller releases it. "returns view": the
 *   library owns it, and it is valid as long as stated. "fills": writes into the caller's memory.
 *
 * Thread. "any": may be called from any thread at any time, beside any other call.
 */
#ifndef DREAMSTREAM_H
#define DREAMSTREAM_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define DS_API
#else
#define DS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version -------------------------------------------------------------------------------- */

#define DS_VERSION_MAJOR 0
#define DS_VERSION_MINOR 1
#define DS_VERSION_PATCH 0
#define DS_VERSION_STRING "0.1.0"

/*
 * Returns the version of the library that is running, "major.minor.patch"; compare it with
 * DS_VERSION_STRING, the version of this header. Returns view, valid for ever. Cannot fail.
 * Thread: any.
 */
DS_API const char *ds_version(void);

/* ---- status --------------------------------------------------------------------------------- */

/*
 * What a call came to. The numbers are pinned: they never change their meaning, and new ones are
 * added at the end, so callers treat a number that they don't know as a failure.
 */
typedef enum ds_status {
    DS_OK = 0,             /* done */
    DS_SHAPE = 1,          /* an array's shape, or sizes that don't fit each other */
    DS_DTYPE = 2,          /* an element type that is not supported here, or types mixed */
    DS_FORMAT = 3,         /* a file or byte string is not what it should be */
    DS_STREAM_ID = 4,      /* an id is unknown, given twice, or already live */
    DS_MISMATCH = 5,       /* start, end, lengths, rates or positions of streams disagree */
    DS_NOT_STREAMABLE = 6, /* the layer would need the future without bound */
    DS_BUSY = 7,           /* another thread is using this stream or session */
    DS_LIMIT = 8,          /* a limit was reached: of streams, of a buffer, of the system */
    DS_MODE = 9,           /* not possible in this mode (offline, online, train) */
    DS_CLOSED = 10,        /* the object was closed */
    DS_NO_MEMORY = 11,     /* the allocator gave none */
    DS_CAPTURE = 12,       /* the model does something that can't be compiled */
    DS_INTERNAL = 13,      /* a fault in DreamStream itself: please report it */
    DS_ARGUMENT = 14,      /* an argument that is never valid, such as a NULL pointer */
    DS_INDEX = 15          /* a stream's values hold an index that is out of range */
} ds_status;

/*
 * Returns the name of `status` as it is spelled above ("DS_SHAPE"), "DS_UNKNOWN" for a number
 * that is none. Returns view, valid for ever. Cannot fail. Thread: any.
 */
DS_API const char *ds_status_name(ds_status status);

/*
 * Returns the message of the last call that failed *in the calling thread*: UTF-8, one line, ""
 * if none has failed yet. Calls that succeed leave it alone, so look at the status first.
 * Returns view, valid until the next call that fails in this thread. Cannot fail. Thread: any.
 */
DS_API const char *ds_last_error(void);

/* ---- element types -------------------------------------------------------------------------- */

/* Element type of an array at the border of the library. The numbers are pinned. */
typedef enum ds_dtype {
    DS_F32 = 1,  /* float, IEEE 754 binary32 */
    DS_F64 = 2,  /* double, IEEE 754 binary64 */
    DS_I64 = 3,  /* int64_t */
    DS_BOOL = 4, /* one byte, 0 or 1 */
    DS_I16 = 5   /* int16_t: audio samples */
} ds_dtype;

/* ---- memory --------------------------------------------------------------------------------- */

/*
 * Where the library gets its memory. Both functions are called from any thread, and from several
 * at a time.
 */
typedef struct ds_allocator {
    /* Handed to both functions; the caller lets it outlive every object made with it. */
    void *context;

    /*
     * Returns `n_bytes` (at least 1) of memory whose address is a multiple of `alignment` (a power
     * of two), or NULL if there is none, upon which the call that asked fails with DS_NO_MEMORY.
     */
    void *(*allocate)(void *context, size_t n_bytes, size_t alignment);

    /* Takes back what `allocate` gave; `n_bytes` is the number then asked for. Never with NULL. */
    void (*release)(void *context, void *pointer, size_t n_bytes);
} ds_allocator;

/*
 * Makes `allocator` (copied; its context is kept) the one that objects created from now on use;
 * NULL brings back the C library's. Meant to be called at the start, while nothing is allocated;
 * it is safe later too, because each object remembers the allocator that it was made with, and
 * grows and is released through that one.
 * Errors: DS_ARGUMENT if one of the functions is NULL. Thread: any.
 */
DS_API ds_status ds_set_allocator(const ds_allocator *allocator);

/* ---- log ------------------------------------------------------------------------------------ */

/* How much a log message matters. The numbers are pinned. */
typedef enum ds_log_level {
    DS_LOG_DEBUG = 1,  /* of use to those who look for a fault */
    DS_LOG_INFO = 2,   /* what was chosen: instruction set, threads, kernels */
    DS_LOG_WARNING = 3 /* works, but not as one would expect */
} ds_log_level;

/*
 * Receives one message: `level` is a ds_log_level, `message` (borrowed: gone after the call) UTF-8
 * without a line end. Called in whichever thread has something to say, several at a time; must
 * not call the library.
 */
typedef void (*ds_log_callback)(void *context, int level, const char *message);

/*
 * Sends the library's messages to `callback` with `context` (kept); NULL, the state at the start,
 * drops them. A thread that is just logging may still call the former callback shortly after this
 * returns, so its context stays valid while calls are under way. Errors: none, always DS_OK.
 * Thread: any.
 */
DS_API ds_status ds_set_log(ds_log_callback callback, void *context);

#ifdef __cplusplus
}
#endif

#endif /* DREAMSTREAM_H */
