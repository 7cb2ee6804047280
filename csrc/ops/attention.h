/* ops/attention.h: what the two files of attention share: sizes, and which keys a query sees. */
#pragma once
#include "ops/back.h"

enum {
    DS_ATTENTION_CHUNK,
    DS_ATTENTION_LEFT,
    DS_ATTENTION_RIGHT,
    DS_ATTENTION_SCALE,
    DS_ATTENTION_FIRST,
    DS_ATTENTION_BEYOND,
    DS_ATTENTION_ROWS_FIRST,
    DS_ATTENTION_SINUSOIDS,
    DS_ATTENTION_SOFTCAP,
    DS_ATTENTION_KEEP
};
enum { DS_ATTENTION_Q, DS_ATTENTION_K, DS_ATTENTION_V, DS_ATTENTION_U };
enum { DS_ATTENTION_BIAS, DS_ATTENTION_ROWS, DS_ATTENTION_SINKS };
enum { DS_ATTENTION_ALONG, DS_ATTENTION_ACROSS }; /* members: the stream's own keys; a memory's */

typedef struct ds_attention {
    int64_t chunk, left, right; /* left, right below 0: all keys */
    double scale;
    size_t heads, groups, d_key, d_value, element;
    int64_t n_fixed; /* keys that are weights */
    int64_t n_kept;
} ds_attention;

ds_attention ds_attention_of(const ds_op *op);

/* Features of the terms by distance; 0: there are none. */
static inline size_t ds_attention_terms(const ds_op *op)
{
    return op->n_inputs > DS_ATTENTION_U ? (size_t)op->in[DS_ATTENTION_U].shape[1] : 0;
}

/* How many keys a row's queries may see. */
int64_t ds_attention_keys(const ds_attention *s, const ds_run *run, size_t row);
/* Keys [*from, *to) that query i sees of n. */
static inline void ds_attention_sees(const ds_attention *s, int64_t i, int64_t n, int64_t *from,
                                     int64_t *to)
{
    const int64_t begin = s->chunk == 0 ? 0 : i / s->chunk * s->chunk;
    *from = s->left < 0 || begin < s->left ? 0 : begin - s->left;
    const bool all = s->chunk == 0 || s->right < 0 || n - begin < s->chunk + s->right;
    *to = all ? n : begin + s->chunk + s->right;
}

void ds_attention_set_back_sizes(ds_op *op);
void ds_attention_backward(const ds_op *op, const ds_back *b);
