/* A stream as bytes, little-endian, one field after the other:
 *
 *     "DSDECODE", version, the decoder's fingerprint
 *     frame, utterance, left, settled in the utterance, endpoints, settled score
 *     numbers of prefixes, entries, aligned tokens, settled tokens
 *     the root's sense; of each prefix: parent, token, word
 *     entries, aligned tokens, settled tokens
 *     of a transducer: of each entry the bytes of its predictor's memory (none: at the beginning), and what that says
 *     a checksum of all that (FNV-1a)
 *
 * What prefixes are worth is worked out again from their tokens. One function goes through the fields for both
 * directions; checks hold whatever they say. */
#include <math.h>
#include <string.h>

#include "decode/ctc.h"

enum { VERSION = 1 };
static const char magic[8] = {'D', 'S', 'D', 'E', 'C', 'O', 'D', 'E'};

/* Where the next field is; a reader that lacks bytes is `short_of`, and gets zeros. */
typedef struct cursor {
    unsigned char *out;      /* NULL: nothing is written */
    const unsigned char *in; /* NULL: nothing is read */
    size_t at, n;
    bool short_of;
} cursor;

static void field(cursor *c, void *value, size_t n_bytes)
{
    unsigned char bytes[8] = {0};
    uint64_t number = 0;
    if (c->in) {
        c->short_of |= c->n - c->at < n_bytes;
        if (!c->short_of)
            memcpy(bytes, c->in + c->at, n_bytes);
        for (size_t i = 0; i < n_bytes; i++)
            number |= (uint64_t)bytes[i] << 8 * i;
        if (n_bytes == 4)
            memcpy(value, &(uint32_t){(uint32_t)number}, 4);
        else
            memcpy(value, &number, 8);
    } else {
        uint32_t half;
        memcpy(n_bytes == 4 ? (void *)&half : (void *)&number, value, n_bytes);
        if (n_bytes == 4)
            number = half;
        for (size_t i = 0; i < n_bytes; i++)
            bytes[i] = (unsigned char)(number >> 8 * i);
        if (c->out)
            memcpy(c->out + c->at, bytes, n_bytes);
    }
    if (!c->short_of)
        c->at += n_bytes;
}
#define FIELD(c, value) field((c), &(value), sizeof(value))

static void path_fields(cursor *c, ds_path *path)
{
    FIELD(c, path->score);
    FIELD(c, path->probability);
    FIELD(c, path->start);
    FIELD(c, path->end);
    FIELD(c, path->before);
}

static void head_fields(cursor *c, ds_ctc_state *s, uint32_t counts[4])
{
    FIELD(c, s->frame);
    FIELD(c, s->utterance);
    FIELD(c, s->n_left);
    FIELD(c, s->n_utterance);
    FIELD(c, s->n_endpoints);
    FIELD(c, s->settled_score);
    for (int i = 0; i < 4; i++)
        FIELD(c, counts[i]);
}

static void sense_fields(cursor *c, ds_sense *sense, size_t n_history)
{
    FIELD(c, sense->score);
    FIELD(c, sense->hash);
    FIELD(c, sense->trie);
    for (size_t i = 0; i < n_history; i++)
        FIELD(c, sense->model.at[i]);
    FIELD(c, sense->phrase);
    FIELD(c, sense->word);
}

/* All behind the numbers. */
static void body_fields(cursor *c, ds_ctc_state *s, const ds_ctc *ctc)
{
    sense_fields(c, &s->prefixes[0].sense, ctc->language.model.score ? DS_MAX_SCORED_ORDER - 1 : 1);
    for (size_t i = 0; i < s->n_prefixes; i++) {
        FIELD(c, s->prefixes[i].parent);
        FIELD(c, s->prefixes[i].token);
        if (i > 0)
            FIELD(c, s->prefixes[i].sense.word);
    }
    for (size_t i = 0; i < s->n_entries; i++) {
        FIELD(c, s->entries[i].blank);
        FIELD(c, s->entries[i].token);
        FIELD(c, s->entries[i].both);
        FIELD(c, s->entries[i].prefix);
        path_fields(c, &s->entries[i].after_blank);
        path_fields(c, &s->entries[i].after_token);
    }
    for (size_t i = 0; i < s->n_aligned; i++) {
        FIELD(c, s->aligned[i].before);
        FIELD(c, s->aligned[i].probability);
        FIELD(c, s->aligned[i].start);
        FIELD(c, s->aligned[i].end);
    }
    for (size_t i = 0; i < s->n_past; i++) {
        FIELD(c, s->past[i].token);
        FIELD(c, s->past[i].word);
        FIELD(c, s->past[i].confidence);
        FIELD(c, s->past[i].start);
        FIELD(c, s->past[i].end);
    }
}

