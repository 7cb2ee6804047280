/* Status names, and the thread's message.
 *
 * A message is formatted aside and then copied, since its arguments may quote the former one. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

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

/* Cuts a UTF-8 character at the end of text[0..length) that lacks some of its bytes. */
static void cut_partial_character(char *text, size_t length)
{
    size_t end = length; /* behind the last byte that is no continuation */
    while (end > 0 && length - end < 4 && ((unsigned char)text[end - 1] & 0xC0u) == 0x80u)
        end--;
    if (end == 0)
        return;
    const unsigned char lead = (unsigned char)text[end - 1];
    const size_t n_needed = lead >= 0xF0u ? 3 : lead >= 0xE0u ? 2 : lead >= 0xC0u ? 1 : 0;
    if (length - end < n_needed)
        text[end - 1] = '\0';
}

void ds_text_format(char *text, size_t n_bytes, const char *format, va_list arguments)
{
    const int length = vsnprintf(text, n_bytes, format, arguments);
    if (length < 0)
        (void)snprintf(text, n_bytes, "(no message)");
    else if ((size_t)length >= n_bytes)
        cut_partial_character(text, n_bytes - 1);
}

ds_status ds_fail(ds_status status, const char *format, ...)
{
    char message[DS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    ds_text_format(message, sizeof message, format, arguments);
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
