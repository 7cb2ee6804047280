/* ops/cat.c: streams joined along a feature axis (torch.cat).
 *
 *     in i: [outer...][n_i][inner...], out: [outer...][sum of n_i][inner...]
 *
 * All counts are those of input 0; streams progress in lockstep. */
#include "ops/frames.h"
#include "ops/registry.h"

enum { AXIS };

static const ds_attr_def attrs[] = {
    {"axis", DS_ATTR_INT, .required = true, .doc = "the feature dimension, from 0"}, {0}};

static ds_status infer(ds_op *op)
{
    const int64_t axis = op->attr[AXIS].i;
    ds_signature *out = &op->out[0];
    DS_CHECK(axis >= 0 && axis < out->rank, DS_SHAPE,
             "cat: there is no feature dimension %lld, the inputs have %d", (long long)axis,
             out->rank);
    for (int i = 1; i < op->n_inputs; i++) {
        DS_CHECK(op->in[i].dtype == out->dtype, DS_DTYPE, "cat: input 0 is %s but input %d is %s",
                 ds_dtype_name(out->dtype), i, ds_dtype_name(op->in[i].dtype));
        ds_signature expected = op->in[0];
        if (op->in[i].rank == expected.rank) {
            expected.shape[axis] = op->in[i].shape[axis];
        }
        if (!ds_signature_same_shape(&expected, &op->in[i])) {
            char first[160], second[160];
            return ds_fail(DS_SHAPE, "cat: shapes %s and %s differ in more than dimension %lld",
                           ds_signature_text(&op->in[0], first, sizeof first),
                           ds_signature_text(&op->in[i], second, sizeof second), (long long)axis);
        }
        out->shape[axis] += op->in[i].shape[axis];
    }
    return DS_OK;
}

static void forward(const ds_op *op, const ds_run *run)
{
    size_t n_outer = 1; /* blocks per frame */
    for (int d = 0; d < (int)op->attr[AXIS].i; d++) {
        n_outer *= (size_t)op->out[0].shape[d];
    }
    const size_t n_bytes = ds_signature_bytes(&op->out[0]) / n_outer;
    size_t offset = 0;
    for (int i = 0; i < op->n_inputs; i++) {
        const size_t own_bytes = ds_signature_bytes(&op->in[i]) / n_outer;
        for (size_t r = 0; r < run->n_rows; r++) {
            const ds_target *out = &run->out[r];
            if (out->m1 <= out->m0) {
                continue;
            }
            const char *x =
                ds_at(&run->in[(size_t)i * run->n_rows + r], out->m0, own_bytes * n_outer);
            char *y = (char *)out->data + offset;
            for (size_t j = 0; j < (size_t)(out->m1 - out->m0) * n_outer; j++) {
                ds_frames_copy(y + j * n_bytes, x + j * own_bytes, own_bytes);
            }
        }
        offset += own_bytes;
    }
}

const ds_op_def ds_op_cat = {.name = "cat",
                             .doc = "Joins streams along a feature dimension.",
                             .n_inputs = 2,
                             .n_outputs = 1,
                             .n_values = -1,
                             .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC,
                             .attrs = attrs,
                             .infer = infer,
                             .forward = forward};
