/* The process-wide log callback. */
#include "base/log.h"

#include "base/cell.h"

static ds_cell current_log; /* callback, context; zero: none */

ds_status ds_set_log(ds_log_callback callback, void *context)
{
    const uintptr_t words[DS_CELL_WORDS] = {(uintptr_t)callback, (uintptr_t)context, 0};
    ds_cell_write(&current_log, words);
    return DS_OK;
}

void ds_log(ds_log_level level, const char *format, ...)
{
    uintptr_t words[DS_CELL_WORDS];
    ds_cell_read(&current_log, words);
    if (words[0] == 0)
        return;
    char message[DS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    ds_text_format(message, format, arguments);
    va_end(arguments);
    ((ds_log_callback)words[0])((void *)words[1], (int)level, message);
}
