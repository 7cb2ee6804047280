/* ops/axis.c: positions of a feature axis kept, joined, repeated or added; every operator here says which position
 * of which input stands at each of its own. All counts are those of input 0.
 *
 *     narrow        positions start, start + step, ... below start + length   (torch.Tensor.narrow)
 *     pick          position i: index[i], the nearest one that there is       (torch.index_select)
 *     cat           those of all inputs in turn, which progress in lockstep   (torch.cat)
 *     nearest       position i: min(floor(i step), n - 1)                     (torch interpolate, mode "nearest")
 *     pad_features  position j - left where the axis has it, else             (torch.nn.functional.pad)
 *                       a value                                  constant
 *                       0, n - 1                                 replicate
 *                       left - j, 2(n - 1) - (j - left)          reflect; at most n - 1 at each end
 *                       (j - left) mod n                         circular; at most n at each end
 *
 * step of nearest, in single precision, is 1 / scale, or n / size without a scale; i itself where size = n, and
 * floor(i / 2) where size = 2 n: torch's rounding of positions. */
#include <math.h>

#include "ops/move.h"
#include "ops/padding.h"
#include "ops/registry.h"

/* The first attribute of all. */
#define AXIS                                                                        \
    {"axis", DS_ATTR_INT, .required = true, .doc = "the feature dimension, from 0", \
     .range = DS_AXIS}

static const ds_attr_def axis_attrs[] = {AXIS, {0}};

/* Its size in output 0, which is preset to the input's. */
static int64_t *axis_size(ds_op *op)
{
    return &op->out[0].shape[op->attr[0].i];
}

/* The pieces of all positions, by the one whose element stands at each: of those that stand equally far apart one. */
static void source_pieces(const ds_op *op, const ds_move *move,
                          int64_t (*source)(const ds_op *op, const ds_move *move, int64_t i))
{
    const int axis = (int)op->attr[0].i;
    const int64_t size = op->out[0].shape[axis];
    for (int64_t i = 0, n; i < size; i += n) {
        const int64_t first = source(op, move, i);
        const int64_t step = i + 1 < size ? source(op, move, i + 1) - first : 0;
        for (n = 1; i + n < size && source(op, move, i + n) == first + n * step; n++)
            continue;
        const ds_piece p = ds_piece_along(op, axis, i, n, 0, first, step);
        ds_move_piece(move, &p);
    }
}

/* ---------------------------------------------------------------- narrow */

enum { NARROW_AXIS, NARROW_START, NARROW_LENGTH, NARROW_STEP };

static const ds_attr_def narrow_attrs[] = {
    AXIS,
    {"start", DS_ATTR_INT, .doc = "its first index that is kept", .range = DS_FROM_0},
    {"length", DS_ATTR_INT, .required = true, .doc = "indices from the first on",
     .range = DS_FROM_1},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of these every step-th is kept", .range = DS_FROM_1},
    {0}};

static ds_status narrow_infer(ds_op *op)
{
    const int64_t start = op->attr[NARROW_START].i, end = start + op->attr[NARROW_LENGTH].i;
    int64_t *const size = axis_size(op);
    DS_CHECK(end <= *size, DS_SHAPE, "narrow: [%lld, %lld) exceeds dimension %lld, of size %lld",
             (long long)start, (long long)end, (long long)op->attr[NARROW_AXIS].i,
             (long long)*size);
    *size = (end - start - 1) / op->attr[NARROW_STEP].i + 1;
    return DS_OK;
}

static void narrow_pieces(const ds_op *op, const ds_move *move)
{
    const int axis = (int)op->attr[NARROW_AXIS].i;
    const ds_piece p = ds_piece_along(op, axis, 0, op->out[0].shape[axis], 0,
                                      op->attr[NARROW_START].i, op->attr[NARROW_STEP].i);
    ds_move_piece(move, &p);
}

const ds_op_def ds_op_narrow = {
    DS_OPERATOR_OF(narrow, "Part of a feature dimension, or every step-th of it.", 1, 1, 1),
    .infer = narrow_infer, .attrs = narrow_attrs, DS_MOVED(narrow_pieces, 0)};

/* ---------------------------------------------------------------- pick */

static ds_status pick_infer(ds_op *op)
{
    *axis_size(op) = op->weight[0].shape[0];
    return DS_OK;
}

