/* UTF-8. */
#include "codec/utf8.h"

#include <stdbool.h>
#include <string.h>

/* Fills `*code` with the character that begins at `text`; returns its bytes, 0 if there is none. */
static size_t decode(uint32_t *code, const char *text, size_t n_bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* below, the form is overlong */
    const uint32_t lead = n_bytes > 0 ? (unsigned char)text[0] : 0xFFu;
    *code = lead;
    if (lead < 0x80u)
        return 1;
    const size_t length = lead < 0xE0u ? 2 : lead < 0xF0u ? 3 : 4;
    if (lead < 0xC0u || lead >= 0xF8u || length > n_bytes)
        return 0;
    *code = lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        const uint32_t byte = (unsigned char)text[i];
        if ((byte & 0xC0u) != 0x80u)
            return 0;
        *code = *code << 6 | (byte & 0x3Fu);
    }
    const bool surrogate = *code >= 0xD800u && *code <= 0xDFFFu;
    return *code < least[length] || *code > 0x10FFFFu || surrogate ? 0 : length;
}

size_t ds_utf8_length(const char *text, size_t n_bytes)
{
    uint32_t code;
    return decode(&code, text, n_bytes);
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
static bool breaks_line(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
}

const char *ds_utf8_show(char shown[DS_UTF8_SHOWN_BYTES], const char *text, size_t n_bytes)
{
    static const char cut[] = "...";
    size_t used = 0;
    for (size_t at = 0; at < n_bytes;) {
        uint32_t code;
        const size_t length = decode(&code, text + at, n_bytes - at);
        const bool plain = length > 0 && !breaks_line(code);
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
