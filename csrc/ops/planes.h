/* ops/planes.h: frames that are rows of positions, what conv2d and conv_transpose2d share.
 *
 * in [F][C]: every frame is a row of F positions with C channels. A window spans frames along the
 * stream and positions within them, so that the plane is (stream, F).
 *
 * in [H][F][C]: every frame is an image of its own, of H rows; its plane is (H, F), nothing is
 * kept between frames, and "along" the plane's first axis means along its rows.
 *
 * The weight is torch's, (out, in, kernel 0, kernel 1); attribute 0, `axis`, says which of the
 * kernel axes runs along the plane's first axis. A weight (out, in, kernel) has one tap along
 * that axis. The attributes with one number for each axis of the plane give that of the first
 * axis first; without any they stand for the usual number. */
#ifndef DS_OPS_PLANES_H
#define DS_OPS_PLANES_H
#include "ops/op.h"

enum { DS_PLANES_AXIS = 0, DS_PLANES_WEIGHT = 0, DS_PLANES_BIAS = 1 };

/* Number i of an attribute; `usual` where none are given. */
static inline int64_t ds_planes_number(const ds_op *op, int attr, int i, int64_t usual)
{
    return op->attr[attr].n_ints == 0 ? usual : op->attr[attr].ints[i];
}

/* Kernel size along axis i of the plane, and elements from one tap to the next in the weight. */
int64_t ds_planes_kernel(const ds_op *op, int i);
int64_t ds_planes_tap(const ds_op *op, int i);

/* Whether frames are images: the plane lies within a frame. */
static inline bool ds_planes_images(const ds_op *op)
{
    return op->in[0].rank == 3;
}

/* What infer asks of both: types, ranks, sizes, the axis, a bias of n_out numbers. */
ds_status ds_planes_check(const ds_op *op);
ds_status ds_planes_check_bias(const ds_op *op, int64_t n_out);
/* DS_ARGUMENT unless the attribute has no numbers or n. */
ds_status ds_planes_check_numbers(const ds_op *op, int attr, int n);

/* Goes through the planes of a run: `in` are the rows at hand, `out` those to compute, `total` the
 * plane's number of rows (DS_PADDING_OPEN while its stream goes on). */
typedef struct ds_planes {
    const ds_op *op;
    const ds_run *run;
    size_t row;    /* of the run */
    int64_t frame; /* images: of this row's outputs, how many are done */
} ds_planes;

typedef struct ds_plane {
    ds_window in;
    ds_target out;
    int64_t total;
} ds_plane;

/* The next plane with anything to compute; false where there is none. */
bool ds_planes_next(ds_planes *planes, ds_plane *plane);

#endif
