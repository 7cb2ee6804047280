/* The search, frame by frame.
 *
 * Of every frame the tokens are chosen that prefixes may go on with. Each entry of the beam stays what it is, by a
 * blank or by its last token again, and is extended by each of them; an extension that is in the beam already adds to
 * that entry. The best candidates are the next beam, in the order in which they arose. */
#include "decode/ctc.h"

#include <math.h>
#include <string.h>

#include "base/log_add.h"
#include "decode/select.h"
#include "decode/work.h"

static const double NEVER = -(double)INFINITY; /* the logarithm of a probability of 0 */

static ds_status fill_work(ds_ctc_work *w, const ds_ctc *ctc)
{
    const size_t n = (size_t)w->n_tokens;
    DS_TRY(ds_allocate(&w->allocator, (void **)&w->chosen, n * sizeof *w->chosen));
    DS_TRY(ds_allocate_zeroed(&w->allocator, (void **)&w->is_chosen, n * sizeof *w->is_chosen));
    DS_TRY(ds_allocate(&w->allocator, (void **)&w->child_of, n * sizeof *w->child_of));
    memset(w->child_of, 0xFF, n * sizeof *w->child_of);
    return ctc->scorer.owner ? ds_transducing_create(&w->transducing, &w->allocator) : DS_OK;
}

ds_status ds_ctc_work_create(ds_ctc_work **work, const ds_ctc *ctc, const ds_allocator *allocator)
{
    DS_TRY(ds_allocate_zeroed(allocator, (void **)work, sizeof **work));
    (*work)->allocator = *allocator;
    (*work)->n_tokens = ctc->language.tokens.n;
    DS_TRY_ELSE(fill_work(*work, ctc), ds_ctc_work_destroy(*work));
    return DS_OK;
}

void ds_ctc_work_destroy(ds_ctc_work *work)
{
    if (!work)
        return;
    const ds_allocator allocator = work->allocator;
    const size_t n = (size_t)work->n_tokens;
    ds_release(&allocator, work->candidates, work->room_candidates * sizeof *work->candidates);
    ds_release(&allocator, work->keys, work->room_keys * sizeof *work->keys);
    ds_release(&allocator, work->order, work->room_order * sizeof *work->order);
    ds_release(&allocator, work->map, work->room_map * sizeof *work->map);
    ds_release(&allocator, work->entries, work->room_entries * sizeof *work->entries);
    ds_release(&allocator, work->records, work->room_records * sizeof *work->records);
    ds_transducing_destroy(work->transducing, &allocator);
    ds_release(&allocator, work->chosen, n * sizeof *work->chosen);
    ds_release(&allocator, work->is_chosen, n * sizeof *work->is_chosen);
    ds_release(&allocator, work->child_of, n * sizeof *work->child_of);
    ds_release(&allocator, work, sizeof *work);
}

