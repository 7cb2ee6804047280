/* UTF-8. */
#include "codec/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool follows(unsigned char byte)
{
    return (byte & 0xC0u) == 0x80u;
}

size_t ds_utf8_length(const char *text, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    unsigned char bytes[4] = {0}; /* what is missing doesn't follow */
    memcpy(bytes, text, n_bytes < 4 ? n_bytes : 4);
    const unsigned lead = bytes[0];
    if (lead < 0x80u)
        return 1;
    if (lead < 0xC2u || lead > 0xF4u || !follows(bytes[1])) {
        return 0; /* a byte that follows nothing, an overlong form, beyond 0x10FFFF */
    }
    if (lead < 0xE0u)
        return 2;
    if (!follows(bytes[2]))
        return 0;
    if (lead < 0xF0u) {
        const bool overlong = lead == 0xE0u && bytes[1] < 0xA0u;
        const bool surrogate = lead == 0xEDu && bytes[1] >= 0xA0u;
        return overlong || surrogate ? 0 : 3;
    }
    const bool overlong = lead == 0xF0u && bytes[1] < 0x90u;
    const bool beyond = lead == 0xF4u && bytes[1] >= 0x90u;
    return !follows(bytes[3]) || overlong || beyond ? 0 : 4;
}

size_t ds_utf8_encode(char text[4], uint32_t code)
{
    static const unsigned leads[] = {0, 0, 0xC0u, 0xE0u, 0xF0u};
    const size_t length = code < 0x80u ? 1 : code < 0x800u ? 2 : code < 0x10000u ? 3 : 4;
    for (size_t i = length; i-- > 1;) {
        text[i] = (char)(0x80u | (code & 0x3Fu));
        code >>= 6;
    }
    text[0] = (char)(leads[length] | code);
    return length;
}

/* Control characters of ASCII and of Latin-1, and the separators of lines and paragraphs. */
static bool breaks_line(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (length == 1)
        return bytes[0] < 0x20 || bytes[0] == 0x7F;
    return (length == 2 && bytes[0] == 0xC2 && bytes[1] < 0xA0) ||
           (length == 3 && bytes[0] == 0xE2 && bytes[1] == 0x80 && (bytes[2] & 0xFEu) == 0xA8u);
}

const char *ds_utf8_show(char shown[DS_UTF8_SHOWN_BYTES], const char *text, size_t n_bytes)
{
    static const char cut[] = "...";
    size_t used = 0;
    for (size_t at = 0; at < n_bytes;) {
        const size_t length = ds_utf8_length(text + at, n_bytes - at);
        const bool plain = length > 0 && !breaks_line(text + at, length);
        const size_t n_shown = plain ? length : 1;
        if (used + n_shown + sizeof cut > DS_UTF8_SHOWN_BYTES) {
            memcpy(shown + used, cut, sizeof cut);
            return shown;
        }
        if (plain)
            memcpy(shown + used, text + at, length);
        else
            shown[used] = '?';
        used += n_shown;
        at += length > 0 ? length : 1;
    }
    shown[used] = '\0';
    return shown;
}
