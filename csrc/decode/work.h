/* decode/work.h: the scratch of a call, and what both searches share: ctc.c's and transducer.c's. */
#pragma once
#include "decode/ctc.h"

/* transducer.c's part. */
typedef struct ds_transducing ds_transducing;

typedef struct candidate {
    ds_sense sense;
    double blank, token, both, total; /* as of an entry; `total` with what the tokens are worth */
    int32_t from;                     /* the entry that stays, or is extended */
    int32_t joined;                   /* the entry whose extension is this one that stays; -1 */
    int32_t prefix;                   /* -1: new */
    int32_t last;                     /* its last token */
    bool stays;
} candidate;

struct ds_ctc_work {
    ds_allocator allocator;
    candidate *candidates;
    size_t n, room_candidates;
    double *keys; /* [max(room of candidates, tokens)] */
    int32_t *order;
    size_t room_keys, room_order;
    int32_t *map; /* ds_ctc_collect's */
    size_t room_map;
    ds_entry *entries; /* the next beam */
    size_t room_entries;
    int32_t *chosen; /* [tokens], of which n_chosen are set */
    int32_t n_chosen, n_tokens;
    bool *is_chosen;   /* [tokens] */
    int32_t *child_of; /* [tokens] a child of the prefix at hand by its token; -1 */
    int32_t *records;  /* [2 * entries]: the alignments that extensions hang on; -1: not yet made */
    size_t room_records;
    double threshold;            /* totals below it are dropped */
    ds_transducing *transducing; /* of a transducer; else NULL */
};

/* Room for n items, whose former values may be lost. */
#define RESERVE(w, items, n) DS_RESERVE(&(w)->allocator, w, items, 0, n)

/* Chooses what prefixes may go on with behind a frame of log probabilities; blank is never among it. */
ds_status ds_ctc_choose(ds_ctc_work *w, const ds_ctc *ctc, const float *scores);
/* Fills w->order with the numbers of the best of `n` keys, none far below the best or `best`, in ascending order; there
 * is room. */
ds_status ds_ctc_select(ds_ctc_work *w, const ds_ctc *ctc, size_t *n, double best);
/* The probability of a score; scores that are no logarithms of probabilities count as 1. */
double ds_ctc_probability(double score);
int32_t ds_ctc_best_token(const float *scores, int32_t n);
/* What follows a frame: settles, ends the utterance, lets go. */
ds_status ds_ctc_end_frame(ds_ctc_work *w, const ds_ctc *ctc, const ds_allocator *allocator,
                           ds_ctc_state *s);

/* The scratch of a transducer (returns owned); NULL is allowed to be destroyed. */
ds_status ds_transducing_create(ds_transducing **t, const ds_allocator *allocator);
void ds_transducing_destroy(ds_transducing *t, const ds_allocator *allocator);
