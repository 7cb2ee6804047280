/*
 * Formatted text in a buffer of fixed size, always terminated.
 */
#ifndef DS_BASE_TEXT_H
#define DS_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/*
 * Fills `text` (room for n_bytes >= 1, the ending zero included) as vsnprintf does. What is too
 * long is cut before a UTF-8 character that would not be whole, so that valid text stays valid.
 * Cannot fail: a format that printf refuses gives "(no message)". Thread: any.
 */
#if defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 3, 0)))
#endif
void ds_text_format(char *text, size_t n_bytes, const char *format, va_list arguments);

#endif /* DS_BASE_TEXT_H */
