/* The search of a transducer (Graves 2012), frame by frame of its encoder, for many streams together.
 *
 * Within a frame there are rounds. In each, what is open of the beam is scored by the joiner: a blank closes it until
 * the next frame, a token extends it, and the best extensions are open in the next round. After `max_symbols` rounds
 * what is open is closed without a blank (with one round this is the search that is known as modified beam search).
 * Prefixes that were closed on several ways count by the sum of these, or by the best. The best closed ones are the next
 * beam, in the order in which they arose.
 *
 * The networks see the rows of all streams at once, but the search of each follows from its own rows alone. */
#include <math.h>
#include <string.h>

#include "base/log_add.h"
#include "decode/work.h"

/* A prefix in a frame. */
typedef struct hypothesis {
    double score; /* logarithm, acoustics alone */
    ds_path path;
    int32_t prefix;
    int32_t record; /* its last token in `aligned`; -1: not yet there */
} hypothesis;

/* An extension of an open one. */
typedef struct extension {
    ds_sense sense;
    double score, total; /* `total` with what the tokens are worth */
    int32_t from, token;
    int32_t prefix; /* -1: new */
    float log_probability;
} extension;

/* A list of hypotheses. */
typedef struct list {
    hypothesis *items;
    size_t n, room_items;
} list;

/* One stream of the call. */
typedef struct row {
    const ds_allocator *allocator;
    ds_ctc_state *state;
    const float *frames;
    size_t n_frames;
    list open, closed;
} row;

struct ds_transducing {
    ds_allocator allocator;
    row *rows;
    size_t n_rows, room_rows;
    extension *extensions;
    size_t n, room_extensions;
    /* of the rows that the networks see together */
    float *encoded, *predicted, *scores;
    size_t room_encoded, room_predicted, room_scores;
    void **before, **after;
    float **said;
    int32_t *tokens;
    ds_prefix **asked;
    size_t room_before, room_after, room_said, room_tokens, room_asked;
};

#define EACH_ARRAY(DO) \
    DO(extensions)     \
    DO(encoded) DO(predicted) DO(scores) DO(before) DO(after) DO(said) DO(tokens) DO(asked)

ds_status ds_transducing_create(ds_transducing **t, const ds_allocator *allocator)
{
    DS_TRY(ds_allocate_zeroed(allocator, (void **)t, sizeof **t));
    (*t)->allocator = *allocator;
    return DS_OK;
}

static void free_rows(ds_transducing *t)
{
    for (size_t i = 0; i < t->room_rows; i++) {
        const list *lists[2] = {&t->rows[i].open, &t->rows[i].closed};
        for (int k = 0; k < 2; k++)
            ds_release(&t->allocator, lists[k]->items, lists[k]->room_items * sizeof(hypothesis));
    }
    ds_release(&t->allocator, t->rows, t->room_rows * sizeof *t->rows);
    t->rows = NULL;
    t->room_rows = 0;
}

void ds_transducing_destroy(ds_transducing *t, const ds_allocator *allocator)
{
    if (!t)
        return;
    free_rows(t);
#define RELEASE(items) ds_release(allocator, t->items, t->room_##items * sizeof *t->items);
    EACH_ARRAY(RELEASE)
#undef RELEASE
    ds_release(allocator, t, sizeof *t);
}

/* Room for n rows that the networks see. */
static ds_status make_room(ds_ctc_work *w, const ds_ctc *ctc, size_t n)
{
    ds_transducing *t = w->transducing;
#define ROOM(items, n_items) DS_TRY(DS_RESERVE(&w->allocator, t, items, 0, n_items))
    ROOM(encoded, n * ctc->scorer.n_encoded);
    ROOM(predicted, n * ctc->scorer.n_predicted);
    ROOM(scores, n * ctc->scorer.n_scores);
    ROOM(before, n);
    ROOM(after, n);
    ROOM(said, n);
    ROOM(tokens, n);
    ROOM(asked, n);
#undef ROOM
    return DS_OK;
}

static ds_status push(ds_transducing *t, list *to, const hypothesis *item)
{
    DS_TRY(DS_RESERVE(&t->allocator, to, items, to->n, to->n + 1));
    to->items[to->n++] = *item;
    return DS_OK;
}

/* ---------------------------------------------------------------- the networks */
/* Notes that a prefix's memory is needed, whose parent has one. */
static ds_status ask(ds_ctc_work *w, const ds_ctc *ctc, row *r, int32_t at, size_t *n)
{
    ds_transducing *t = w->transducing;
    ds_prefix *prefix = &r->state->prefixes[at];
    if (prefix->memory)
        return DS_OK;
    DS_TRY(ds_memory_create(&ctc->scorer, r->allocator, &prefix->memory));
    const bool is_start = prefix->token < 0;
    t->before[*n] = is_start ? NULL : r->state->prefixes[prefix->parent].memory->state;
    t->tokens[*n] = is_start ? ctc->options.blank : prefix->token;
    t->said[*n] = prefix->memory->predicted;
    t->asked[(*n)++] = prefix;
    return DS_OK;
}

