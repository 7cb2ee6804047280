/* What is certain: tokens that all prefixes of the beam share, and utterances that are over. */
#include <math.h>
#include <string.h>

#include "decode/ctc.h"

void ds_ctc_tokens(const ds_ctc_state *state, const ds_entry *entry, ds_decoded_token *tokens)
{
    ds_path path = *ds_ctc_path(entry);
    int32_t at = entry->prefix;
    for (int32_t i = ds_ctc_pending(state, entry); i-- > 0;) {
        const ds_prefix *prefix = &state->prefixes[at];
        const int64_t n_frames = path.end - path.start;
        tokens[i] = (ds_decoded_token){prefix->token,
                                       prefix->sense.word,
                                       path.start,
                                       path.end,
                                       (float)(path.probability / (double)n_frames),
                                       0};
        at = prefix->parent;
        if (path.before >= 0) {
            const ds_sounded *before = &state->aligned[path.before];
            path = (ds_path){0, before->probability, before->start, before->end, before->before};
        }
    }
}

double ds_ctc_score(const ds_ctc *ctc, const ds_ctc_state *state, const ds_entry *entry, bool end)
{
    const ds_sense *sense = &state->prefixes[entry->prefix].sense;
    return state->settled_score + entry->both + sense->score +
           (end ? ds_language_end(&ctc->language, sense) : 0);
}

/* Whether a comes before b in a list of hypotheses. */
static bool is_better(const ds_ctc_state *s, const double *scores, bool end, int32_t a, int32_t b)
{
    const bool a_within = ds_language_is_within(&s->prefixes[s->entries[a].prefix].sense);
    const bool b_within = ds_language_is_within(&s->prefixes[s->entries[b].prefix].sense);
    if (end && a_within != b_within)
        return b_within;
    return scores[a] > scores[b] || (!(scores[a] < scores[b]) && a < b);
}

