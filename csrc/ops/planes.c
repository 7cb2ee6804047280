/* ops/planes.c: checks and walks over frames that are planes of positions. */
#include "ops/planes.h"

int64_t ds_planes_number(const ds_op *op, int attr, int i, int64_t usual)
{
    const ds_attr_value *value = ds_planes_attr(op, attr);
    if (ds_planes_vectors(op))
        return i == 0 ? value->i : usual;
    return value->n_ints == 0 ? usual : value->ints[i];
}

int64_t ds_planes_kernel(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[DS_PLANES_WEIGHT];
    if (weight->rank == 3)
        return (i == 0) == ds_planes_vectors(op) ? weight->shape[2] : 1;
    return weight->shape[op->attr[DS_PLANES_AXIS].i == i ? 2 : 3];
}

int64_t ds_planes_tap(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[DS_PLANES_WEIGHT];
    return weight->rank == 4 && op->attr[DS_PLANES_AXIS].i == i ? weight->shape[3] : 1;
}

ds_status ds_planes_check(const ds_op *op, bool vectors)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[DS_PLANES_WEIGHT];
    const char *name = op->def->name;
    char text[160];
    DS_TRY(ds_op_require_real(op));
    bool sized = vectors ? in->rank == 1 : in->rank == 2 || in->rank == 3;
    for (int d = 0; sized && d < in->rank; d++)
        sized = in->shape[d] >= 1 && (vectors || in->shape[d] <= DS_PADDING_LIMIT);
    DS_CHECK(sized, DS_SHAPE, "%s: expected an input of shape %s, got %s", name,
             vectors ? "(channels,)" : "(positions, channels) or (rows, positions, channels)",
             ds_signature_text(in, text, sizeof text));
    if (vectors)
        return DS_OK;
    DS_CHECK(weight->rank == 3 || weight->rank == 4, DS_SHAPE,
             "%s: its weight 'weight' must have four dimensions, of which the last two are the "
             "kernel's, or three for windows within a frame, got %s",
             name, ds_signature_text(weight, text, sizeof text));
    const int64_t axis = op->attr[DS_PLANES_AXIS].i;
    DS_CHECK(axis == 0 || axis == 1, DS_ARGUMENT, "%s: axis must be 0 or 1, got %lld", name,
             (long long)axis);
    return DS_OK;
}

ds_status ds_planes_check_numbers(const ds_op *op, int attr, int n)
{
    const int n_ints = ds_planes_vectors(op) ? 0 : op->attr[attr].n_ints;
    DS_CHECK(n_ints == 0 || n_ints == n, DS_ARGUMENT, "%s: %s must be %d numbers, got %d",
             op->def->name, op->def->attrs[attr].name, n, n_ints);
    return DS_OK;
}

bool ds_planes_image_counts(const ds_op *op, ds_program *p)
{
    if (!ds_planes_images(op))
        return false;
    ds_root(p, ds_known(p, 0));
    ds_root(p, ds_total(p, 0));
    return true;
}

bool ds_planes_image_need(const ds_op *op, ds_program *p)
{
    if (!ds_planes_images(op))
        return false;
    ds_root(p, ds_m(p));
    return true;
}

bool ds_planes_next(ds_planes *planes, ds_plane *plane)
{
    const ds_op *op = planes->op;
    const ds_run *run = planes->run;
    const bool images = ds_planes_images(op);
    for (; planes->row < run->n_rows; planes->row++, planes->frame = 0) {
        const ds_window *in = &run->in[planes->row];
        const ds_target *out = &run->out[planes->row];
        const int64_t m = out->m0 + planes->frame;
        if (m >= out->m1)
            continue;
        plane->in = *in;
        plane->out = *out;
        plane->total = DS_PADDING_OPEN;
        if (images) {
            planes->frame++;
            plane->total = op->in[0].shape[0];
            plane->in = (ds_window){ds_at(in, m, ds_signature_bytes(&op->in[0])), 0, plane->total};
            plane->out =
                (ds_target){ds_to(out, m, ds_signature_bytes(&op->out[0])), 0, op->out[0].shape[0]};
            return true;
        }
        if (run->ended[planes->row])
            plane->total = run->count[planes->row].now.total;
        planes->row++;
        return true;
    }
    return false;
}
