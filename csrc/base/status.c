/*
 * Status names, and the thread's message.
 *
 * A message is formatted aside and then copied, since its arguments may quote the former one.
 */
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"

static _Thread_local char last_message[DS_MESSAGE_BYTES];

const char *ds_status_name(ds_status status)
{
    switch (status) {
    case DS_OK:
        return "DS_OK";
    case DS_SHAPE:
        return "DS_SHAPE";
    case DS_DTYPE:
        return "DS_DTYPE";
    case DS_FORMAT:
        return "DS_FORMAT";
    case DS_STREAM_ID:
        return "DS_STREAM_ID";
    case DS_MISMATCH:
        return "DS_MISMATCH";
    case DS_NOT_STREAMABLE:
        return "DS_NOT_STREAMABLE";
    case DS_BUSY:
        return "DS_BUSY";
    case DS_LIMIT:
        return "DS_LIMIT";
    case DS_MODE:
        return "DS_MODE";
    case DS_CLOSED:
        return "DS_CLOSED";
    case DS_NO_MEMORY:
        return "DS_NO_MEMORY";
    case DS_CAPTURE:
        return "DS_CAPTURE";
    case DS_INTERNAL:
        return "DS_INTERNAL";
    case DS_ARGUMENT:
        return "DS_ARGUMENT";
    case DS_INDEX:
        return "DS_INDEX";
    }
    return "DS_UNKNOWN";
}

const char *ds_last_error(void)
{
    return last_message;
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