/* Has the predictor see the last tokens of the first hypotheses of all lists whose memory isn't there. */
static ds_status predict(ds_ctc_work *w, const ds_ctc *ctc, bool closed)
{
    ds_transducing *t = w->transducing;
    size_t most = 0, n = 0;
    ds_status status = DS_OK;
    for (size_t i = 0; i < t->n_rows; i++)
        most += closed ? t->rows[i].closed.n : t->rows[i].open.n;
    DS_TRY(make_room(w, ctc, most));
    for (size_t i = 0; i < t->n_rows; i++) {
        row *r = &t->rows[i];
        const list *l = closed ? &r->closed : &r->open;
        for (size_t k = 0; status == DS_OK && k < l->n; k++)
            status = ask(w, ctc, r, l->items[k].prefix, &n);
    }
    if (status == DS_OK && n > 0)
        status = ctc->scorer.predict(ctc->scorer.owner, t->after, t->said, t->before, t->tokens, n);
    for (size_t i = 0; i < n; i++)
        if (status == DS_OK) {
            t->asked[i]->memory->state = t->after[i];
        } else { /* what is empty must not be taken for one */
            ds_memory_drop(&ctc->scorer, &t->allocator, t->asked[i]->memory);
            t->asked[i]->memory = NULL;
        }
    return status;
}

/* Log probabilities of scores, by the softmax. */
static void normalize(float *scores, size_t n)
{
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        top = (double)scores[i] > top ? (double)scores[i] : top;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)scores[i] - top);
    top += log(sum);
    for (size_t i = 0; i < n; i++)
        scores[i] = (float)((double)scores[i] - top);
}