static int64_t pick_source(const ds_op *op, const ds_move *move, int64_t i)
{
    const int64_t index = ((const int64_t *)move->run->weights[0])[i];
    const int64_t last = op->in[0].shape[op->attr[0].i] - 1;
    return index < 0 ? 0 : index > last ? last : index;
}

static void pick_pieces(const ds_op *op, const ds_move *move)
{
    source_pieces(op, move, pick_source);
}

const ds_op_def ds_op_pick = {
    DS_OPERATOR_OF(pick, "Positions of a feature dimension, by their indices.", 1, 1, 1),
    .infer = pick_infer, .attrs = axis_attrs, DS_MOVED(pick_pieces, DS_MOVE_WITHIN),
    .shapes = "index [n]: int64"};

/* ---------------------------------------------------------------- cat */

static ds_status cat_infer(ds_op *op)
{
    const int64_t axis = op->attr[0].i;
    const ds_signature *out = &op->out[0];
    int64_t *const size = axis_size(op);
    for (int i = 1; i < op->n_inputs; i++) {
        DS_CHECK(op->in[i].dtype == out->dtype, DS_DTYPE, "cat: input 0 is %s but input %d is %s",
                 ds_dtype_name(out->dtype), i, ds_dtype_name(op->in[i].dtype));
        ds_signature expected = op->in[0];
        if (op->in[i].rank == expected.rank)
            expected.shape[axis] = op->in[i].shape[axis];
        DS_CHECK(ds_signature_same_shape(&expected, &op->in[i]), DS_SHAPE,
                 "cat: shapes %s and %s differ in more than dimension %lld",
                 DS_SHAPE_TEXT(&op->in[0]), DS_SHAPE_TEXT(&op->in[i]), (long long)axis);
        *size += op->in[i].shape[axis];
    }
    return DS_OK;
}

static void cat_pieces(const ds_op *op, const ds_move *move)
{
    const int axis = (int)op->attr[0].i;
    for (int64_t i = 0, to = 0; i < op->n_inputs; to += op->in[i++].shape[axis]) {
        const ds_piece p = ds_piece_along(op, axis, to, op->in[i].shape[axis], (int)i, 0, 1);
        ds_move_piece(move, &p);
    }
}

const ds_op_def ds_op_cat = {
    DS_OPERATOR_OF(cat, "Joins streams along a feature dimension.", 2, 1, -1),
    .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC, .attrs = axis_attrs, .infer = cat_infer,
    DS_MOVED(cat_pieces, DS_MOVE_WITHIN)};

/* ---------------------------------------------------------------- nearest */

enum { NEAREST_AXIS, NEAREST_SIZE, NEAREST_SCALE };

static const ds_attr_def nearest_attrs[] = {
    AXIS,
    {"size", DS_ATTR_INT, .required = true, .doc = "its new size", .range = DS_FROM_1},
    {"scale", DS_ATTR_REAL, .doc = "new elements per old one, for their places; 0: by the sizes",
     .range = DS_FROM_0},
    {0}};

static ds_status nearest_infer(ds_op *op)
{
    *axis_size(op) = op->attr[NEAREST_SIZE].i;
    return DS_OK;
}

/* The position whose element stands at position i, where the sizes decide nothing. */
static int64_t nearest_source(const ds_op *op, const ds_move *move, int64_t i)
{
    (void)move;
    const int64_t n = op->in[0].shape[op->attr[NEAREST_AXIS].i];
    const int64_t size = op->attr[NEAREST_SIZE].i;
    const double scale = op->attr[NEAREST_SCALE].x;
    const float step = scale > 0 ? (float)(1.0 / scale) : (float)n / (float)size;
    const float place = floorf((float)i * step);
    return place < (float)n && (int64_t)place < n ? (int64_t)place : n - 1;
}

/* A whole number of positions for each, or pieces whose sources stand equally far apart. */
static void nearest_pieces(const ds_op *op, const ds_move *move)
{
    const int axis = (int)op->attr[NEAREST_AXIS].i;
    const int64_t size = op->attr[NEAREST_SIZE].i, n_in = op->in[0].shape[axis];
    if (size == n_in || size == 2 * n_in) {
        ds_piece p = ds_piece_along(op, axis, 0, n_in, 0, 0, 1);
        p.axis[3] = p.axis[2];
        p.axis[2].size = size / n_in;
        p.axis[2].to = p.axis[1].to;
        p.axis[2].from = 0;
        p.axis[1].to *= size / n_in;
        p.rank = 4;
        ds_move_piece(move, &p);
        return;
    }
    source_pieces(op, move, nearest_source);
}

