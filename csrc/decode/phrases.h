/* Phrases with weights, found in a sequence of tokens as it grows (Aho-Corasick).
 *
 * A sequence's score is the sum of the weights of all phrases in it, once for each time that they stand there. A
 * phrase that has begun counts in advance, by as much of its weight as has been seen of its tokens; where it breaks off, that
 * is taken back. So a beam keeps what begins like a phrase, and a finished score holds whole phrases only.
 *
 * With a separator of words phrases stand for whole words: one begins and ends beside a separator, or where the
 * sequence does. */
#pragma once
#include "decode/tokens.h"

typedef struct ds_phrases {
    uint32_t n;     /* states; 0: there are no phrases */
    uint32_t start; /* the state at the beginning of a sequence */
    uint32_t *fall; /* [n] the longest other end that some phrase begins with */
    double *paid;   /* [n] the weights of the phrases that end here */
    double *ahead;  /* [n] counted in advance */
    int32_t separator;
    ds_map edges;
} ds_phrases;

/* Reads lines "phrase" or "phrase<tab>weight", a phrase being words that are spelled by the longest tokens that
 * fit, or, where the line begins with a tab, the tokens themselves. `separator`: a token, or -1; `mark`: whether
 * tokens mark the beginning of a word by "\u2581". Errors: DS_FORMAT, DS_NO_MEMORY. */
ds_status ds_phrases_read(ds_phrases *phrases, ds_arena *arena, const ds_tokens *tokens,
                          int32_t separator, bool mark, double weight, const void *bytes,
                          size_t n_bytes);
void ds_phrases_free(ds_phrases *phrases);
/* Advances `*state` by a token; returns what that adds to the score. */
double ds_phrases_step(const ds_phrases *phrases, uint32_t *state, int32_t token);
/* Returns what the end of the sequence adds to the score. */
double ds_phrases_end(const ds_phrases *phrases, uint32_t state);