/* Fills the log probabilities of all that is open; `n` of them. */
static ds_status join(ds_ctc_work *w, const ds_ctc *ctc, size_t frame, size_t *n)
{
    ds_transducing *t = w->transducing;
    const ds_scorer *scorer = &ctc->scorer;
    *n = 0;
    for (size_t i = 0; i < t->n_rows; i++)
        *n += t->rows[i].open.n;
    DS_TRY(make_room(w, ctc, *n));
    float *encoded = t->encoded, *predicted = t->predicted;
    for (size_t i = 0; i < t->n_rows; i++) {
        const row *r = &t->rows[i];
        for (size_t k = 0; k < r->open.n; k++) {
            const ds_prefix *prefix = &r->state->prefixes[r->open.items[k].prefix];
            memcpy(encoded, r->frames + frame * scorer->n_encoded,
                   scorer->n_encoded * sizeof *encoded);
            memcpy(predicted, prefix->memory->predicted, scorer->n_predicted * sizeof *predicted);
            encoded += scorer->n_encoded;
            predicted += scorer->n_predicted;
        }
    }
    if (*n > 0)
        DS_TRY(scorer->join(scorer->owner, t->scores, t->encoded, t->predicted, *n));
    for (size_t i = 0; i < *n; i++) {
        float *scores = t->scores + i * scorer->n_scores;
        for (size_t k = 0; k < scorer->n_scores; k++)
            DS_CHECK(isfinite(scores[k]), DS_INDEX,
                     "decoder: expected finite scores of the joiner, got %g for token %zu",
                     (double)scores[k], k);
        normalize(scores, scorer->n_scores);
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- one stream in a round */
/* Closes a hypothesis: what was closed already on another way becomes more. */
static ds_status close_one(ds_transducing *t, const ds_ctc *ctc, row *r, const hypothesis *h)
{
    ds_prefix *prefix = &r->state->prefixes[h->prefix];
    if (prefix->entry < 0) {
        prefix->entry = (int32_t)r->closed.n;
        return push(t, &r->closed, h);
    }
    hypothesis *same = &r->closed.items[prefix->entry];
    if (h->path.score > same->path.score) {
        same->path = h->path;
        same->record = h->record;
    }
    same->score = ctc->options.best_alignment ? fmax(same->score, h->score)
                                              : ds_log_add(same->score, h->score);
    return DS_OK;
}

static int32_t find_child(const ds_ctc_state *s, int32_t parent, int32_t token)
{
    int32_t at = s->prefixes[parent].child;
    while (at >= 0 && s->prefixes[at].token != token)
        at = s->prefixes[at].sibling;
    return at;
}

/* Adds the extensions of an open hypothesis by the tokens that were chosen. */
static ds_status extend(ds_ctc_work *w, const ds_ctc *ctc, const row *r, int32_t from,
                        const float *scores)
{
    ds_transducing *t = w->transducing;
    const ds_ctc_state *s = r->state;
    const hypothesis *h = &r->open.items[from];
    for (int32_t k = 0; k < w->n_chosen; k++) {
        const int32_t token = w->chosen[k], child = find_child(s, h->prefix, token);
        DS_TRY(DS_RESERVE(&t->allocator, t, extensions, t->n, t->n + 1));
        extension *e = &t->extensions[t->n++];
        e->sense = child >= 0 ? s->prefixes[child].sense
                              : ds_language_follow(&ctc->language, &s->prefixes[h->prefix].sense,
                                                   token, 0, DS_NO_WORD);
        DS_TRY(ds_ngram_check(e->sense.score));
        e->log_probability = scores[token];
        e->score = h->score + (double)scores[token];
        e->total = e->score + e->sense.score;
        e->from = from;
        e->token = token;
        e->prefix = child;
    }
    return DS_OK;
}

/* Writes down the last token of a hypothesis, for those that come behind it. */
static ds_status record(const row *r, hypothesis *h)
{
    ds_ctc_state *s = r->state;
    if (h->prefix == s->root || h->record >= 0)
        return DS_OK;
    return ds_ctc_add_sounded(r->allocator, s, &h->path, &h->record);
}

/* Makes a hypothesis of an extension, whose token comes now. */
static ds_status make(const row *r, const extension *e, int64_t now, hypothesis *made)
{
    ds_ctc_state *s = r->state;
    hypothesis *from = &r->open.items[e->from];
    const double score = (double)e->log_probability;
    DS_TRY(record(r, from));
    *made = (hypothesis){
        e->score,
        {from->path.score + score, ds_ctc_probability(score), now, now + 1, from->record},
        e->prefix,
        -1};
    if (e->prefix >= 0)
        return DS_OK;
    return ds_ctc_add_prefix(r->allocator, s, from->prefix, e->token, &e->sense, &made->prefix);
}

/* Opens the best extensions. */
static ds_status open_best(ds_ctc_work *w, const ds_ctc *ctc, row *r, int32_t symbols, double best)
{
    ds_transducing *t = w->transducing;
    size_t n = t->n;
    list opened = {0};
    const int64_t now = r->state->frame * ctc->options.max_symbols + symbols;
    ds_status status = DS_OK;
    DS_TRY(RESERVE(w, keys, n));
    DS_TRY(RESERVE(w, order, n));
    for (size_t i = 0; i < n; i++)
        w->keys[i] = t->extensions[i].total;
    DS_TRY(ds_ctc_select(w, ctc, &n, best));
    for (size_t i = 0; status == DS_OK && i < n; i++) {
        hypothesis h;
        status = make(r, &t->extensions[w->order[i]], now, &h);
        if (status == DS_OK)
            status = push(t, &opened, &h);
    }
    ds_release(&t->allocator, r->open.items, r->open.room_items * sizeof *r->open.items);
    r->open = opened;
    return status;
}

/* Closes what ends in a blank, and opens what goes on. */
static ds_status advance_row(ds_ctc_work *w, const ds_ctc *ctc, row *r, int32_t symbols,
                             const float *scores)
{
    ds_transducing *t = w->transducing;
    const ds_ctc_options *o = &ctc->options;
    double best = -INFINITY;
    t->n = 0;
    for (size_t i = 0; i < r->open.n; i++, scores += ctc->scorer.n_scores) {
        hypothesis h = r->open.items[i];
        const int32_t top = ds_ctc_best_token(scores, w->n_tokens);
        DS_TRY(ds_ctc_choose(w, ctc, scores));
        if (o->beam == 0) {
            w->n_chosen = top != o->blank;
            w->chosen[0] = top;
        }
        if (o->beam > 0 || top == o->blank) {
            h.score += (double)scores[o->blank];
            h.path.score += (double)scores[o->blank];
            DS_TRY(close_one(t, ctc, r, &h));
        }
        DS_TRY(extend(w, ctc, r, (int32_t)i, scores));
    }
    for (size_t i = 0; i < r->closed.n; i++)
        best = fmax(best, r->closed.items[i].score +
                              r->state->prefixes[r->closed.items[i].prefix].sense.score);
    return open_best(w, ctc, r, symbols, best);
}

/* ---------------------------------------------------------------- a frame */
static ds_status begin_frame(ds_transducing *t, row *r)
{
    ds_ctc_state *s = r->state;
    r->open.n = r->closed.n = 0;
    for (size_t i = 0; i < s->n_prefixes; i++)
        s->prefixes[i].entry = -1;
    for (size_t i = 0; i < s->n_entries; i++) {
        const ds_entry *entry = &s->entries[i];
        DS_TRY(
            push(t, &r->open, &(hypothesis){entry->both, entry->after_blank, entry->prefix, -1}));
    }
    return DS_OK;
}

/* Leaves the best of what is closed. */
static ds_status prune(ds_ctc_work *w, const ds_ctc *ctc, row *r)
{
    size_t n = r->closed.n;
    DS_TRY(RESERVE(w, keys, n));
    DS_TRY(RESERVE(w, order, n));
    for (size_t i = 0; i < n; i++) {
        const hypothesis *h = &r->closed.items[i];
        w->keys[i] = h->score + r->state->prefixes[h->prefix].sense.score;
        r->state->prefixes[h->prefix].entry = -1;
    }
    DS_TRY(ds_ctc_select(w, ctc, &n, -(double)INFINITY));
    for (size_t i = 0; i < n; i++)
        r->closed.items[i] = r->closed.items[w->order[i]]; /* whose order they keep */
    r->closed.n = n;
    return DS_OK;
}

static ds_status end_frame(ds_ctc_work *w, const ds_ctc *ctc, row *r)
{
    ds_ctc_state *s = r->state;
    const int64_t now = s->frame * ctc->options.max_symbols;
    const ds_path nowhere = {-INFINITY, 0, now, now, -1};
    DS_TRY(DS_RESERVE(r->allocator, s, entries, 0, r->closed.n));
    for (size_t i = 0; i < r->closed.n; i++) {
        const hypothesis *h = &r->closed.items[i];
        s->entries[i] = (ds_entry){h->score, -INFINITY, h->score, h->path, nowhere, h->prefix};
    }
    s->n_entries = r->closed.n;
    return ds_ctc_end_frame(w, ctc, r->allocator, s);
}

static ds_status advance_frame(ds_ctc_work *w, const ds_ctc *ctc, size_t frame)
{
    ds_transducing *t = w->transducing;
    size_t n;
    for (size_t i = 0; i < t->n_rows; i++)
        if (frame < t->rows[i].n_frames)
            DS_TRY(begin_frame(t, &t->rows[i]));
        else
            t->rows[i].open.n = t->rows[i].closed.n = 0;
    for (int32_t symbols = 0; symbols < ctc->options.max_symbols; symbols++) {
        DS_TRY(predict(w, ctc, false));
        DS_TRY(join(w, ctc, frame, &n));
        if (n == 0)
            break;
        const float *scores = t->scores;
        for (size_t i = 0; i < t->n_rows; i++) {
            const size_t n_open = t->rows[i].open.n;
            if (n_open > 0)
                DS_TRY(advance_row(w, ctc, &t->rows[i], symbols, scores));
            scores += n_open * ctc->scorer.n_scores;
        }
    }
    for (size_t i = 0; i < t->n_rows; i++) {
        for (size_t k = 0; k < t->rows[i].open.n; k++)
            DS_TRY(close_one(t, ctc, &t->rows[i], &t->rows[i].open.items[k]));
        if (frame < t->rows[i].n_frames)
            DS_TRY(prune(w, ctc, &t->rows[i]));
    }
    DS_TRY(predict(w, ctc, true)); /* while the parents' memories are there */
    for (size_t i = 0; i < t->n_rows; i++)
        if (frame < t->rows[i].n_frames)
            DS_TRY(end_frame(w, ctc, &t->rows[i]));
    return DS_OK;
}

/* Rows for n streams, which keep the room of their lists. */
static ds_status make_rows(ds_transducing *t, size_t n)
{
    if (t->room_rows < n) {
        free_rows(t);
        DS_TRY(ds_allocate_zeroed(&t->allocator, (void **)&t->rows, n * sizeof *t->rows));
        t->room_rows = n;
    }
    t->n_rows = n;
    return DS_OK;
}

ds_status ds_transducer_advance(ds_ctc_work *work, const ds_ctc *ctc, ds_ctc_stream *const *streams,
                                const ds_input *chunks, const uint32_t *flags, size_t n)
{
    ds_transducing *t = work->transducing;
    size_t most = 0;
    DS_TRY(make_rows(t, n));
    for (size_t i = 0; i < n; i++) {
        ds_ctc_stream *s = streams[i];
        row *r = &t->rows[i];
        r->allocator = &s->allocator;
        r->state = &s->next;
        r->frames = chunks[i].data;
        r->n_frames = chunks[i].n_frames;
        most = r->n_frames > most ? r->n_frames : most;
        DS_TRY(flags && (flags[i] & DS_START) ? ds_ctc_restart(ctc, &s->allocator, &s->next)
                                              : ds_ctc_copy(&s->allocator, &s->next, &s->now));
    }
    for (size_t frame = 0; frame < most; frame++)
        DS_TRY(advance_frame(work, ctc, frame));
    return DS_OK;
}
