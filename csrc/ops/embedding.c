/* ops/embedding.c: rows of a table by index.
 *
 *     y[f][..., d] = weight[x[f][...]][d]
 *
 * in int64 [...], weight [N][D], out [..., D] of the weight's type; frame in, frame out. Every index must
 * be one of 0 .. N - 1: that is checked on the stream's values before anything is computed. Within a graph,
 * an index that is computed and is none of them has NaN for a row.
 *
 * Source: torch.nn.functional.embedding. */
#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/registry.h"

#include <string.h>

enum { WEIGHT };

static ds_status embedding_infer(ds_op *op)
{
    const ds_signature *weight = &op->weight[WEIGHT];
    DS_CHECK(op->in[0].rank < DS_MAX_RANK, DS_SHAPE,
             "embedding: an index of %d feature dimensions is one more than it takes",
             op->in[0].rank);
    op->out[0].dtype = weight->dtype;
    op->out[0].shape[op->out[0].rank++] = weight->shape[1];
    return DS_OK;
}

static void embedding_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const ds_signature *weight = &op->weight[WEIGHT];
    const size_t row_bytes = (size_t)weight->shape[1] * ds_dtype_bytes(weight->dtype);
    const size_t n = f->n * ds_elements(&op->in[0]);
    const char *const table = run->weights[WEIGHT];
    const int64_t *const x = f->x[0];
    for (size_t i = 0; i < n; i++) {
        char *const y = (char *)f->y[0] + i * row_bytes;
        if (x[i] >= 0 && x[i] < weight->shape[0])
            memcpy(y, table + (size_t)x[i] * row_bytes, row_bytes);
        else
            ds_fill_nan(y, (size_t)weight->shape[1], ds_dtype_bytes(weight->dtype));
    }
}
DS_FRAMEWISE_FORWARD(embedding)

static void embedding_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const ds_signature *weight = &op->weight[WEIGHT];
    const size_t row = (size_t)weight->shape[1], n_bytes = row * b->run->k->element;
    const size_t n = f->n * ds_elements(&op->in[0]);
    char *const table = b->dweights[WEIGHT];
    const int64_t *const index = f->x[0];
    for (size_t i = 0; i < n && table; i++)
        if (index[i] >= 0 && index[i] < weight->shape[0])
            ds_back_add(b->run->k, table + (size_t)index[i] * n_bytes,
                        (const char *)f->g[0] + i * n_bytes, row);
}
DS_FRAMEWISE_BACKWARD(embedding)

const ds_op_def ds_op_embedding = {
    DS_OPERATOR(embedding, "Rows of a table, by index."),
    .shapes = "[..]: int64; weight [num_embeddings, embedding_dim]: float", .indices = "index",
    .backward = embedding_backward, .reads = DS_READS_X};
