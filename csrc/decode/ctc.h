/* Connectionist temporal classification: prefix beam search, and the best path, over frames as they come.
 *
 * A beam holds prefixes: sequences of tokens, with the probability of all alignments (or of the best one) that end
 * in a blank and that end in the last token (Graves 2012; Hannun et al. 2014). What all prefixes of the beam share
 * can't change any more: it is *settled*, leaves the tree of prefixes for the past, and never comes back. So a
 * stream's memory is bounded by the beam, by `max_pending` tokens that aren't settled and `max_past` that are.
 *
 * Beside the sum every prefix has its best alignment, from which times and confidences come. All that happens
 * follows from a stream's own frames, one after the other: chunks and other streams can't change a bit.
 *
 * A call works on a copy of the streams' states; they are exchanged when all of it has succeeded. */
#pragma once
#include <stdatomic.h>

#include "codec/mapped.h"
#include "decode/language.h"
#include "decode/scorer.h"

typedef struct ds_ctc_options {
    int32_t blank;
    int32_t beam;           /* prefixes; 0: the best token of every frame */
    int32_t beam_tokens;    /* tokens that a prefix may go on with in a frame; 0: all */
    double beam_threshold;  /* below the best prefix */
    double token_threshold; /* of a token's score */
    double blank_threshold; /* of blank's: a frame above it holds nothing else */
    bool best_alignment;    /* instead of the sum over all */
    int32_t max_pending, max_past;
    int32_t
        max_symbols; /* in a frame, of a transducer; of others 1. Times are in parts of a frame, so many to each */
    int64_t
        endpoints[3]; /* frames of silence; of silence behind speech; of an utterance; 0: none */
} ds_ctc_options;

/* Scratch of a call; belongs to one thread. */
typedef struct ds_ctc_work ds_ctc_work;

/* What streams share. Only `idle` is ever written. */
typedef struct ds_ctc {
    ds_allocator allocator;
    ds_arena arena;
    ds_mapped *files[2]; /* tokens, lexicon: their texts stay there */
    ds_language language;
    ds_scorer scorer; /* its owner NULL: this is no transducer */
    ds_ctc_options options;
    uint64_t fingerprint; /* of all that decides what a stream remembers */
    _Atomic(ds_ctc_work *) idle;
} ds_ctc;

/* Makes a decoder (returns owned); of a transducer where there is a scorer (or NULL), which it takes, also on failure.
 * Errors: those of ds_decoder_create. */
ds_status ds_ctc_create(ds_ctc **ctc, const ds_decoder_options *options, const ds_scorer *scorer);
void ds_ctc_destroy(ds_ctc *ctc);

/* Numbers of a frame that comes in: scores, or what the encoder says. */
static inline size_t ds_ctc_width(const ds_ctc *ctc)
{
    return ctc->scorer.owner ? ctc->scorer.n_encoded : (size_t)ctc->language.tokens.n;
}

/* The best alignment of a prefix: its last token's frames and probabilities, and the tokens before. */
typedef struct ds_path {
    double score;
    double probability; /* summed over the frames */
    int64_t start, end; /* times; both where the stream begins while there is no token */
    int32_t before;     /* in `aligned`; -1: none that is pending */
} ds_path;

/* A token whose frames are over. */
typedef struct ds_sounded {
    int32_t before;
    double probability;
    int64_t start, end;
} ds_sounded;

/* A prefix in the tree. Parents stand before their children. */
typedef struct ds_prefix {
    ds_sense sense;
    int32_t parent, token, depth;
    int32_t child, sibling; /* of the tree, the other way round */
    int32_t entry;          /* in the beam; -1 */
    int32_t n_seen,
        only; /* while the tree is walked: children that lead to the beam, one of them */
    uint32_t seen;
    ds_memory *memory; /* of a transducer's predictor; NULL: not known (here) */
} ds_prefix;

/* A prefix in the beam. */
typedef struct ds_entry {
    double blank, token, both; /* log probabilities */
    ds_path after_blank, after_token;
    int32_t prefix;
} ds_entry;

typedef struct ds_ctc_state {
    const ds_scorer *scorer;
    ds_entry *entries; /* [n_entries], the beam */
    ds_prefix *prefixes;
    ds_sounded *aligned;
    ds_decoded_token *past; /* [n_past], the latest */
    size_t n_entries, n_prefixes, n_aligned, n_past;
    size_t room_entries, room_prefixes, room_aligned, room_past;
    int32_t root; /* the latest prefix that is settled */
    uint32_t seen;
    int64_t frame, utterance; /* the next frame; the first of the utterance */
    int64_t n_left;           /* tokens that have left the past */
    int64_t n_utterance;      /* tokens of this utterance that are settled */
    int64_t n_endpoints;
    double settled_score; /* of utterances that are over */
} ds_ctc_state;

/* Room for what is read of a stream: its hypotheses in the order of their scores, and the tokens of one. */
typedef struct ds_ctc_reading {
    int32_t *order;
    double *scores;
    ds_decoded_token *tokens;
    size_t room_order, room_scores, room_tokens;
    bool is_ranked;
} ds_ctc_reading;

/* One stream. */
typedef struct ds_ctc_stream {
    ds_allocator allocator;
    ds_ctc_state now, next;
    ds_ctc_reading reading;
    bool begun, ended;
} ds_ctc_stream;

ds_status ds_ctc_work_create(ds_ctc_work **work, const ds_ctc *ctc, const ds_allocator *allocator);
void ds_ctc_work_destroy(ds_ctc_work *work);

