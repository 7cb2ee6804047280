#include "decode/phrases.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_PHRASE = 256 }; /* tokens */

/* A state while the trie grows. */
typedef struct growing {
    uint32_t parent;
    int32_t token;
    double paid, ahead;
} growing;

typedef struct builder {
    ds_phrases *phrases;
    const ds_tokens *tokens;
    ds_arena *arena;
    growing *states;
    size_t room;
    bool mark;
    size_t line;
} builder;

static ds_status add_state(builder *b, uint32_t parent, int32_t token)
{
    DS_GROW(b->arena, b->states, b->phrases->n, b->room);
    b->states[b->phrases->n++] = (growing){parent, token, 0, 0};
    return DS_OK;
}

static ds_status add_phrase(builder *b, const int32_t *spelling, size_t n, double weight)
{
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t next = b->phrases->n;
        DS_TRY(ds_map_put(&b->phrases->edges, ds_map_edge(at, (uint32_t)spelling[i]), &next));
        if (next == b->phrases->n)
            DS_TRY(add_state(b, at, spelling[i]));
        at = next;
        if (i + 1 < n)
            b->states[at].ahead = fmax(b->states[at].ahead, weight * (double)(i + 1) / (double)n);
    }
    b->states[at].paid += weight;
    return DS_OK;
}

static ds_status add_token(const builder *b, int32_t *spelling, size_t *n, int32_t token)
{
    DS_CHECK(*n < MAX_PHRASE, DS_FORMAT, "hotwords, line %zu: expected at most %d tokens", b->line,
             MAX_PHRASE);
    spelling[(*n)++] = token;
    return DS_OK;
}

/* Spells a word by the longest tokens that fit, one after the other. */
static ds_status spell_word(const builder *b, ds_span word, int32_t *spelling, size_t *n)
{
    char text[512];
    const size_t n_mark = b->mark ? strlen(DS_MARK) : 0;
    DS_CHECK(word.n + n_mark <= sizeof text, DS_FORMAT,
             "hotwords, line %zu: expected shorter words", b->line);
    memcpy(text, DS_MARK, n_mark);
    memcpy(text + n_mark, word.text, word.n);
    for (size_t at = 0, end = n_mark + word.n; at < end;) {
        size_t length = end - at;
        int32_t token = -1;
        for (; length > 0; length--) {
            token = ds_tokens_find(b->tokens, (ds_span){text + at, length});
            if (token >= 0)
                break;
        }
        DS_CHECK(token >= 0, DS_FORMAT,
                 "hotwords, line %zu: expected words that the tokens spell, got %s", b->line,
                 DS_SHOWN_SPAN(word));
        DS_TRY(add_token(b, spelling, n, token));
        at += length;
    }
    return DS_OK;
}

static ds_status read_line(builder *b, ds_span line, double weight)
{
    const int32_t separator = b->phrases->separator;
    const bool are_tokens = line.n && line.text[0] == '\t';
    if (are_tokens)
        line = (ds_span){line.text + 1, line.n - 1};
    const char *tab = line.n ? memchr(line.text, '\t', line.n) : NULL;
    if (tab) {
        ds_span after = {tab + 1, line.n - (size_t)(tab + 1 - line.text)}, field, more;
        DS_CHECK(ds_lines_field(&after, &field) && ds_span_number(field, &weight) &&
                     isfinite(weight) && !ds_lines_field(&after, &more),
                 DS_FORMAT, "hotwords, line %zu: expected a tab and a number behind the phrase",
                 b->line);
        line.n = (size_t)(tab - line.text);
    }
    int32_t spelling[MAX_PHRASE + 1];
    size_t n = 0;
    ds_span field;
    if (separator >= 0)
        spelling[n++] = separator;
    for (size_t i = 0; ds_lines_field(&line, &field); i++) {
        const int32_t token = are_tokens ? ds_tokens_find(b->tokens, field) : -1;
        DS_CHECK(!are_tokens || token >= 0, DS_FORMAT,
                 "hotwords, line %zu: expected tokens, got %s", b->line, DS_SHOWN_SPAN(field));
        if (i && separator >= 0 && !are_tokens)
            DS_TRY(add_token(b, spelling, &n, separator));
        DS_TRY(are_tokens ? add_token(b, spelling, &n, token) : spell_word(b, field, spelling, &n));
    }
    DS_CHECK(n > (separator >= 0), DS_FORMAT, "hotwords, line %zu: expected a phrase", b->line);
    if (separator >= 0)
        DS_TRY(add_token(b, spelling, &n, separator));
    return add_phrase(b, spelling, n, weight);
}

