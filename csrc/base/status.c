/* Status names, and the thread's message.
 *
 * A message is formatted aside and then copied, since its arguments may quote the former one. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static _Thread_local char last_message[DS_MESSAGE_BYTES];

#define NAMED(status) [status] = #status
static const char *const names[] = {
    NAMED(DS_OK),        NAMED(DS_SHAPE),    NAMED(DS_DTYPE),          NAMED(DS_FORMAT),
    NAMED(DS_STREAM_ID), NAMED(DS_MISMATCH), NAMED(DS_NOT_STREAMABLE), NAMED(DS_BUSY),
    NAMED(DS_LIMIT),     NAMED(DS_MODE),     NAMED(DS_CLOSED),         NAMED(DS_NO_MEMORY),
    NAMED(DS_CAPTURE),   NAMED(DS_INTERNAL), NAMED(DS_ARGUMENT),       NAMED(DS_INDEX),
};

const char *ds_status_name(ds_status status)
{
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "DS_UNKNOWN";
}

const char *ds_last_error(void)
{
    return last_message;
}

void ds_text_format(char text[DS_MESSAGE_BYTES], const char *format, va_list arguments)
{
    char raw[DS_MESSAGE_BYTES +
             4]; /* what fills it is cut below, before a character that isn't whole */
    if (vsnprintf(raw, sizeof raw, format, arguments) < 0)
        (void)snprintf(raw, sizeof raw, "(no message)");
    (void)ds_utf8_show(text, DS_MESSAGE_BYTES, raw, strlen(raw));
}

ds_status ds_fail(ds_status status, const char *format, ...)
{
    char message[DS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    ds_text_format(message, format, arguments);
    va_end(arguments);
    memcpy(last_message, message, sizeof message);
    return status;
}

ds_status ds_fail_assertion(const char *condition, const char *file, int line)
{
    return ds_fail(DS_INTERNAL, "%s:%d: a fault in DreamStream, please report it: not (%s)", file,
                   line, condition);
}

bool ds_first_fault_note(ds_first_fault *first, ds_status status, bool *bad)
{
    const bool failed = status != DS_OK;
    if (bad != NULL)
        *bad |= failed;
    if (failed && first->status == DS_OK) {
        first->status = status;
        memcpy(first->message, last_message, sizeof first->message);
    }
    return failed;
}

ds_status ds_first_fault_end(const ds_first_fault *first)
{
    if (first->status != DS_OK)
        memcpy(last_message, first->message, sizeof last_message);
    return first->status;
}