/* ---------------------------------------------------------------- a transducer's memories */
static void predicted_fields(cursor *c, const ds_scorer *scorer, ds_memory *memory)
{
    for (size_t i = 0; i < scorer->n_predicted; i++)
        FIELD(c, memory->predicted[i]);
}

static ds_status write_memory(cursor *c, const ds_scorer *scorer, ds_memory *memory)
{
    uint64_t n_bytes = 0;
    size_t n = 0;
    if (memory)
        DS_TRY(scorer->save(scorer->owner, memory->state, NULL, &n));
    n_bytes = n;
    FIELD(c, n_bytes);
    if (!memory)
        return DS_OK;
    if (c->out)
        DS_TRY(scorer->save(scorer->owner, memory->state, c->out + c->at, &n));
    c->at += n;
    predicted_fields(c, scorer, memory);
    return DS_OK;
}

ds_status ds_ctc_snapshot(const ds_ctc *ctc, const ds_ctc_stream *stream, void *bytes,
                          size_t *n_bytes)
{
    ds_ctc_state s = stream->now; /* its arrays are read only */
    cursor c = {.out = bytes};
    uint32_t version = VERSION, counts[4] = {(uint32_t)s.n_prefixes, (uint32_t)s.n_entries,
                                             (uint32_t)s.n_aligned, (uint32_t)s.n_past};
    uint64_t fingerprint = ctc->fingerprint;
    if (bytes)
        memcpy(bytes, magic, sizeof magic);
    c.at = sizeof magic;
    FIELD(&c, version);
    FIELD(&c, fingerprint);
    head_fields(&c, &s, counts);
    body_fields(&c, &s, ctc);
    for (size_t i = 0; ctc->scorer.owner && i < s.n_entries; i++)
        DS_TRY(write_memory(&c, &ctc->scorer, s.prefixes[s.entries[i].prefix].memory));
    uint64_t sum = bytes ? ds_hash(DS_HASH_EMPTY, bytes, c.at) : 0;
    FIELD(&c, sum);
    *n_bytes = c.at;
    return DS_OK;
}

