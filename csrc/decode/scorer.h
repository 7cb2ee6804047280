/* decode/scorer.h: what a transducer's search asks of its networks, whoever runs them.
 *
 * The predictor sees the tokens so far, the joiner gives scores of the next one from what the predictor says and a frame
 * of the encoder. All rows are independent: a row's bits depend on no other. Any thread may ask. */
#pragma once
#include "base/alloc.h"

typedef struct ds_scorer {
    void *owner; /* NULL: there is none */
    size_t n_encoded, n_predicted, n_scores;
    uint64_t fingerprint;
    /* Of n rows: what the predictor remembers behind one more token, and what it says, [n_predicted]. `before` NULL: the
     * token is the first. Returns owned in `after`; on failure all of them are NULL. */
    ds_status (*predict)(void *owner, void **after, float *const *predicted, void *const *before,
                         const int32_t *tokens, size_t n);
    void (*forget)(void *owner, void *state);
    /* Fills scores [n][n_scores] of what is encoded and predicted, [n][n_encoded] and [n][n_predicted]. */
    ds_status (*join)(void *owner, float *scores, const float *encoded, const float *predicted,
                      size_t n);
    /* The bytes of what is remembered (NULL: fills their number), a multiple of 8. Reading distrusts them. */
    ds_status (*save)(void *owner, const void *state, void *bytes, size_t *n_bytes);
    ds_status (*load)(void *owner, void **state, const void *bytes, size_t n_bytes);
    void (*destroy)(void *owner);
} ds_scorer;

/* What the predictor remembers and says behind a prefix. Its holders all belong to one stream. */
typedef struct ds_memory {
    size_t n_holders;
    void *state;
    float predicted[]; /* [n_predicted] */
} ds_memory;

/* Makes one that is empty, of one holder. Errors: DS_NO_MEMORY. */
ds_status ds_memory_create(const ds_scorer *scorer, const ds_allocator *allocator,
                           ds_memory **memory);
/* One holder less; the last releases it. NULL is allowed. */
void ds_memory_drop(const ds_scorer *scorer, const ds_allocator *allocator, ds_memory *memory);
