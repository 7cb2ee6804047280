/* Status and messages: how a function says that it failed.
 *
 *     ds_status thing_make(ds_thing **thing, size_t n)
 *     {
 *         DS_CHECK(n > 0, DS_ARGUMENT, "thing: n must be positive, got %zu", n);
 *         DS_TRY(part_make(...));                    // forwards the status and its message
 *         DS_ASSERT(n < LIMIT);                      // our own bug, if ever: DS_INTERNAL
 *         return DS_OK;
 *     }
 *
 * A message is one line; it names the operator or object, what was expected and what came. It lives
 * in a buffer of the calling thread (ds_last_error). The macros return from the function that they
 * stand in: what that function holds by then is DS_SCOPED, or must be released first, or by its caller. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>

#include "dreamstream.h"

/* Longest message, its ending zero included; longer ones end in "...". */
#define DS_MESSAGE_BYTES 512

#define DS_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))

/* Fills `text` as vsnprintf does and makes it fit to be shown (base/utf8.h): what it quotes of files and callers
 * can be anything. Cannot fail: a format that printf refuses gives "(no message)". Thread: any. */
void ds_text_format(char text[DS_MESSAGE_BYTES], const char *format, va_list arguments)
    DS_PRINTF(2, 0);
/* Writes the thread's message and returns `status`. The arguments may contain ds_last_error(), to
 * put something before it: ds_fail(status, "%s: %s", name, ds_last_error()). Thread: any. */
ds_status ds_fail(ds_status status, const char *format, ...) DS_PRINTF(2, 3);
/* Returns DS_INTERNAL; what DS_ASSERT calls, kept out of line. Thread: any. */
ds_status ds_fail_assertion(const char *condition, const char *file, int line);

/* What a walk over rows remembers while it marks the bad ones: the first failure, with its message. */
typedef struct ds_first_fault {
    ds_status status; /* DS_OK to begin with */
    char message[DS_MESSAGE_BYTES];
} ds_first_fault;

/* Says how one row went: marks it where that failed (`bad` may be NULL), and keeps the first failure, whose
 * message is the thread's. Returns whether this one failed. */
bool ds_first_fault_note(ds_first_fault *first, ds_status status, bool *bad);
/* The first failure, its message the thread's again; DS_OK where there was none. */
ds_status ds_first_fault_end(const ds_first_fault *first);

/* Before a declaration: `release` gets the variable's address where its block ends, however it is left. */
#define DS_SCOPED(release) __attribute__((cleanup(release)))

/* As DS_TRY; `undo` comes before it returns. */
#define DS_TRY_ELSE(call, undo)                  \
    do {                                         \
        const ds_status ds_try_status_ = (call); \
        if (ds_try_status_ != DS_OK) {           \
            undo;                                \
            return ds_try_status_;               \
        }                                        \
    } while (0)

/* Returns `status` unless `condition` holds; the message (printf's arguments) follows. */
#define DS_CHECK(condition, status, ...)           \
    do {                                           \
        if (!(condition))                          \
            return ds_fail((status), __VA_ARGS__); \
    } while (0)

/* Returns DS_INTERNAL unless `condition` holds. For our own bugs only; in every build. */
#define DS_ASSERT(condition)                                          \
    do {                                                              \
        if (!(condition))                                             \
            return ds_fail_assertion(#condition, __FILE__, __LINE__); \
    } while (0)
