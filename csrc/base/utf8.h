/* UTF-8 (RFC 3629): strict validation, encoding, and text from strangers made fit for messages.
 *
 * A name out of a file may hold what moves a terminal's cursor, begins a line or turns the direction of
 * writing. Whatever is shown of it goes through ds_utf8_show, messages as a whole do (base/status.c), and so
 * does what Python shows (`_core.shown`). */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the bytes of the character that begins at `text`, 1 to 4, or 0 if none of the `n_bytes`
 * long text is whole and valid there: overlong forms, surrogates and numbers above 0x10FFFF are
 * not. */
size_t ds_utf8_length(const char *text, size_t n_bytes);
/* Fills `text` with the character `code` (no surrogate, at most 0x10FFFF); returns its bytes. */
size_t ds_utf8_encode(char text[4], uint32_t code);
/* Fills `shown` (room for `n_room` >= 4) with `text`: characters that control or format (of Unicode's categories
 * Cc, Cf, Zl and Zp: ESC, line ends, directions of writing) are written as \x1b, \u202e or \U000e0001, bytes that
 * are no UTF-8 as \xff, and what is too long ends in "...". What was shown once stays as it is. Returns `shown`. */
const char *ds_utf8_show(char *shown, size_t n_room, const char *text, size_t n_bytes);
/* The most bytes that a name out of a file takes within a message. */
#define DS_UTF8_SHOWN_BYTES 72
/* The text that ends in a zero so, within the block that the message is written in. */
#define DS_SHOWN(text) \
    ds_utf8_show((char[DS_UTF8_SHOWN_BYTES]){0}, DS_UTF8_SHOWN_BYTES, text, strlen(text))
