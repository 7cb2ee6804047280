/* UTF-8 (RFC 3629): strict validation, encoding, and text from strangers made fit for messages. */
#ifndef DS_CODEC_UTF8_H
#define DS_CODEC_UTF8_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the bytes of the character that begins at `text`, 1 to 4, or 0 if none of the `n_bytes`
 * long text is whole and valid there: overlong forms, surrogates and numbers above 0x10FFFF are
 * not. */
size_t ds_utf8_length(const char *text, size_t n_bytes);
/* Fills `text` with the character `code` (no surrogate, at most 0x10FFFF); returns its bytes. */
size_t ds_utf8_encode(char text[4], uint32_t code);
/* Room that ds_utf8_show needs. */
#define DS_UTF8_SHOWN_BYTES 72

/* Fills `shown` with `text` for a message: control characters, invalid bytes and what may break a
 * line become '?', and what is too long ends in "...". Returns `shown`. */
const char *ds_utf8_show(char shown[DS_UTF8_SHOWN_BYTES], const char *text, size_t n_bytes);
/* The same for a text that ends in a zero, within the block that the message is written in. */
#define DS_SHOWN(text) ds_utf8_show((char[DS_UTF8_SHOWN_BYTES]){0}, text, strlen(text))

#endif
