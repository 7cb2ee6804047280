/* Formatted text in a buffer of fixed size. */
#include "base/text.h"

#include <stdio.h>

/* Cuts a UTF-8 character at the end of text[0..length) that lacks some of its bytes. */
static void cut_partial_character(char *text, size_t length)
{
    size_t start = length;
    size_t n_after = 0; /* continuation bytes behind text[start - 1] */
    while (start > 0 && n_after < 4 && ((unsigned char)text[start - 1] & 0xC0u) == 0x80u) {
        start--;
        n_after++;
    }
    if (start == 0)
        return;
    const unsigned char lead = (unsigned char)text[start - 1];
    const size_t n_needed = lead >= 0xF0u ? 3 : lead >= 0xE0u ? 2 : lead >= 0xC0u ? 1 : 0;
    if (n_after < n_needed)
        text[start - 1] = '\0';
}

void ds_text_format(char *text, size_t n_bytes, const char *format, va_list arguments)
{
    const int length = vsnprintf(text, n_bytes, format, arguments);
    if (length < 0) {
        static const char fallback[] = "(no message)";
        size_t i = 0;
        for (; i + 1 < n_bytes && fallback[i] != '\0'; i++)
            text[i] = fallback[i];
        text[i] = '\0';
    } else if ((size_t)length >= n_bytes) {
        cut_partial_character(text, n_bytes - 1);
    }
}
