/* UTF-8. */
#include "base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
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

/* Unicode's categories Cc, Cf, Zl and Zp: what controls or formats, first and last of each range. */
static const uint32_t formatting[][2] = {
    {0, 0x1F},          {0x7F, 0x9F},       {0xAD, 0xAD},       {0x600, 0x605},
    {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
    {0x8E2, 0x8E2},     {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x2064},   {0x2066, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},
    {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A}, {0xE0001, 0xE0001}, {0xE0020, 0xE007F},
};

static bool formats(uint32_t code)
{
    size_t i = 0;
    while (i < sizeof formatting / sizeof *formatting && code > formatting[i][1])
        i++;
    return i < sizeof formatting / sizeof *formatting && code >= formatting[i][0];
}

const char *ds_utf8_show(char *shown, size_t n_room, const char *text, size_t n_bytes)
{
    static const char cut[] = "...";
    size_t used = 0, whole = 0; /* `whole`: the last place where `cut` fits in behind */
    for (size_t at = 0; at < n_bytes;) {
        uint32_t code;
        char escape[11];
        const size_t length = decode(&code, text + at, n_bytes - at);
        const char *piece = text + at;
        size_t n_piece = length;
        if (length == 0 || formats(code)) {
            const uint32_t number = length > 0 ? code : (unsigned char)text[at];
            n_piece = (size_t)snprintf(escape, sizeof escape,
                                       number < 0x100     ? "\\x%02x"
                                       : number < 0x10000 ? "\\u%04x"
                                                          : "\\U%08x",
                                       (unsigned)number);
            piece = escape;
        }
        if (used + n_piece >= n_room) {
            memcpy(shown + whole, cut, sizeof cut);
            return shown;
        }
        memcpy(shown + used, piece, n_piece);
        used += n_piece;
        whole = used + sizeof cut <= n_room ? used : whole;
        at += length > 0 ? length : 1;
    }
    shown[used] = '\0';
    return shown;
}