ds_status ds_ctc_check(const ds_ctc *ctc, const float *scores, size_t n_frames)
{
    const size_t n = ds_ctc_width(ctc);
    for (size_t t = 0; t < n_frames; t++, scores += n) {
        bool any = ctc->scorer.owner != NULL;
        for (size_t i = 0; i < n; i++) {
            DS_CHECK(scores[i] < INFINITY, DS_INDEX,
                     "decoder: expected scores below infinity, got %g in frame %zu of the chunk, "
                     "token %zu",
                     (double)scores[i], t, i);
            DS_CHECK(!ctc->scorer.owner || scores[i] > -INFINITY, DS_INDEX,
                     "decoder: expected finite frames of the encoder, got %g in frame %zu of the "
                     "chunk, number %zu",
                     (double)scores[i], t, i);
            any |= scores[i] > -INFINITY;
        }
        DS_CHECK(any, DS_INDEX,
                 "decoder: expected a score above minus infinity in every frame, got none in frame "
                 "%zu of the chunk",
                 t);
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- sums and alignments */
static double join(const ds_ctc *ctc, double a, double b)
{
    return ctc->options.best_alignment ? fmax(a, b) : ds_log_add(a, b);
}

double ds_ctc_probability(double score)
{
    return exp(fmin(score, 0));
}

/* The last token for one more frame. */
static ds_path longer_path(const ds_path *from, double score, int64_t frame)
{
    ds_path path = *from;
    path.score += score;
    path.probability += ds_ctc_probability(score);
    path.end = frame + 1;
    return path;
}

/* What an extension of an entry follows: its alignment after a blank, or the better one. */
static const ds_path *followed_path(const ds_entry *entry, bool after_blank)
{
    return after_blank ? &entry->after_blank : ds_ctc_path(entry);
}

/* A new token behind an entry's alignment, whose own last token is over. */
static ds_status next_path(ds_ctc_work *w, const ds_allocator *allocator, ds_ctc_state *s,
                           int32_t from, bool after_blank, double score, ds_path *path)
{
    const ds_entry *entry = &s->entries[from];
    const ds_path *before = followed_path(entry, after_blank);
    *path = (ds_path){before->score + score, ds_ctc_probability(score), s->frame, s->frame + 1, -1};
    if (entry->prefix == s->root)
        return DS_OK;
    int32_t *record = &w->records[2 * from + (before == &entry->after_token)];
    if (*record < 0)
        DS_TRY(ds_ctc_add_sounded(allocator, s, before, record));
    path->before = *record;
    return DS_OK;
}

/* ---------------------------------------------------------------- tokens of a frame */
int32_t ds_ctc_best_token(const float *scores, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (scores[i] > scores[best])
            best = i;
    return best;
}

ds_status ds_ctc_choose(ds_ctc_work *w, const ds_ctc *ctc, const float *scores)
{
    const ds_ctc_options *o = &ctc->options;
    int32_t n = 0, best = -1;
    if ((double)scores[o->blank] > o->blank_threshold) {
        w->n_chosen = 0;
        return DS_OK;
    }
    for (int32_t i = 0; i < w->n_tokens; i++) {
        if (i == o->blank || isinf(scores[i]))
            continue;
        if (best < 0 || scores[i] > scores[best])
            best = i;
        if ((double)scores[i] >= o->token_threshold)
            w->chosen[n++] = i;
    }
    if (n == 0 && best >= 0)
        w->chosen[n++] = best;
    if (o->beam_tokens > 0 && n > o->beam_tokens) {
        DS_TRY(RESERVE(w, keys, (size_t)w->n_tokens));
        for (int32_t i = 0; i < n; i++)
            w->keys[w->chosen[i]] = (double)scores[w->chosen[i]];
        ds_select_best(w->keys, w->chosen, (size_t)n, (size_t)o->beam_tokens);
        n = o->beam_tokens;
    }
    w->n_chosen = n;
    return DS_OK;
}

/* ---------------------------------------------------------------- candidates */
static ds_status stay(ds_ctc_work *w, const ds_ctc *ctc, const ds_ctc_state *s, const float *scores)
{
    const double blank = (double)scores[ctc->options.blank];
    double best = -INFINITY;
    w->n = 0;
    DS_TRY(RESERVE(w, candidates, s->n_entries));
    for (size_t i = 0; i < s->n_entries; i++) {
        const ds_entry *entry = &s->entries[i];
        const ds_prefix *prefix = &s->prefixes[entry->prefix];
        candidate *c = &w->candidates[w->n++];
        c->from = (int32_t)i;
        c->joined = -1;
        c->prefix = entry->prefix;
        c->last = prefix->token;
        c->stays = true;
        c->sense = prefix->sense;
        c->blank = entry->both + blank;
        c->token = prefix->token < 0 ? NEVER : entry->token + (double)scores[prefix->token];
        best = fmax(best, fmax(c->blank, c->token) + c->sense.score);
    }
    w->threshold = best - ctc->options.beam_threshold;
    return DS_OK;
}

ds_status ds_ctc_select(ds_ctc_work *w, const ds_ctc *ctc, size_t *n, double best)
{
    const size_t beam = ctc->options.beam > 0 ? (size_t)ctc->options.beam : 1;
    size_t n_left = 0;
    for (size_t i = 0; i < *n; i++)
        best = fmax(best, w->keys[i]);
    for (size_t i = 0; i < *n; i++)
        if (w->keys[i] >= best - ctc->options.beam_threshold && !isinf(w->keys[i]))
            w->order[n_left++] = (int32_t)i;
    if (n_left > beam) {
        DS_TRY(RESERVE(w, map, *n));
        ds_select_best(w->keys, w->order, n_left, beam);
        memset(w->map, 0, *n * sizeof *w->map);
        for (size_t i = 0; i < beam; i++)
            w->map[w->order[i]] = 1;
        n_left = 0;
        for (size_t i = 0; i < *n; i++)
            if (w->map[i])
                w->order[n_left++] = (int32_t)i;
    }
    *n = n_left;
    return DS_OK;
}

/* Keeps the best extensions where there are very many: what is no longer among them can't be in the beam. */
static ds_status thin_out(ds_ctc_work *w, const ds_ctc *ctc, size_t n_stay)
{
    size_t n = w->n - n_stay;
    DS_TRY(RESERVE(w, keys, n));
    DS_TRY(RESERVE(w, order, n));
    for (size_t i = 0; i < n; i++)
        w->keys[i] = w->candidates[n_stay + i].total;
    DS_TRY(ds_ctc_select(w, ctc, &n, NEVER));
    for (size_t i = 0; i < n; i++)
        w->candidates[n_stay + i] = w->candidates[n_stay + (size_t)w->order[i]];
    w->n = n_stay + n;
    return DS_OK;
}

/* The child of a prefix by its token and word; -1: there is none. */
static int32_t find_child(const ds_ctc_work *w, const ds_ctc_state *s, int32_t token, int32_t word)
{
    int32_t at = w->child_of[token];
    while (at >= 0 && (s->prefixes[at].token != token || s->prefixes[at].sense.word != word))
        at = s->prefixes[at].sibling;
    return at;
}

/* Extends entry i by a token: a new candidate, or more of one that stays. */
static ds_status extend(ds_ctc_work *w, const ds_ctc *ctc, ds_ctc_state *s, size_t i, int32_t token,
                        uint32_t node, int32_t word, double score)
{
    const ds_entry *entry = &s->entries[i];
    const ds_prefix *prefix = &s->prefixes[entry->prefix];
    const double acoustic = (token == prefix->token ? entry->blank : entry->both) + score;
    if (isinf(acoustic))
        return DS_OK;
    const int32_t child = find_child(w, s, token, word);
    if (child >= 0 && s->prefixes[child].entry >= 0) {
        candidate *c = &w->candidates[s->prefixes[child].entry];
        c->token = join(ctc, c->token, acoustic);
        c->joined = (int32_t)i;
        return DS_OK;
    }
    const ds_sense sense =
        child >= 0 ? s->prefixes[child].sense
                   : ds_language_follow(&ctc->language, &prefix->sense, token, node, word);
    DS_TRY(ds_ngram_check(sense.score));
    const double total = acoustic + sense.score;
    if (!(total >= w->threshold) || isinf(total))
        return DS_OK;
    if (w->n >= w->room_candidates) {
        if (w->room_candidates < s->n_entries + 8 * (size_t)ctc->options.beam + 1024)
            DS_TRY(DS_RESERVE(&w->allocator, w, candidates, w->n, w->n + 1));
        else
            DS_TRY(thin_out(w, ctc, s->n_entries));
    }
    w->candidates[w->n++] = (candidate){.sense = sense,
                                        .blank = -INFINITY,
                                        .token = acoustic,
                                        .both = acoustic,
                                        .total = total,
                                        .from = (int32_t)i,
                                        .joined = -1,
                                        .prefix = child,
                                        .last = token};
    return DS_OK;
}

/* Extends entry i within the lexicon: on in the trie, to each word that ends there, or to an unknown one. */
static ds_status extend_by_trie(ds_ctc_work *w, const ds_ctc *ctc, ds_ctc_state *s, size_t i,
                                const float *scores)
{
    const ds_language *language = &ctc->language;
    const ds_lexicon *l = &language->lexicon;
    const uint32_t node = s->prefixes[s->entries[i].prefix].sense.trie;
    bool separated = false;
    for (uint32_t b = l->first_branch[node]; b < l->first_branch[node + 1]; b++) {
        const ds_branch branch = l->branches[b];
        const double score = (double)scores[branch.token];
        if (!w->is_chosen[branch.token])
            continue;
        separated |= branch.token == language->separator;
        if (l->first_branch[branch.node] < l->first_branch[branch.node + 1])
            DS_TRY(extend(w, ctc, s, i, branch.token, branch.node, DS_NO_WORD, score));
        const uint32_t first = l->first_label[branch.node], end = l->first_label[branch.node + 1];
        for (uint32_t k = first; k < end; k++)
            DS_TRY(extend(w, ctc, s, i, branch.token, branch.node, (int32_t)l->labels[k], score));
        if (first == end && language->unknown)
            DS_TRY(extend(w, ctc, s, i, branch.token, branch.node, (int32_t)l->n_words, score));
    }
    const int32_t separator = language->separator; /* between words there may be more of them */
    if (node == 0 && separator >= 0 && !separated && w->is_chosen[separator])
        DS_TRY(extend(w, ctc, s, i, separator, 0, DS_NO_WORD, (double)scores[separator]));
    return DS_OK;
}

static ds_status extend_all(ds_ctc_work *w, const ds_ctc *ctc, ds_ctc_state *s, const float *scores)
{
    ds_status status = DS_OK;
    for (int32_t k = 0; k < w->n_chosen; k++)
        w->is_chosen[w->chosen[k]] = true;
    for (size_t i = 0; status == DS_OK && w->n_chosen && i < s->n_entries; i++) {
        const int32_t first = s->prefixes[s->entries[i].prefix].child;
        for (int32_t at = first; at >= 0; at = s->prefixes[at].sibling)
            if (w->child_of[s->prefixes[at].token] < 0)
                w->child_of[s->prefixes[at].token] = at;
        if (ctc->language.lexicon.n_words)
            status = extend_by_trie(w, ctc, s, i, scores);
        else
            for (int32_t k = 0; status == DS_OK && k < w->n_chosen; k++)
                status =
                    extend(w, ctc, s, i, w->chosen[k], 0, DS_NO_WORD, (double)scores[w->chosen[k]]);
        for (int32_t at = first; at >= 0; at = s->prefixes[at].sibling)
            w->child_of[s->prefixes[at].token] = -1;
    }
    for (int32_t k = 0; k < w->n_chosen; k++)
        w->is_chosen[w->chosen[k]] = false;
    return status;
}

/* ---------------------------------------------------------------- the next beam */
/* Fills `order` with the candidates that are kept, in the order in which they arose, and `n` with how many. */
static ds_status keep_best(ds_ctc_work *w, const ds_ctc *ctc, size_t n_stay, size_t *n)
{
    *n = w->n;
    DS_TRY(RESERVE(w, keys, w->n));
    DS_TRY(RESERVE(w, order, w->n));
    for (size_t i = 0; i < w->n; i++) {
        candidate *c = &w->candidates[i];
        if (i < n_stay) {
            c->both = join(ctc, c->blank, c->token);
            c->total = c->both + c->sense.score;
        }
        w->keys[i] = c->total;
    }
    return ds_ctc_select(w, ctc, n, NEVER);
}

/* Fills an entry from a candidate. */
static ds_status make_entry(ds_ctc_work *w, const ds_ctc *ctc, const ds_allocator *allocator,
                            ds_ctc_state *s, candidate *c, const float *scores, ds_entry *entry)
{
    const ds_entry *from = &s->entries[c->from];
    const ds_path nowhere = {-INFINITY, 0, s->frame, s->frame, -1};
    entry->blank = c->blank;
    entry->token = c->token;
    entry->both = c->both;
    entry->after_blank = entry->after_token = nowhere;
    const double score = c->last < 0 ? NEVER : (double)scores[c->last];
    int32_t via = c->joined;
    if (c->stays) {
        if (!isinf(c->blank)) {
            entry->after_blank = *ds_ctc_path(from);
            entry->after_blank.score += (double)scores[ctc->options.blank];
        }
        if (!isinf(c->token) && !isinf(from->after_token.score))
            entry->after_token = longer_path(&from->after_token, score, s->frame);
    } else {
        via = c->from;
    }
    if (via >= 0) {
        const bool repeats = s->prefixes[s->entries[via].prefix].token == c->last;
        const double before = followed_path(&s->entries[via], repeats)->score;
        if (before + score > entry->after_token.score)
            DS_TRY(next_path(w, allocator, s, via, repeats, score, &entry->after_token));
    }
    if (c->prefix < 0)
        DS_TRY(ds_ctc_add_prefix(allocator, s, from->prefix, c->last, &c->sense, &c->prefix));
    entry->prefix = c->prefix;
    return DS_OK;
}

static ds_status next_beam(ds_ctc_work *w, const ds_ctc *ctc, const ds_allocator *allocator,
                           ds_ctc_state *s, const float *scores)
{
    size_t n;
    DS_TRY(keep_best(w, ctc, s->n_entries, &n));
    if (n == 0) /* nothing can follow: the frame is passed over */
        return DS_OK;
    DS_TRY(RESERVE(w, entries, n));
    DS_TRY(RESERVE(w, records, 2 * s->n_entries));
    memset(w->records, 0xFF, 2 * s->n_entries * sizeof *w->records);
    for (size_t i = 0; i < n; i++)
        DS_TRY(
            make_entry(w, ctc, allocator, s, &w->candidates[w->order[i]], scores, &w->entries[i]));
    for (size_t i = 0; i < s->n_entries; i++)
        s->prefixes[s->entries[i].prefix].entry = -1;
    DS_TRY(DS_RESERVE(allocator, s, entries, 0, n));
    memcpy(s->entries, w->entries, n * sizeof *s->entries);
    s->n_entries = n;
    return DS_OK;
}

/* The best token of the frame and nothing else. */
static void follow_best(ds_ctc_work *w, const ds_ctc *ctc, const ds_ctc_state *s,
                        const float *scores)
{
    const int32_t best = ds_ctc_best_token(scores, w->n_tokens), blank = ctc->options.blank;
    candidate *c = &w->candidates[0];
    w->n_chosen = 0;
    w->threshold = -INFINITY;
    if (best == blank || (best == c->last && !isinf(s->entries[0].token))) {
        c->blank = best == blank ? c->blank : NEVER;
        c->token = best == blank ? NEVER : c->token;
        return;
    }
    c->blank = c->token = -INFINITY;
    w->chosen[w->n_chosen++] = best;
}

/* Writes down where each prefix of the beam is in it. */
static void mark_entries(ds_ctc_state *s)
{
    for (size_t i = 0; i < s->n_entries; i++)
        s->prefixes[s->entries[i].prefix].entry = (int32_t)i;
}

static ds_status decode_frame(ds_ctc_work *w, const ds_ctc *ctc, const ds_allocator *allocator,
                              ds_ctc_state *s, const float *scores)
{
    mark_entries(s);
    DS_TRY(stay(w, ctc, s, scores));
    if (ctc->options.beam == 0)
        follow_best(w, ctc, s, scores);
    else
        DS_TRY(ds_ctc_choose(w, ctc, scores));
    DS_TRY(extend_all(w, ctc, s, scores));
    return next_beam(w, ctc, allocator, s, scores);
}

static size_t best_entry(const ds_ctc *ctc, const ds_ctc_state *s)
{
    size_t best = 0;
    double score = -INFINITY;
    for (size_t i = 0; i < s->n_entries; i++) {
        const double other = ds_ctc_score(ctc, s, &s->entries[i], false);
        if (other > score) {
            best = i;
            score = other;
        }
    }
    return best;
}

/* After every frame: what is found in the tree depends on the beam alone, not on what was there before. */
static ds_status collect(ds_ctc_work *w, const ds_allocator *allocator, ds_ctc_state *s)
{
    const size_t n = s->n_prefixes > s->n_aligned ? s->n_prefixes : s->n_aligned;
    DS_TRY(RESERVE(w, map, n));
    ds_ctc_collect(allocator, s, w->map);
    return DS_OK;
}

ds_status ds_ctc_end_frame(ds_ctc_work *w, const ds_ctc *ctc, const ds_allocator *allocator,
                           ds_ctc_state *s)
{
    mark_entries(s);
    s->frame++;
    DS_TRY(ds_ctc_settle(ctc, allocator, s, best_entry(ctc, s)));
    DS_TRY(ds_ctc_endpoint(ctc, allocator, s, best_entry(ctc, s)));
    return collect(w, allocator, s);
}

ds_status ds_ctc_advance(ds_ctc_work *work, const ds_ctc *ctc, ds_ctc_stream *stream, bool start,
                         const float *scores, size_t n_frames)
{
    ds_ctc_state *s = &stream->next;
    DS_TRY(start ? ds_ctc_restart(ctc, &stream->allocator, s)
                 : ds_ctc_copy(&stream->allocator, s, &stream->now));
    for (size_t t = 0; t < n_frames; t++, scores += work->n_tokens) {
        DS_TRY(decode_frame(work, ctc, &stream->allocator, s, scores));
        DS_TRY(ds_ctc_end_frame(work, ctc, &stream->allocator, s));
    }
    return DS_OK;
}