/* Makes a stream at its beginning. Errors: DS_NO_MEMORY. */
ds_status ds_ctc_open(ds_ctc_stream *stream, const ds_ctc *ctc, const ds_allocator *allocator);
void ds_ctc_close(ds_ctc_stream *stream);
/* Puts a state at the beginning of a stream. Errors: DS_NO_MEMORY. */
ds_status ds_ctc_restart(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state);
/* Advances streams, which are distinct and in nobody else's hands, by a chunk each; flags: DS_START, DS_END. All or none:
 * on failure `bad` (NULL, or [n]) has those to blame. Errors: those of ds_decoder_step. */
ds_status ds_ctc_step(ds_ctc *ctc, ds_ctc_stream *const *streams, const ds_input *chunks,
                      const uint32_t *flags, size_t n, bool *bad);
/* Whether each of the scores [n_frames][tokens] is a number below infinity, and each frame has one above minus
 * infinity. Errors: DS_INDEX. */
ds_status ds_ctc_check(const ds_ctc *ctc, const float *scores, size_t n_frames);
/* Works out `next` from `now`, or from the beginning, and frames that were checked. Errors: DS_NO_MEMORY. */
ds_status ds_ctc_advance(ds_ctc_work *work, const ds_ctc *ctc, ds_ctc_stream *stream, bool start,
                         const float *scores, size_t n_frames);
/* The same of n streams together, of a transducer (transducer.c). Errors: also those of its networks. */
ds_status ds_transducer_advance(ds_ctc_work *work, const ds_ctc *ctc, ds_ctc_stream *const *streams,
                                const ds_input *chunks, const uint32_t *flags, size_t n);
/* Makes `next` what is. */
void ds_ctc_commit(ds_ctc_stream *stream, bool end);

/* The pending tokens of a beam's entry. */
static inline int32_t ds_ctc_pending(const ds_ctc_state *s, const ds_entry *entry)
{
    return s->prefixes[entry->prefix].depth - s->prefixes[s->root].depth;
}
/* Fills tokens [ds_ctc_pending] with them. */
void ds_ctc_tokens(const ds_ctc_state *state, const ds_entry *entry, ds_decoded_token *tokens);
/* The score of an entry; `end`: of the whole sequence, which ends here. */
double ds_ctc_score(const ds_ctc *ctc, const ds_ctc_state *state, const ds_entry *entry, bool end);
/* The better of its two alignments. */
static inline const ds_path *ds_ctc_path(const ds_entry *entry)
{
    return entry->after_blank.score >= entry->after_token.score ? &entry->after_blank
                                                                : &entry->after_token;
}

/* hypotheses.c: makes room to read all hypotheses of a state. A step does so before it is committed, so that reading what
 * it gave can't fail for want of memory. Errors: DS_NO_MEMORY. */
ds_status ds_ctc_make_readable(ds_ctc_stream *stream, const ds_ctc_state *state);
void ds_ctc_reading_free(ds_ctc_stream *stream);
/* Fills a hypothesis as ds_decoding_read does; its tokens are the stream's. Errors: DS_ARGUMENT, DS_NO_MEMORY. */
ds_status ds_ctc_read(const ds_ctc *ctc, ds_ctc_stream *stream, ds_hypothesis *hypothesis,
                      size_t rank);

/* snapshot.c: the bytes of a stream, which only a decoder like this one can read (`bytes` NULL: their number).
 * Reading trusts none of them: what is refused leaves the stream as it was. Errors: DS_FORMAT, DS_NO_MEMORY. */
ds_status ds_ctc_snapshot(const ds_ctc *ctc, const ds_ctc_stream *stream, void *bytes,
                          size_t *n_bytes);
ds_status ds_ctc_restore(const ds_ctc *ctc, ds_ctc_stream *stream, const void *bytes,
                         size_t n_bytes);

/* state.c: errors: DS_NO_MEMORY. */
ds_status ds_ctc_copy(const ds_allocator *allocator, ds_ctc_state *to, const ds_ctc_state *from);
void ds_ctc_free(const ds_allocator *allocator, ds_ctc_state *state);
/* Lets go what no entry of the beam leads to; `map` has room for all prefixes and all aligned tokens. */
void ds_ctc_collect(const ds_allocator *allocator, ds_ctc_state *state, int32_t *map);
/* settle.c: moves what is certain to the past. `best`: an entry. */
ds_status ds_ctc_settle(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state,
                        size_t best);
/* Ends the utterance if a rule says so, with what is best of it. */
ds_status ds_ctc_endpoint(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state,
                          size_t best);
/* Adds a child of a prefix, which is no entry yet; fills its number. */
ds_status ds_ctc_add_prefix(const ds_allocator *allocator, ds_ctc_state *state, int32_t parent,
                            int32_t token, const ds_sense *sense, int32_t *number);
/* Writes down the last token of an alignment, for those that come behind it; fills its number. */
ds_status ds_ctc_add_sounded(const ds_allocator *allocator, ds_ctc_state *state,
                             const ds_path *path, int32_t *number);
/* Makes room for n entries. */
/* The beam of nothing at all. */
ds_status ds_ctc_begin(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state);
/* Entries by their score, the best first; ended sequences that are no whole words of a lexicon last. `order` has
 * room for all. Errors: DS_ARGUMENT of a language model's function. */
ds_status ds_ctc_rank(const ds_ctc *ctc, const ds_ctc_state *state, bool end, int32_t *order,
                      double *scores);
