/* ops/planes.c: checks and walks over frames that are rows of positions. */
#include "ops/planes.h"

#include "ops/padding.h"

int64_t ds_planes_kernel(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[DS_PLANES_WEIGHT];
    if (weight->rank == 3)
        return i == 0 ? 1 : weight->shape[2];
    return weight->shape[op->attr[DS_PLANES_AXIS].i == i ? 2 : 3];
}

int64_t ds_planes_tap(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[DS_PLANES_WEIGHT];
    return weight->rank == 4 && op->attr[DS_PLANES_AXIS].i == i ? weight->shape[3] : 1;
}

ds_status ds_planes_check(const ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[DS_PLANES_WEIGHT];
    const char *name = op->def->name;
    char text[160];
    DS_TRY(ds_op_require_real(op));
    bool sized = in->rank == 2 || in->rank == 3;
    for (int d = 0; sized && d < in->rank; d++)
        sized = in->shape[d] >= 1 && in->shape[d] <= DS_PADDING_LIMIT;
    DS_CHECK(sized, DS_SHAPE,
             "%s: expected an input of shape (positions, channels) or (rows, positions, channels), "
             "got %s",
             name, ds_signature_text(in, text, sizeof text));
    DS_CHECK(weight->rank == 3 || weight->rank == 4, DS_SHAPE,
             "%s: its weight 'weight' must have four dimensions, of which the last two are the "
             "kernel's, or three for windows within a frame, got %s",
             name, ds_signature_text(weight, text, sizeof text));
    const int64_t axis = op->attr[DS_PLANES_AXIS].i;
    DS_CHECK(axis == 0 || axis == 1, DS_ARGUMENT, "%s: axis must be 0 or 1, got %lld", name,
             (long long)axis);
    return DS_OK;
}

ds_status ds_planes_check_bias(const ds_op *op, int64_t n_out)
{
    return ds_op_has_weight(op, DS_PLANES_BIAS)
               ? ds_op_require_weight(op, DS_PLANES_BIAS, "bias", 1, &n_out)
               : DS_OK;
}

ds_status ds_planes_check_numbers(const ds_op *op, int attr, int n)
{
    DS_CHECK(op->attr[attr].n_ints == 0 || op->attr[attr].n_ints == n, DS_ARGUMENT,
             "%s: %s must be %d numbers, got %d", op->def->name, op->def->attrs[attr].name, n,
             op->attr[attr].n_ints);
    return DS_OK;
}

bool ds_planes_next(ds_planes *planes, ds_plane *plane)
{
    const ds_op *op = planes->op;
    const ds_run *run = planes->run;
    for (; planes->row < run->n_rows; planes->row++, planes->frame = 0) {
        const ds_window *in = &run->in[planes->row];
        const ds_target *out = &run->out[planes->row];
        if (!ds_planes_images(op) && planes->frame == 0 && out->m0 < out->m1) {
            planes->frame = 1;
            plane->in = *in;
            plane->out = *out;
            plane->total =
                run->ended[planes->row] ? run->count[planes->row].now.total : DS_PADDING_OPEN;
            return true;
        }
        const int64_t m = out->m0 + planes->frame;
        if (ds_planes_images(op) && m < out->m1) {
            planes->frame++;
            plane->total = op->in[0].shape[0];
            plane->in = (ds_window){ds_at(in, m, ds_signature_bytes(&op->in[0])), 0, plane->total};
            plane->out =
                (ds_target){ds_to(out, m, ds_signature_bytes(&op->out[0])), 0, op->out[0].shape[0]};
            return true;
        }
    }
    return false;
}
