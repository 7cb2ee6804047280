/*
 * JSON, written to the end of a buffer: the same calls, the same bytes.
 *
 *     ds_json_writer w;
 *     ds_json_writer_init(&w, &buffer);
 *     ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
 *     ds_json_put_integer(&w, "stride", 2);
 *     ds_json_put_close(&w);
 *     DS_TRY(ds_json_writer_finish(&w));        // {"stride":2}
 *
 * A value in an object has a key, any other one NULL instead. The first failure is kept, everything
 * after it is skipped, and ds_json_writer_finish returns it; look at its message before anything
 * else fails in this thread.
 *
 * No space is written. Members stand in the order of the calls; that keys differ is the caller's
 * concern. Strings are UTF-8 and written as they are, but for ", \ and control characters. What is
 * written can be read by ds_json_parse: values where values belong, at most its depth.
 */
#ifndef DS_CODEC_JSON_WRITE_H
#define DS_CODEC_JSON_WRITE_H

#include "codec/buffer.h"
#include "codec/json.h"

/* Fields are private; the type is complete so that it can stand on the stack. */
typedef struct ds_json_writer {
    ds_buffer *text;
    ds_status status;
    size_t depth;
    uint64_t objects; /* one bit per level: it is an object */
    bool after_key;   /* a value is due */
    bool after_value; /* a comma is due before what follows */
} ds_json_writer;

/* Begins a text at the end of `text` (kept). */
void ds_json_writer_init(ds_json_writer *writer, ds_buffer *text);

/*
 * Returns DS_OK if one whole value was written, else what failed: DS_ARGUMENT (a string that is not
 * UTF-8, a double that is not finite, too deep, a call where it has no place), or DS_NO_MEMORY.
 */
ds_status ds_json_writer_finish(ds_json_writer *writer);

/* Begins a DS_JSON_OBJECT or a DS_JSON_ARRAY, and ends the innermost one. */
void ds_json_put_open(ds_json_writer *writer, const char *key, ds_json_kind kind);
void ds_json_put_close(ds_json_writer *writer);

/* A key of `n_bytes`, which may contain zeros; its value follows, with NULL for a key. */
void ds_json_put_key_bytes(ds_json_writer *writer, const char *key, size_t n_bytes);

void ds_json_put_string(ds_json_writer *writer, const char *key, const char *text);

/* The same for text of `n_bytes`, which may contain zeros. */
void ds_json_put_string_bytes(ds_json_writer *writer, const char *key, const char *text,
                              size_t n_bytes);

void ds_json_put_integer(ds_json_writer *writer, const char *key, int64_t value);
void ds_json_put_double(ds_json_writer *writer, const char *key, double value);
void ds_json_put_boolean(ds_json_writer *writer, const char *key, bool value);
void ds_json_put_null(ds_json_writer *writer, const char *key);

/* An array of integers. */
void ds_json_put_integers(ds_json_writer *writer, const char *key, const int64_t *values, size_t n);

/* A whole value, as a writer wrote it before; taken as it is. */
void ds_json_put_written(ds_json_writer *writer, const char *key, const void *text, size_t n_bytes);

#endif /* DS_CODEC_JSON_WRITE_H */