/* ---------------------------------------------------------------- distrust */
#define TRUSTED(condition)                                                                 \
    DS_CHECK(condition, DS_FORMAT, "decoder snapshot: expected what a decoder wrote (%s)", \
             #condition)

static ds_status check_word(const ds_ctc *ctc, int32_t word)
{
    const size_t n = ctc->language.lexicon.n_words;
    TRUSTED(word >= DS_NO_WORD && (word == DS_NO_WORD || (n > 0 && (size_t)word <= n)));
    return DS_OK;
}

static ds_status check_sense(const ds_ctc *ctc, const ds_sense *sense)
{
    const ds_language *l = &ctc->language;
    TRUSTED(isfinite(sense->score));
    TRUSTED(l->lexicon.n_words ? sense->trie < l->lexicon.n_nodes : sense->trie == 0);
    TRUSTED(ds_ngram_has(&l->model, &sense->model));
    TRUSTED(l->phrases.n ? sense->phrase < l->phrases.n : sense->phrase == 0);
    return check_word(ctc, sense->word);
}

/* Where a token leads in the trie, and whether a word may end there. */
static ds_status find_node(const ds_ctc *ctc, uint32_t from, int32_t token, int32_t word,
                           uint32_t *node)
{
    const ds_lexicon *l = &ctc->language.lexicon;
    *node = 0;
    if (l->n_words == 0)
        return check_word(ctc, word);
    for (uint32_t b = l->first_branch[from]; b < l->first_branch[from + 1]; b++)
        if (l->branches[b].token == token)
            *node = l->branches[b].node;
    const bool is_between = from == 0 && token == ctc->language.separator;
    TRUSTED(*node > 0 || (is_between && word == DS_NO_WORD));
    const uint32_t first = l->first_label[*node], end = l->first_label[*node + 1];
    bool is_label =
        word == DS_NO_WORD || ((size_t)word == l->n_words && first == end && ctc->language.unknown);
    for (uint32_t k = first; k < end; k++)
        is_label |= l->labels[k] == (uint32_t)word;
    TRUSTED(is_label);
    return DS_OK;
}

/* Works out what follows from the tokens. */
static ds_status check_prefixes(const ds_ctc *ctc, ds_ctc_state *s)
{
    for (size_t i = 0; i < s->n_prefixes; i++) {
        ds_prefix *p = &s->prefixes[i];
        const int32_t parent = p->parent, token = p->token, word = p->sense.word;
        TRUSTED(i ? parent >= 0 && (size_t)parent < i : parent == -1);
        TRUSTED(token >= (i ? 0 : -1) && token < ctc->language.tokens.n &&
                token != ctc->options.blank);
        if (i == 0) {
            DS_TRY(check_sense(ctc, &p->sense));
            p->sibling = -1;
            p->depth = 0;
        } else {
            ds_prefix *before = &s->prefixes[parent];
            for (int32_t at = before->child; at >= 0; at = s->prefixes[at].sibling)
                TRUSTED(s->prefixes[at].token != token || s->prefixes[at].sense.word != word);
            uint32_t node;
            DS_TRY(find_node(ctc, before->sense.trie, token, word, &node));
            p->sense = ds_language_follow(&ctc->language, &before->sense, token, node, word);
            DS_TRY(ds_ngram_check(p->sense.score));
            p->depth = before->depth + 1;
            TRUSTED(p->depth <= ctc->options.max_pending);
            p->sibling = before->child;
            before->child = (int32_t)i;
        }
        p->entry = -1;
    }
    return DS_OK;
}

static ds_status check_times(const ds_ctc *ctc, const ds_ctc_state *s, int64_t start, int64_t end,
                             bool may_be_none)
{
    TRUSTED(start >= 0 && end <= s->frame * ctc->options.max_symbols &&
            (start < end || (may_be_none && start == end)));
    return DS_OK;
}

static ds_status check_path(const ds_ctc *ctc, const ds_ctc_state *s, const ds_path *path,
                            int32_t depth)
{
    const bool is_none = isinf(path->score);
    TRUSTED(path->score < (double)INFINITY);
    TRUSTED(isfinite(path->probability) && path->probability >= 0);
    TRUSTED(path->before >= -1 && path->before < (int64_t)s->n_aligned);
    int32_t n = 0;
    for (int32_t at = path->before; at >= 0; at = s->aligned[at].before)
        n++;
    TRUSTED(n == (is_none || depth < 2 ? 0 : depth - 1));
    return check_times(ctc, s, path->start, path->end, is_none || depth == 0);
}

static ds_status check_entries(const ds_ctc *ctc, ds_ctc_state *s)
{
    for (size_t i = 0; i < s->n_entries; i++) {
        const ds_entry *e = &s->entries[i];
        TRUSTED(e->prefix >= 0 && (size_t)e->prefix < s->n_prefixes);
        ds_prefix *prefix = &s->prefixes[e->prefix];
        TRUSTED(prefix->entry < 0);
        prefix->entry = (int32_t)i;
        TRUSTED(e->blank < (double)INFINITY && e->token < (double)INFINITY);
        TRUSTED(isfinite(e->both) && e->both >= e->blank && e->both >= e->token);
        TRUSTED(isinf(e->blank) == isinf(e->after_blank.score));
        TRUSTED(isinf(e->token) == isinf(e->after_token.score));
        DS_TRY(check_path(ctc, s, &e->after_blank, prefix->depth));
        DS_TRY(check_path(ctc, s, &e->after_token, prefix->depth));
    }
    TRUSTED(s->n_entries > 0 &&
            s->n_entries <= (ctc->options.beam > 0 ? (size_t)ctc->options.beam : 1));
    return DS_OK;
}

static ds_status check_tokens(const ds_ctc *ctc, const ds_ctc_state *s)
{
    for (size_t i = 0; i < s->n_aligned; i++) {
        const ds_sounded *a = &s->aligned[i];
        TRUSTED(a->before >= -1 && a->before < (int64_t)i);
        TRUSTED(isfinite(a->probability) && a->probability >= 0);
        DS_TRY(check_times(ctc, s, a->start, a->end, false));
    }
    for (size_t i = 0; i < s->n_past; i++) {
        const ds_decoded_token *t = &s->past[i];
        TRUSTED(t->token >= -1 && t->token < ctc->language.tokens.n);
        TRUSTED(t->confidence >= 0 && t->confidence < INFINITY);
        DS_TRY(check_word(ctc, t->word));
        DS_TRY(check_times(ctc, s, t->start, t->end, t->token < 0));
    }
    return DS_OK;
}

/* Reads the memory of an entry that was checked. */
static ds_status read_memory(cursor *c, const ds_scorer *scorer, const ds_allocator *allocator,
                             ds_prefix *prefix)
{
    uint64_t n_bytes = 0;
    FIELD(c, n_bytes);
    TRUSTED(!c->short_of && n_bytes <= c->n - c->at);
    TRUSTED(n_bytes > 0 || prefix->token < 0);
    if (n_bytes == 0)
        return DS_OK;
    TRUSTED((c->n - c->at - n_bytes) / sizeof(float) >= scorer->n_predicted);
    DS_TRY(ds_memory_create(scorer, allocator, &prefix->memory));
    DS_TRY(scorer->load(scorer->owner, &prefix->memory->state, c->in + c->at, (size_t)n_bytes));
    c->at += (size_t)n_bytes;
    predicted_fields(c, scorer, prefix->memory);
    for (size_t i = 0; i < scorer->n_predicted; i++)
        TRUSTED(isfinite(prefix->memory->predicted[i]));
    return DS_OK;
}

static ds_status check_head(const ds_ctc *ctc, const ds_ctc_state *s, const uint32_t counts[4],
                            size_t n_left)
{
    TRUSTED(s->frame < INT64_MAX >> 12);
    TRUSTED(s->frame >= 0 && s->utterance >= 0 && s->utterance <= s->frame);
    const int64_t most = s->frame * ctc->options.max_symbols; /* tokens */
    TRUSTED(s->n_left >= 0 && s->n_left <= most);
    TRUSTED(s->n_utterance >= 0 && s->n_utterance <= most);
    TRUSTED(s->n_endpoints >= 0 && s->n_endpoints <= s->frame);
    TRUSTED(isfinite(s->settled_score));
    /* of each, more bytes must be there; so no room is made for what there isn't */
    TRUSTED(counts[0] > 0 && counts[0] <= n_left / 8 && counts[1] > 0 && counts[1] <= n_left / 100);
    TRUSTED(counts[2] <= n_left / 28 && counts[3] <= n_left / 28);
    TRUSTED(counts[3] <= (uint64_t)ctc->options.max_past * 2 + 2);
    return DS_OK;
}

static ds_status make_room(const ds_allocator *allocator, ds_ctc_state *s, const uint32_t counts[4])
{
#define ROOM(items, count)                                                                         \
    DS_TRY(ds_allocate_zeroed(allocator, (void **)&s->items, (size_t)(count) * sizeof *s->items)); \
    s->n_##items = s->room_##items = (count)
    ROOM(prefixes, counts[0]);
    ROOM(entries, counts[1]);
    ROOM(aligned, counts[2]);
    ROOM(past, counts[3]);
#undef ROOM
    return DS_OK;
}

/* Fills an empty state. */
static ds_status read_state(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *s,
                            const void *bytes, size_t n_bytes)
{
    cursor c = {.in = bytes, .n = n_bytes};
    uint32_t version = 0, counts[4];
    uint64_t fingerprint, sum;
    DS_CHECK(
        n_bytes >= sizeof magic + sizeof sum && memcmp(bytes, magic, sizeof magic) == 0, DS_FORMAT,
        "decoder snapshot: expected one, which begins with DSDECODE, got %zu other bytes", n_bytes);
    c.at = sizeof magic;
    FIELD(&c, version);
    DS_CHECK(version == VERSION, DS_FORMAT,
             "decoder snapshot: expected version %d of the format, got %u", VERSION, version);
    FIELD(&c, fingerprint);
    DS_CHECK(fingerprint == ctc->fingerprint, DS_FORMAT,
             "decoder snapshot: expected one of a decoder with the same tokens, files and options");
    c.n = n_bytes - sizeof sum;
    cursor end = {.in = bytes, .at = c.n, .n = n_bytes};
    FIELD(&end, sum);
    DS_CHECK(sum == ds_hash(DS_HASH_EMPTY, bytes, c.n), DS_FORMAT,
             "decoder snapshot: expected the bytes that were written (the checksum is another)");
    head_fields(&c, s, counts);
    TRUSTED(!c.short_of);
    DS_TRY(check_head(ctc, s, counts, c.n - c.at));
    DS_TRY(make_room(allocator, s, counts));
    body_fields(&c, s, ctc);
    TRUSTED(!c.short_of && (c.at == c.n || ctc->scorer.owner));
    for (size_t i = 0; i < s->n_prefixes; i++)
        s->prefixes[i].child = -1;
    for (size_t i = 0; i < s->n_past; i++)
        s->past[i].is_final = 1;
    DS_TRY(check_prefixes(ctc, s));
    DS_TRY(check_tokens(ctc, s));
    DS_TRY(check_entries(ctc, s));
    s->scorer = ctc->scorer.owner ? &ctc->scorer : NULL;
    for (size_t i = 0; s->scorer && i < s->n_entries; i++)
        DS_TRY(read_memory(&c, s->scorer, allocator, &s->prefixes[s->entries[i].prefix]));
    TRUSTED(c.at == c.n);
    return DS_OK;
}

ds_status ds_ctc_restore(const ds_ctc *ctc, ds_ctc_stream *stream, const void *bytes,
                         size_t n_bytes)
{
    ds_ctc_state state = {0};
    DS_TRY_ELSE(read_state(ctc, &stream->allocator, &state, bytes, n_bytes),
                ds_ctc_free(&stream->allocator, &state));
    ds_ctc_free(&stream->allocator, &stream->now);
    stream->now = state;
    stream->begun = state.frame > 0;
    stream->ended = false;
    return DS_OK;
}
