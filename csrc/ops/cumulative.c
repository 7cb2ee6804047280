/* ops/cumulative.c: running sums and means of all frames so far.
 *
 *     y[t] = sum of x[0] .. x[t],  for the mean divided by t + 1        per feature
 *
 * Frame in, frame out. Carried: the sums in double, added frame by frame, so that nothing drifts and
 * chunks don't matter.
 *
 * Source: torch.cumsum. */
#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND };
enum { SUM, MEAN };

static const ds_attr_def cumulative_attrs[] = {
    {"kind", DS_ATTR_CHOICE, .required = true, .choices = "sum|mean", .doc = "what is computed"},
    {0}};

static ds_status cumulative_infer(ds_op *op)
{
    DS_TRY(ds_op_require_real(op));
    op->n_carried = 1;
    op->carried[0] = (ds_carried){"sum", op->in[0], true, 0};
    op->carried[0].array.dtype = DS_F64;
    return DS_OK;
}

static void cumulative_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        double *sum = (double *)((char *)run->carried[r] + op->carried[0].offset);
        for (int64_t t = out->m0; t < out->m1; t++) {
            ds_sums_add(sum, ds_at(&run->in[r], t, n_bytes), n, op->in[0].dtype);
            ds_sums_write(ds_to(out, t, n_bytes), sum, n,
                          op->attr[KIND].i == MEAN ? (double)(t + 1) : 1.0, op->in[0].dtype);
        }
    }
}

const ds_op_def ds_op_cumulative = {DS_OPERATOR(cumulative, "Sum or mean of all frames so far."),
                                    .flags = DS_OP_INPLACE, .attrs = cumulative_attrs};
