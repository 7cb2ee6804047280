/* A list of words with their spellings in tokens, as a trie. Node 0 is the root. */
#pragma once
#include "decode/tokens.h"

typedef struct ds_branch {
    int32_t token;
    uint32_t node;
} ds_branch;

typedef struct ds_lexicon {
    ds_span *words; /* [n_words], views of the file's bytes */
    size_t n_words, n_nodes;
    ds_branch *branches; /* of node i: from first_branch[i] to first_branch[i + 1] */
    uint32_t *first_branch;
    uint32_t *labels; /* words that end in node i: from first_label[i] to first_label[i + 1] */
    uint32_t *first_label;
    float *
        best; /* [n_nodes] the best logarithmic probability of a word at or below the node; NULL: not known */
} ds_lexicon;

/* Reads lines "word token token ...". A word may have several spellings, and words one spelling. `bytes` are kept,
 * the rest is pushed. Errors: DS_FORMAT (a token that there is not, no spelling, no word), DS_NO_MEMORY. */
ds_status ds_lexicon_read(ds_lexicon *lexicon, ds_arena *arena, const ds_tokens *tokens,
                          const void *bytes, size_t n_bytes);
/* Fills `best` from the logarithmic probability of each word. */
ds_status ds_lexicon_smear(ds_lexicon *lexicon, ds_arena *arena, const float *words);