ds_status ds_ctc_rank(const ds_ctc *ctc, const ds_ctc_state *state, bool end, int32_t *order,
                      double *scores)
{
    for (int32_t i = 0; i < (int32_t)state->n_entries; i++) {
        scores[i] = ds_ctc_score(ctc, state, &state->entries[i], end);
        DS_TRY(ds_ngram_check(scores[i]));
        int32_t at = i;
        for (; at > 0 && is_better(state, scores, end, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- the past */
/* Adds the first `n` of an entry's pending tokens to the past. */
static ds_status remember(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *s,
                          const ds_entry *entry, int32_t n)
{
    const size_t max_past = (size_t)ctc->options.max_past,
                 n_pending = (size_t)ds_ctc_pending(s, entry);
    DS_TRY(DS_RESERVE(allocator, s, past, s->n_past, s->n_past + n_pending));
    if (n_pending > 0)
        ds_ctc_tokens(s, entry, s->past + s->n_past);
    for (int32_t i = 0; i < n; i++)
        s->past[s->n_past++].is_final = 1;
    s->n_utterance += n;
    if (s->n_past > max_past + max_past / 2) {
        const size_t n_out = s->n_past - max_past;
        for (size_t i = 0; i < n_out; i++)
            s->n_left += s->past[i].token >= 0;
        memmove(s->past, s->past + n_out, max_past * sizeof *s->past);
        s->n_past = max_past;
    }
    return DS_OK;
}

/* Ends the alignments of entries behind the new root. */
static void cut(ds_ctc_state *s)
{
    for (size_t i = 0; i < s->n_entries; i++) {
        ds_path *const paths[2] = {&s->entries[i].after_blank, &s->entries[i].after_token};
        const int32_t n = ds_ctc_pending(s, &s->entries[i]);
        for (int k = 0; k < 2; k++) {
            int32_t *before = &paths[k]->before;
            for (int32_t left = n - 1; left > 0 && *before >= 0; left--)
                before = &s->aligned[*before].before;
            *before = -1;
        }
    }
}

/* Counts, for every prefix that leads to the beam, its children that do. */
static void count_ways(ds_ctc_state *s)
{
    const uint32_t seen = ++s->seen;
    s->prefixes[s->root].seen = seen;
    s->prefixes[s->root].n_seen = 0;
    for (size_t i = 0; i < s->n_entries; i++)
        for (int32_t at = s->entries[i].prefix, below = -1;;
             below = at, at = s->prefixes[at].parent) {
            ds_prefix *prefix = &s->prefixes[at];
            const bool is_known = prefix->seen == seen;
            if (!is_known)
                prefix->n_seen = 0;
            prefix->seen = seen;
            if (below >= 0) {
                prefix->n_seen++;
                prefix->only = below;
            }
            if (is_known)
                break;
        }
}

/* The last prefix that all entries share. One that has an entry of its own counts if its token is over. */
static int32_t last_shared(ds_ctc_state *s)
{
    int32_t at = s->root;
    count_ways(s);
    while (s->prefixes[at].entry < 0 && s->prefixes[at].n_seen == 1) {
        const int32_t next = s->prefixes[at].only, entry = s->prefixes[next].entry;
        if (entry >= 0 &&
            s->entries[entry].after_token.score >= s->entries[entry].after_blank.score)
            break;
        at = next;
    }
    return at;
}

static int32_t above(const ds_ctc_state *s, int32_t prefix, int32_t depth)
{
    while (s->prefixes[prefix].depth > depth)
        prefix = s->prefixes[prefix].parent;
    return prefix;
}

/* Lets go of entries that contradict what is settled, or have more pending tokens than there may be. */
static void drop_others(ds_ctc_state *s, int32_t root, int32_t max_pending)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        const int32_t prefix = s->entries[i].prefix;
        const bool agrees = s->prefixes[prefix].depth >= s->prefixes[root].depth &&
                            s->prefixes[prefix].depth - s->prefixes[root].depth <= max_pending &&
                            above(s, prefix, s->prefixes[root].depth) == root;
        s->prefixes[prefix].entry = agrees ? (int32_t)n : -1;
        if (agrees)
            s->entries[n++] = s->entries[i];
    }
    s->n_entries = n;
}

ds_status ds_ctc_settle(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state,
                        size_t best)
{
    const ds_entry chosen = state->entries[best];
    const int32_t depth = state->prefixes[chosen.prefix].depth;
    const int32_t max_pending = ctc->options.max_pending;
    int32_t root = last_shared(state), deepest = depth;
    for (size_t i = 0; i < state->n_entries; i++) {
        const int32_t other = state->prefixes[state->entries[i].prefix].depth;
        deepest = other > deepest ? other : deepest;
    }
    if (deepest - state->prefixes[root].depth > max_pending) {
        root = above(state, chosen.prefix, deepest - max_pending);
        drop_others(state, root, max_pending);
    }
    const int32_t n = state->prefixes[root].depth - state->prefixes[state->root].depth;
    if (n == 0)
        return DS_OK;
    DS_TRY(remember(ctc, allocator, state, &chosen, n));
    state->root = root;
    cut(state);
    return DS_OK;
}

/* ---------------------------------------------------------------- utterances */
static bool is_over(const ds_ctc *ctc, const ds_ctc_state *s, const ds_entry *best)
{
    const int64_t *rules = ctc->options.endpoints;
    const int64_t parts = ctc->options.max_symbols;
    const int64_t silence = s->frame - (ds_ctc_path(best)->end + parts - 1) / parts;
    const bool spoken = s->n_utterance > 0 || ds_ctc_pending(s, best) > 0;
    return (rules[0] && silence >= rules[0]) || (rules[1] && spoken && silence >= rules[1]) ||
           (rules[2] && s->frame - s->utterance >= rules[2]);
}

ds_status ds_ctc_endpoint(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state,
                          size_t best)
{
    if (!is_over(ctc, state, &state->entries[best]))
        return DS_OK;
    const ds_entry *chosen = NULL;
    double score = -INFINITY;
    bool is_within = true;
    for (size_t i = 0; i < state->n_entries; i++) {
        const ds_entry *entry = &state->entries[i];
        const double other = ds_ctc_score(ctc, state, entry, true);
        DS_TRY(ds_ngram_check(other));
        const bool within = ds_language_is_within(&state->prefixes[entry->prefix].sense);
        if (!chosen || (within == is_within ? other > score : is_within)) {
            chosen = entry;
            score = other;
            is_within = within;
        }
    }
    DS_TRY(remember(ctc, allocator, state, chosen, ds_ctc_pending(state, chosen)));
    if (state->n_utterance > 0) {
        const int64_t now = state->frame * ctc->options.max_symbols;
        DS_TRY(DS_RESERVE(allocator, state, past, state->n_past, state->n_past + 1));
        state->past[state->n_past++] = (ds_decoded_token){-1, DS_NO_WORD, now, now, 1, 1};
    }
    state->settled_score = isinf(score) ? ds_ctc_score(ctc, state, chosen, false) : score;
    state->n_endpoints++;
    return ds_ctc_begin(ctc, allocator, state);
}
