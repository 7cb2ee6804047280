/* ARPA files.
 *
 *     \data\
 *     ngram 1=3
 *     ngram 2=2
 *
 *     \1-grams:
 *     -0.9  <s>  -0.3
 *     ...
 *     \end\
 *
 * A section has as many lines as the head says, the beginning of an n-gram stands in the section before it, and
 * nothing stands twice. What the head says is never believed before the lines have come. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "decode/ngram.h"

typedef struct reader {
    ds_ngram *model;
    ds_lines lines;
    ds_span line; /* the latest that isn't empty */
} reader;

/* Takes the next line that is not empty. */
static ds_status next_line(reader *r, const char *expected)
{
    while (ds_lines_next(&r->lines, &r->line)) {
        ds_span line = r->line, field;
        if (ds_lines_field(&line, &field))
            return DS_OK;
    }
    return ds_fail(DS_FORMAT, "language model: expected %s, got the end of the file", expected);
}

/* Fills `text` with what opens a section. */
static const char *section(char text[24], size_t order)
{
    (void)snprintf(text, 24, "\\%zu-grams:", order);
    return text;
}

static bool line_is(const reader *r, const char *text)
{
    ds_span line = r->line, field, more;
    return ds_lines_field(&line, &field) && ds_span_is(field, text) &&
           !ds_lines_field(&line, &more);
}

/* Reads "ngram order=count". */
static ds_status read_count(reader *r)
{
    ds_ngram *m = r->model;
    ds_span line = r->line, word, count;
    uint32_t order = 0, n = 0;
    bool right =
        ds_lines_field(&line, &word) && ds_span_is(word, "ngram") && ds_lines_field(&line, &count);
    const char *equal = right ? memchr(count.text, '=', count.n) : NULL;
    if (equal) {
        const ds_span before = {count.text, (size_t)(equal - count.text)};
        ds_span after = {equal + 1, count.n - before.n - 1};
        if (after.n == 0) /* "ngram 1= 20" */
            (void)ds_lines_field(&line, &after);
        right = ds_span_integer(before, DS_MAX_ORDER, &order) &&
                ds_span_integer(after, UINT32_MAX / 4, &n);
    }
    DS_CHECK(right && equal && order == m->order + 1, DS_FORMAT,
             "language model, line %zu: expected \"ngram %zu=\" and a number, orders up to %d",
             r->lines.number, m->order + 1, DS_MAX_ORDER);
    m->order = order;
    m->counts[order] = n;
    return DS_OK;
}

static ds_status add_gram(ds_ngram *m, ds_gram gram)
{
    DS_TRY(DS_RESERVE(&m->allocator, m, grams, m->n, m->n + 1));
    m->grams[m->n++] = gram;
    return DS_OK;
}

/* Fills `*node` with a new one at the end of an edge, and its longest known end. */
static ds_status add_edge(reader *r, uint32_t context, uint32_t word, ds_gram gram)
{
    ds_ngram *m = r->model;
    uint32_t node = (uint32_t)m->n, state = m->grams[context].suffix;
    DS_TRY(ds_map_put(&m->edges, ds_map_edge(context, word), &node));
    DS_CHECK(node == m->n, DS_FORMAT, "language model, line %zu: expected each n-gram once",
             r->lines.number);
    for (gram.suffix = DS_MAP_NONE; gram.suffix == DS_MAP_NONE; state = m->grams[state].suffix)
        gram.suffix = state ? ds_map_get(&m->edges, ds_map_edge(state, word)) : word + 1;
    return add_gram(m, gram);
}

/* Adds a word, whose node is the next. */
static ds_status add_word(reader *r, ds_span text, ds_gram gram)
{
    ds_ngram *m = r->model;
    uint32_t word = (uint32_t)m->n_words;
    uint64_t hash = DS_HASH_EMPTY;
    for (size_t i = 0; m->spelled && i < text.n; i++) {
        hash = ds_hash(hash, text.text + i, 1);
        DS_TRY(ds_map_put(&m->beginnings, hash, &(uint32_t){0}));
    }
    DS_TRY(ds_map_put(&m->words, ds_hash(DS_HASH_EMPTY, text.text, text.n), &word));
    DS_CHECK(word == m->n_words, DS_FORMAT,
             "language model, line %zu: expected each word once, got %s again", r->lines.number,
             DS_SHOWN_SPAN(text));
    m->n_words++;
    if (ds_span_is(text, "<unk>") || ds_span_is(text, "<UNK>"))
        m->unknown = word;
    else if (ds_span_is(text, "<s>"))
        m->begin = word;
    else if (ds_span_is(text, "</s>"))
        m->end = word;
    return add_gram(m, gram);
}

