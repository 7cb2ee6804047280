/* ops/planes.h: frames as planes of positions, what the four convolutions share.
 *
 * in [C] (conv1d, conv_transpose1d): every frame is one position with C channels; the plane is
 * (stream, 1).
 *
 * in [F][C] (conv2d, conv_transpose2d): every frame is a row of F positions. A window spans frames
 * along the stream and positions within them, so that the plane is (stream, F).
 *
 * in [H][F][C]: every frame is an image of its own, of H rows; its plane is (H, F), nothing is
 * kept between frames, and "along" the plane's first axis means along its rows.
 *
 * The weight is torch's, (out, in, kernel 0, kernel 1); attribute 0, `axis`, says which of the
 * kernel axes runs along the plane's first axis. A weight (out, in, kernel) has one tap along
 * that axis; for frames of one position it has one along the other. Attributes with one number for
 * each axis of the plane give that of the first axis first; without any they stand for the usual
 * number. The operators for frames of one position have the attributes of the others but `axis`,
 * each a single number. */
#ifndef DS_OPS_PLANES_H
#define DS_OPS_PLANES_H
#include "ops/framewise.h"
#include "ops/padding.h"

enum { DS_PLANES_AXIS = 0, DS_PLANES_WEIGHT = 0, DS_PLANES_BIAS = 1 };

/* Whether frames are single positions. */
static inline bool ds_planes_vectors(const ds_op *op)
{
    return op->in[0].rank == 1;
}

/* Whether frames are images: the plane lies within a frame. */
static inline bool ds_planes_images(const ds_op *op)
{
    return op->in[0].rank == 3;
}

/* Of the signature of an input or output: positions in a row, in a frame. */
static inline int64_t ds_planes_width(const ds_signature *s)
{
    return s->rank > 1 ? s->shape[s->rank - 2] : 1;
}

static inline int64_t ds_planes_positions(const ds_signature *s)
{
    return ds_planes_width(s) * (s->rank > 2 ? s->shape[0] : 1);
}

/* An attribute by its place among those of the operator with `axis`. */
static inline const ds_attr_value *ds_planes_attr(const ds_op *op, int attr)
{
    return &op->attr[ds_planes_vectors(op) ? attr - 1 : attr];
}

/* Number i of such an attribute; `usual` where none are given. */
int64_t ds_planes_number(const ds_op *op, int attr, int i, int64_t usual);
/* Kernel size along axis i of the plane, and elements from one tap to the next in the weight. */
int64_t ds_planes_kernel(const ds_op *op, int i);
int64_t ds_planes_tap(const ds_op *op, int i);

/* The definition of an operator over planes, whose functions begin with `prefix`. */
#define DS_PLANES_OPERATOR(op, text, prefix)                                                       \
    .name = #op, .doc = text, .n_inputs = 1, .n_outputs = 1, .n_values = -1, .flags = DS_OP_PACKS, \
    .attrs = op##_attrs, .weights = "weight bias?", .infer = prefix##_infer,                       \
    .counts = prefix##_counts, .need = prefix##_need, .prepared_bytes = prefix##_prepared_bytes,   \
    .prepare = prefix##_prepare, .forward = prefix##_forward

/* What infer asks of all: types, ranks, sizes, the axis. vectors: frames must be single positions. */
ds_status ds_planes_check(const ds_op *op, bool vectors);
/* DS_ARGUMENT unless the attribute has no numbers or n. */
ds_status ds_planes_check_numbers(const ds_op *op, int attr, int n);
/* The roots of counts and of need of images; false for others. */
bool ds_planes_image_counts(const ds_op *op, ds_program *p);
bool ds_planes_image_need(const ds_op *op, ds_program *p);

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