/* The state behind `state` and a token, before what they are worth is known. */
static uint32_t follow(const ds_phrases *p, uint32_t state, int32_t token)
{
    for (;; state = p->fall[state]) {
        const uint32_t next = ds_map_get(&p->edges, ds_map_edge(state, (uint32_t)token));
        if (next != DS_MAP_NONE)
            return next;
        if (state == 0)
            return 0;
    }
}

/* States by their depth, so that those which they fall to are ready. */
static ds_status link(builder *b)
{
    ds_phrases *p = b->phrases;
    uint32_t *depth, *order, *first;
    DS_PUSH(b->arena, p->fall, p->n);
    DS_PUSH(b->arena, p->paid, p->n);
    DS_PUSH(b->arena, p->ahead, p->n);
    DS_PUSH(b->arena, depth, p->n);
    DS_PUSH(b->arena, order, p->n);
    DS_PUSH_ZEROED(b->arena, first, MAX_PHRASE + 3);
    for (uint32_t i = 0; i < p->n; i++) {
        depth[i] = i ? depth[b->states[i].parent] + 1 : 0;
        first[depth[i] + 1]++;
    }
    for (size_t i = 1; i < MAX_PHRASE + 3; i++)
        first[i] += first[i - 1];
    for (uint32_t i = 0; i < p->n; i++)
        order[first[depth[i]]++] = i;
    for (uint32_t k = 0; k < p->n; k++) {
        const uint32_t i = order[k];
        const growing *g = &b->states[i];
        p->fall[i] = depth[i] < 2 ? 0 : follow(p, p->fall[g->parent], g->token);
        p->paid[i] = g->paid + (i ? p->paid[p->fall[i]] : 0);
        p->ahead[i] = fmax(g->ahead, i ? p->ahead[p->fall[i]] : 0);
    }
    p->start = p->separator >= 0 ? follow(p, 0, p->separator) : 0;
    return DS_OK;
}

ds_status ds_phrases_read(ds_phrases *phrases, ds_arena *arena, const ds_tokens *tokens,
                          int32_t separator, bool mark, double weight, const void *bytes,
                          size_t n_bytes)
{
    builder b = {.phrases = phrases, .tokens = tokens, .arena = arena, .mark = mark};
    ds_lines lines = ds_lines_of(bytes, n_bytes);
    ds_span line;
    phrases->separator = separator;
    DS_TRY(add_state(&b, 0, -1));
    while (ds_lines_next(&lines, &line)) {
        ds_span rest = line, field;
        b.line = lines.number;
        if (ds_lines_field(&rest, &field))
            DS_TRY(read_line(&b, line, weight));
    }
    return link(&b);
}

void ds_phrases_free(ds_phrases *phrases)
{
    ds_map_free(&phrases->edges);
}

double ds_phrases_step(const ds_phrases *phrases, uint32_t *state, int32_t token)
{
    const uint32_t next = follow(phrases, *state, token);
    const double score = phrases->paid[next] + phrases->ahead[next] - phrases->ahead[*state];
    *state = next;
    return score;
}

double ds_phrases_end(const ds_phrases *phrases, uint32_t state)
{
    const double taken_back = -phrases->ahead[state];
    if (phrases->separator < 0)
        return taken_back;
    const uint32_t next = follow(phrases, state, phrases->separator);
    return taken_back + phrases->paid[next];
}