/* Reads "probability word ... [back-off]". */
static ds_status read_gram(reader *r, size_t order)
{
    ds_ngram *m = r->model;
    ds_span line = r->line, field, words[DS_MAX_ORDER];
    double probability = 0, backoff = 0;
    DS_CHECK(ds_lines_field(&line, &field) && ds_span_number(field, &probability) &&
                 probability <= 0,
             DS_FORMAT,
             "language model, line %zu: expected the base-10 logarithm of a probability, got %s",
             r->lines.number, DS_SHOWN_SPAN(field));
    for (size_t i = 0; i < order; i++)
        DS_CHECK(ds_lines_field(&line, &words[i]), DS_FORMAT,
                 "language model, line %zu: expected %zu words", r->lines.number, order);
    if (ds_lines_field(&line, &field))
        DS_CHECK(ds_span_number(field, &backoff) && fabs(backoff) <= (double)FLT_MAX &&
                     !ds_lines_field(&line, &field),
                 DS_FORMAT, "language model, line %zu: expected a back-off and nothing behind it",
                 r->lines.number);
    const ds_gram gram = {(float)fmax(probability, -(double)FLT_MAX), (float)backoff, 0};
    if (order == 1)
        return add_word(r, words[0], gram);
    uint32_t node = 0, word = DS_MAP_NONE;
    for (size_t i = 0; i < order; i++) {
        word = ds_map_get(&m->words, ds_hash(DS_HASH_EMPTY, words[i].text, words[i].n));
        DS_CHECK(word != DS_MAP_NONE, DS_FORMAT,
                 "language model, line %zu: expected words of the 1-grams, got %s", r->lines.number,
                 DS_SHOWN_SPAN(words[i]));
        if (i + 1 < order)
            node = i ? ds_map_get(&m->edges, ds_map_edge(node, word)) : word + 1;
        DS_CHECK(node != DS_MAP_NONE, DS_FORMAT,
                 "language model, line %zu: expected that its first %zu words are among the "
                 "%zu-grams",
                 r->lines.number, order - 1, order - 1);
    }
    return add_edge(r, node, word, gram);
}

static ds_status read_head(reader *r)
{
    do
        DS_TRY(next_line(r, "\\data\\"));
    while (!line_is(r, "\\data\\"));
    DS_TRY(next_line(r, "\"ngram 1=\""));
    do {
        DS_TRY(read_count(r));
        DS_TRY(next_line(r, "\\1-grams:"));
    } while (r->line.text[0] != '\\' && r->model->order < DS_MAX_ORDER);
    return DS_OK;
}

static ds_status read_section(reader *r, size_t order)
{
    char name[24];
    DS_CHECK(line_is(r, section(name, order)), DS_FORMAT,
             "language model, line %zu: expected %s, got %s", r->lines.number, name,
             DS_SHOWN_SPAN(r->line));
    if (order == r->model->order)
        r->model->full = (uint32_t)r->model->n;
    for (size_t i = 0; i < r->model->counts[order]; i++) {
        DS_TRY(next_line(r, "an n-gram"));
        DS_TRY(read_gram(r, order));
    }
    return next_line(r, "\\end\\");
}

/* Words that files may lack: `<unk>`, as improbable as KenLM makes it. */
static ds_status add_unknown(reader *r)
{
    if (r->model->unknown != DS_MAP_NONE)
        return DS_OK;
    return add_word(r, (ds_span){"<unk>", 5}, (ds_gram){-100, 0, 0});
}

ds_status ds_ngram_read(ds_ngram *model, const void *bytes, size_t n_bytes)
{
    reader r = {.model = model, .lines = ds_lines_of(bytes, n_bytes)};
    DS_TRY(add_gram(model, (ds_gram){0, 0, 0}));
    DS_TRY(read_head(&r));
    for (size_t order = 1; order <= model->order; order++) {
        DS_TRY(read_section(&r, order));
        if (order == 1)
            DS_TRY(add_unknown(&r));
    }
    DS_CHECK(line_is(&r, "\\end\\"), DS_FORMAT,
             "language model, line %zu: expected \\end\\, got %s", r.lines.number,
             DS_SHOWN_SPAN(r.line));
    if (model->order == 1)
        model->full = 1; /* no word is looked back on */
    return DS_OK;
}

ds_status ds_ngram_read_words(ds_ngram *model, const void *bytes, size_t n_bytes, size_t order,
                              ds_lm_score score, void *owner)
{
    reader r = {.model = model, .lines = ds_lines_of(bytes, n_bytes)};
    model->order = order;
    model->score = score;
    model->owner = owner;
    DS_TRY(add_gram(model, (ds_gram){0, 0, 0}));
    while (ds_lines_next(&r.lines, &r.line)) {
        ds_span line = r.line, word;
        if (ds_lines_field(&line, &word))
            DS_TRY(add_word(&r, word, (ds_gram){0, 0, 0}));
    }
    DS_CHECK(model->n_words > 0, DS_FORMAT, "language model: expected words, got none");
    return add_unknown(&r);
}
