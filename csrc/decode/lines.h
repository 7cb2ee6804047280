/* Text files of strangers, line by line and field by field.
 *
 * Lines end in "\n" or "\r\n", fields are separated by spaces and tabs. A line is a view of the text. */
#pragma once
#include "base/status.h"

typedef struct ds_span {
    const char *text;
    size_t n;
} ds_span;

typedef struct ds_lines {
    const char *at, *end;
    size_t number; /* of the line that was taken last, counted from 1 */
} ds_lines;

static inline ds_lines ds_lines_of(const void *text, size_t n_bytes)
{
    return (ds_lines){text, n_bytes ? (const char *)text + n_bytes : text, 0};
}

/* Takes the next line, without its end; false where there is none. */
bool ds_lines_next(ds_lines *lines, ds_span *line);
/* Takes the first field off the line; false where nothing but spaces is left. */
bool ds_lines_field(ds_span *line, ds_span *field);
/* Takes the last field off the line. */
bool ds_lines_last_field(ds_span *line, ds_span *field);
bool ds_span_is(ds_span span, const char *text);
/* Reads all of the span as a decimal integer from 0 to `limit`. */
bool ds_span_integer(ds_span span, uint32_t limit, uint32_t *value);
/* Reads all of the span as a finite number, or "-inf", which is -INFINITY. */
bool ds_span_number(ds_span span, double *value);
/* The text of a span within a message: printf("%s", DS_SHOWN_SPAN(span)). */
#define DS_SHOWN_SPAN(span) \
    ds_utf8_show((char[DS_UTF8_SHOWN_BYTES]){0}, DS_UTF8_SHOWN_BYTES, (span).text, (span).n)