const ds_op_def ds_op_nearest = {
    DS_OPERATOR_OF(nearest, "A feature dimension of another size, by the nearest elements.", 1, 1,
                   1),
    .infer = nearest_infer, .flags = DS_OP_NEEDS_FRAMES, .attrs = nearest_attrs,
    DS_MOVED(nearest_pieces, DS_MOVE_WITHIN)};

/* ---------------------------------------------------------------- pad_features */

enum { PAD_AXIS, PAD_LEFT, PAD_RIGHT, PAD_MODE, PAD_VALUE };

static const ds_attr_def pad_features_attrs[] = {
    AXIS,
    {"left", DS_ATTR_INT, .doc = "elements before the first"},
    {"right", DS_ATTR_INT,
     .doc =
         "elements behind the last; below 0, in mode constant: how many of the last are left out"},
    {"mode", DS_ATTR_CHOICE, .choices = "constant|replicate|reflect|circular",
     .doc = "what they hold"}, /* in the order of ds_padding_mode */
    {"value", DS_ATTR_REAL, .doc = "of every element, in mode constant"},
    {0}};

static ds_status pad_features_infer(ds_op *op)
{
    const int64_t left = op->attr[PAD_LEFT].i, right = op->attr[PAD_RIGHT].i,
                  mode = op->attr[PAD_MODE].i, widest = left > right ? left : right;
    int64_t *const size = axis_size(op);
    const int64_t least = mode == DS_PADDING_ZEROS && *size > 0 ? 1 - *size : 0;
    DS_CHECK(left >= 0 && right >= least && widest <= DS_PADDING_LIMIT, DS_ARGUMENT,
             "pad_features: left and right must be 0 to %lld, got %lld and %lld",
             (long long)DS_PADDING_LIMIT, (long long)left, (long long)right);
    const int64_t most = mode == DS_PADDING_REFLECT    ? *size - 1
                         : mode == DS_PADDING_CIRCULAR ? *size
                                                       : widest;
    DS_CHECK(widest <= most, DS_SHAPE,
             "pad_features: a dimension of size %lld can be padded by %lld at most in this mode, "
             "got %lld",
             (long long)*size, (long long)most, (long long)widest);
    *size += left + right;
    op->needs_frames = mode == DS_PADDING_REPLICATE || mode == DS_PADDING_REFLECT;
    return ds_move_require_value(op, PAD_VALUE);
}

/* n positions from `to` on that lie in padding; the axis has them at from, from + step, ... if anywhere. */
static void pad_features_end(const ds_op *op, const ds_move *move, int64_t to, int64_t n,
                             int64_t from, int64_t step)
{
    const bool constant = op->attr[PAD_MODE].i == DS_PADDING_ZEROS;
    ds_piece p = ds_piece_along(op, (int)op->attr[PAD_AXIS].i, to, n, constant ? DS_MOVE_FILL : 0,
                                from, step);
    p.value = op->attr[PAD_VALUE].x;
    if (n > 0)
        ds_move_piece(move, &p);
}

static void pad_features_pieces(const ds_op *op, const ds_move *move)
{
    const int axis = (int)op->attr[PAD_AXIS].i;
    const int64_t n = op->in[0].shape[axis], left = op->attr[PAD_LEFT].i,
                  right = op->attr[PAD_RIGHT].i;
    const ds_padding_mode mode = (ds_padding_mode)op->attr[PAD_MODE].i;
    const int64_t step = mode == DS_PADDING_REFLECT ? -1 : mode == DS_PADDING_CIRCULAR ? 1 : 0;
    const ds_piece own = ds_piece_along(op, axis, left, right < 0 ? n + right : n, 0, 0, 1);
    pad_features_end(op, move, 0, left, ds_padding_source(mode, -left, n), step);
    ds_move_piece(move, &own);
    pad_features_end(op, move, left + n, right, ds_padding_source(mode, n, n), step);
}

const ds_op_def ds_op_pad_features = {
    DS_OPERATOR_OF(pad_features, "Adds elements at both ends of a feature dimension.", 1, 1, 1),
    .infer = pad_features_infer, .attrs = pad_features_attrs,
    DS_MOVED(pad_features_pieces, DS_MOVE_WITHIN)};
