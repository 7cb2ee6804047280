#include "decode/lines.h"

#include <math.h>
#include <string.h>

#include "codec/decimal.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool ds_lines_next(ds_lines *lines, ds_span *line)
{
    if (lines->at == lines->end)
        return false;
    const size_t left = (size_t)(lines->end - lines->at);
    const char *end = memchr(lines->at, '\n', left);
    *line = (ds_span){lines->at, end ? (size_t)(end - lines->at) : left};
    lines->at = end ? end + 1 : lines->end;
    lines->number++;
    if (line->n && line->text[line->n - 1] == '\r')
        line->n--;
    return true;
}

bool ds_lines_field(ds_span *line, ds_span *field)
{
    size_t from = 0, to;
    while (from < line->n && is_blank(line->text[from]))
        from++;
    for (to = from; to < line->n && !is_blank(line->text[to]);)
        to++;
    *field = (ds_span){line->text + from, to - from};
    *line = (ds_span){line->text + to, line->n - to};
    return field->n > 0;
}

bool ds_lines_last_field(ds_span *line, ds_span *field)
{
    size_t from, to = line->n;
    while (to > 0 && is_blank(line->text[to - 1]))
        to--;
    for (from = to; from > 0 && !is_blank(line->text[from - 1]);)
        from--;
    *field = (ds_span){line->text + from, to - from};
    line->n = from;
    return field->n > 0;
}

bool ds_span_is(ds_span span, const char *text)
{
    return span.n == strlen(text) && memcmp(span.text, text, span.n) == 0;
}

bool ds_span_integer(ds_span span, uint32_t limit, uint32_t *value)
{
    uint64_t found = 0;
    for (size_t i = 0; i < span.n; i++) {
        if (!is_digit(span.text[i]))
            return false;
        found = found * 10 + (uint64_t)(span.text[i] - '0');
        if (found > limit)
            return false;
    }
    *value = (uint32_t)found;
    return span.n > 0;
}

/* How many digits stand at `at`. */
static size_t digits(ds_span span, size_t at)
{
    size_t n = 0;
    while (at + n < span.n && is_digit(span.text[at + n]))
        n++;
    return n;
}

bool ds_span_number(ds_span span, double *value)
{
    if (ds_span_is(span, "-inf")) {
        *value = -INFINITY;
        return true;
    }
    if (span.n && span.text[0] == '+')
        span = (ds_span){span.text + 1, span.n - 1};
    size_t at = span.n && span.text[0] == '-', n = digits(span, at);
    at += n;
    if (at < span.n && span.text[at] == '.') {
        const size_t fraction = digits(span, at + 1);
        n += fraction;
        at += 1 + fraction;
    }
    if (n == 0)
        return false;
    if (at < span.n && (span.text[at] == 'e' || span.text[at] == 'E')) {
        at++;
        if (at < span.n && (span.text[at] == '-' || span.text[at] == '+'))
            at++;
        n = digits(span, at);
        if (n == 0)
            return false;
        at += n;
    }
    return at == span.n && ds_decimal_read(value, span.text, span.n);
}
