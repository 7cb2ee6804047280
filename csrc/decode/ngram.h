/* An n-gram language model with back-off: the probabilities of an ARPA file (base-10 logarithms).
 *
 * Every n-gram is a node; node 0 is the empty one, nodes 1 to n_words those of single words. A state is the node of
 * the longest known end of what came before; where it has no edge for a word, its back-off is added and the search
 * goes on from its own longest known end (`suffix`), so that a score costs as many look-ups as it backs off. */
#ifndef DS_DECODE_NGRAM_H
#define DS_DECODE_NGRAM_H
#include "decode/lines.h"
#include "decode/map.h"

enum { DS_MAX_ORDER = 12 };

typedef struct ds_gram {
    float probability, backoff;
    uint32_t suffix;
} ds_gram;

typedef struct ds_ngram {
    ds_allocator allocator;
    ds_gram *grams; /* [n] */
    size_t n, room;
    size_t order, counts[DS_MAX_ORDER + 1];
    size_t n_words; /* `<unk>` included */
    uint32_t full;  /* the first node that is no state: it is as long as the model looks back */
    uint32_t unknown, begin, end; /* words; DS_MAP_NONE: the model has no such word */
    ds_map words;                 /* by the hash of their text */
    ds_map edges;                 /* (node, word) -> node, from node 1 on */
    bool spelled;                 /* set before it is read: `beginnings` are wanted */
    ds_map beginnings;            /* the hashes of what words begin with, whole words included */
} ds_ngram;

/* Makes an empty model, which can be freed. */
void ds_ngram_init(ds_ngram *model, const ds_allocator *allocator);
/* Reads an ARPA file; a model without `<unk>` gets one of logarithmic probability -100. On failure too, the model is freed
 * by the caller. Errors: DS_FORMAT, naming the line; DS_NO_MEMORY. */
ds_status ds_ngram_read(ds_ngram *model, const void *bytes, size_t n_bytes);
void ds_ngram_free(ds_ngram *model);
/* The state at the beginning of a sentence. */
uint32_t ds_ngram_start(const ds_ngram *model);
/* The word of that hash, `<unk>` where there is none. */
uint32_t ds_ngram_word(const ds_ngram *model, uint64_t hash);
/* Returns the logarithmic probability of a word behind `state`; fills `*next` with the state behind it. */
double ds_ngram_score(const ds_ngram *model, uint32_t state, uint32_t word, uint32_t *next);

#endif
