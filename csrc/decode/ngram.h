/* An n-gram language model: the probabilities of an ARPA file with back-off, or those that a function gives (base-10
 * logarithms).
 *
 * Every n-gram is a node; node 0 is the empty one, nodes 1 to n_words those of single words. A state is the node of
 * the longest known end of what came before; where it has no edge for a word, its back-off is added and the search
 * goes on from its own longest known end (`suffix`), so that a score costs as many look-ups as it backs off. Of a model
 * that a function scores, only the words are known; a state is the last of them. */
#pragma once
#include "decode/lines.h"
#include "decode/map.h"
#include "dreamstream.h"

enum { DS_MAX_ORDER = 12, DS_MAX_SCORED_ORDER = 6 };

/* What the model knows of the words before one. Of an ARPA file: the node of a state. Of a function: the last words, the
 * latest first, each by its number plus 1; 0: none. */
typedef struct ds_history {
    uint32_t at[DS_MAX_SCORED_ORDER - 1];
} ds_history;

typedef struct ds_gram {
    float probability, backoff;
    uint32_t suffix;
} ds_gram;

typedef struct ds_ngram {
    ds_allocator allocator;
    ds_gram *grams; /* [n] */
    size_t n, room_grams;
    size_t order, counts[DS_MAX_ORDER + 1];
    size_t n_words; /* `<unk>` included */
    uint32_t full;  /* the first node that is no state: it is as long as the model looks back */
    uint32_t unknown, begin, end; /* words; DS_MAP_NONE: the model has no such word */
    ds_map words;                 /* by the hash of their text */
    ds_map edges;                 /* (node, word) -> node, from node 1 on */
    bool spelled;                 /* set before it is read: `beginnings` are wanted */
    ds_map beginnings;            /* the hashes of what words begin with, whole words included */
    ds_lm_score score;            /* NULL: of an ARPA file */
    void *owner;                  /* what `score` is called with */
} ds_ngram;

/* Makes an empty model, which can be freed. */
void ds_ngram_init(ds_ngram *model, const ds_allocator *allocator);
/* Reads an ARPA file; a model without `<unk>` gets one of logarithmic probability -100. On failure too, the model is freed
 * by the caller. Errors: DS_FORMAT, naming the line; DS_NO_MEMORY. */
ds_status ds_ngram_read(ds_ngram *model, const void *bytes, size_t n_bytes);
/* Reads the words of a model that `score` scores, one a line; behind them `<unk>`, if it isn't among them. Errors:
 * DS_FORMAT (no word, or one twice), DS_NO_MEMORY. */
ds_status ds_ngram_read_words(ds_ngram *model, const void *bytes, size_t n_bytes, size_t order,
                              ds_lm_score score, void *owner);
void ds_ngram_free(ds_ngram *model);
/* The state at the beginning of a sentence. */
ds_history ds_ngram_start(const ds_ngram *model);
/* Whether it can be the state of this model. */
bool ds_ngram_has(const ds_ngram *model, const ds_history *state);
/* The word of that hash, `<unk>` where there is none. */
uint32_t ds_ngram_word(const ds_ngram *model, uint64_t hash);
/* Returns the logarithmic probability of a word, NaN where the function fails; moves `*state` behind the word. */
double ds_ngram_score(const ds_ngram *model, ds_history *state, uint32_t word);
/* Errors: DS_ARGUMENT for a score that comes of a function's failure. */
ds_status ds_ngram_check(double score);
