/* ops/planes.h: frames as planes of positions, and products of windows over them: what the four
 * convolutions share.
 *
 * in [C] (conv1d, conv_transpose1d): every frame is one position with C channels; the plane is
 * (stream, 1). in [lanes][C]: each lane is such a plane of its own.
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
 * each a single number.
 *
 * A window has taps on several rows of the plane and, on each, on several positions:
 *
 *     y[n] = sum over taps t, inner taps i and channels c of
 *            x[first + t * step][inner first + i * inner step][c] * w[n][t][i][c]  (+ bias[n])
 *
 * The sum runs tap by tap, within a tap by inner taps, within these channel by channel. So where
 * all of that lies in one contiguous run (one group; whole rows with step 1, or positions side
 * by side of one row), a window is passed by pointer; where there are gaps, channels are split
 * into groups, or padding is touched, it is copied first, in the same order and with explicit
 * zeros: the bits are equal either way.
 *
 * With G groups, C channels in and N out, group g makes outputs [gN/G, (g+1)N/G) of channels
 * [gC/G, (g+1)C/G): G products over one copied row [G][taps][C/G]. Where every group has one
 * channel (depthwise) no product is needed: y[n] = sum over t of x[..][n / (N/C)] * w[t][n], by a
 * kernel that skips even gaps itself; with N > C the copied row repeats each channel N/C times.
 *
 * Windows are collected until the room for copies is full or the stream ends; as no row of a
 * product depends on another, that leaves no trace in the results. */
#pragma once
#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/padding.h"

enum { DS_PLANES_AXIS = 0, DS_PLANES_WEIGHT = 0, DS_PLANES_BIAS = 1 };
enum { DS_PLANES_OF_ROWS, DS_PLANES_VECTORS }; /* members of the family */

/* The definition of an operator over planes, whose functions begin with `prefix`. */
#define DS_PLANES_OPERATOR(op, kind, text, prefix, narrow, line)                          \
    DS_OPERATOR_OF(op, text, 1, 1, -1), .member = kind,                                   \
        .flags = DS_OP_PACKS | DS_OP_REAL | DS_OP_NEEDS_FRAMES, .attrs = op##_attrs,      \
        .shapes = line, .infer = prefix##_infer, DS_COUNTED(prefix), DS_PREPARED(prefix), \
        .narrows = (narrow), .forward = prefix##_forward, .backward = prefix##_backward,  \
        .reads = DS_READS_X

/* Whether windows are of single positions: those of the operators without `axis`. */
static inline bool ds_planes_vectors(const ds_op *op)
{
    return op->def->member == DS_PLANES_VECTORS;
}

/* Whether frames are images: the plane lies within a frame. */
static inline bool ds_planes_images(const ds_op *op)
{
    return op->in[0].rank == 3;
}

/* Positions in a row of an input or output of this signature. */
static inline int64_t ds_planes_width(const ds_signature *s)
{
    return s->rank > 1 ? s->shape[s->rank - 2] : 1;
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

/* What infer asks of all: ranks, sizes, as many numbers as there should be (of padding n_padding). */
ds_status ds_planes_check(const ds_op *op, int n_padding);

/* Shape of windows and their product; all numbers >= 1. */
typedef struct ds_windows {
    size_t n_in, n_out, groups; /* both divisible by groups */
    int64_t n_taps, n_inner, step, inner_step;
    int64_t width; /* positions of a row */
    size_t element;
    bool depthwise, direct;   /* direct: one that touches no padding is passed by pointer */
    size_t all_taps, n_bytes; /* of all; of a copied window */
} ds_windows;

/* Windows of an operator. */
ds_windows ds_windows_make(const ds_op *op, int64_t groups, int64_t n_out, int64_t n_taps,
                           int64_t step, int64_t n_inner, int64_t inner_step);
/* Bytes of the prepared weight, a multiple of 64. */
size_t ds_windows_prepared_bytes(const ds_windows *s, const ds_real_kernels *k);
/* In infer: DS_LIMIT where sizes overflow with any kernels, n products of this shape or smaller having
 * weights; fills scratch: per output frame a window for each of its positions, per call the copies, which
 * are none where nothing is padded and nothing is copied otherwise. */
ds_status ds_windows_set_sizes(ds_op *op, const ds_windows *s, size_t n, bool padded);
/* Writes the packed weights, one for each group or one for all where windows are depthwise. layout: where the
 * first group's lie from element `start` of the weight on, its numbers filled in here; each next group's lie `group`
 * elements further. bias [N], or NULL. */
void ds_windows_prepare(const ds_windows *s, void *prepared, const void *const *weights,
                        size_t start, size_t group, ds_weight_layout *layout, const void *bias,
                        const ds_real_kernels *k);

/* The rows of a plane at hand, those to compute, and its number of rows (DS_PADDING_OPEN while its stream goes
 * on). */
typedef struct ds_plane {
    ds_window in;
    ds_target out;
    ds_slope dx; /* backward: of `in` */
    int64_t total;
    size_t row; /* of the run */
} ds_plane;

/* Planes of a row of a run, and one of them; dx: slopes of the row's window, or NULL. */
int64_t ds_planes_count(const ds_op *op, const ds_run *run, size_t row);
ds_plane ds_planes_at(const ds_op *op, const ds_run *run, size_t row, int64_t i,
                      const ds_slope *dx);

/* Where taps are along one axis: the first, and what stands below 0 and from total on. */
typedef struct ds_window_place {
    int64_t first;
    ds_padding_mode mode;
    int64_t total;
} ds_window_place;

/* A product being collected. */
typedef struct ds_window_product {
    ds_windows shape;
    const ds_run *run;
    const void *prepared;
    void **y; /* [n windows of the call] */
    const void **x;
    const void **operands; /* as ds_run_operands */
    char *copies;
    size_t n, n_copies, max_copies;
    bool in_place;               /* the collected depthwise windows are passed by pointer */
    struct ds_window_turn *turn; /* backward; NULL: forward */
} ds_window_product;

/* scratch: as ds_windows_set_sizes has it. */
void ds_window_begin(ds_window_product *p, const ds_windows *s, const ds_op *op, const ds_run *run,
                     const void *prepared, void *scratch);
/* Adds a window of the plane; padding as in ops/padding.h. */
void ds_window_add(ds_window_product *p, void *y, const ds_plane *plane, ds_window_place along,
                   ds_window_place inner);
/* Adds n windows beside each other, outputs of y_bytes each, inner taps `apart` positions from one to the next: none of
 * these touches padding within the frame. */
void ds_window_add_run(ds_window_product *p, char *y, size_t y_bytes, size_t n,
                       const ds_plane *plane, ds_window_place along, ds_window_place inner,
                       size_t apart);
/* Computes what has been collected. */
void ds_window_flush(ds_window_product *p);

/* ---------------------------------------------------------------- backward (planes_back.c)
 *
 * The same walk collects the same windows, in slabs; `y` are slopes of outputs. Of a slab a window's slopes are made
 * tap by tap, each a product with the tap's matrix the other way round, and added where forward took its values
 * from; slopes of weights are the product of the outputs' slopes and copied windows. */
typedef struct ds_window_turn {
    const ds_back *b;
    const void
        *weight; /* of the first group, and its slope (NULL: not wanted), as layout has them */
    char *dw;
    size_t group; /* elements from the weights of a group to those of the next */
    ds_weight_layout layout;
    struct ds_window_seen *seen; /* [n]: where windows are */
    void **dx;                   /* [n] */
    double *sums;                /* depthwise: [taps][N] */
    char *packed;                /* a matrix for each tap of each group; depthwise: one for all */
    bool wanted;                 /* slopes of the input */
    ds_room room;
} ds_window_turn;

/* In infer: room for it in back_scratch, for windows of this shape or smaller. */
void ds_windows_set_back_sizes(ds_op *op, const ds_windows *s);
/* b's run, whose targets hold slopes of outputs. */
ds_run ds_windows_turned(const ds_back *b, ds_room *room);
/* layout, group: as for ds_windows_prepare; start: of the first group's weights, in elements. */
void ds_window_begin_back(ds_window_product *p, ds_window_turn *turn, const ds_windows *s,
                          const ds_back *b, const ds_run *run, const ds_weight_layout *layout,
                          size_t group, size_t start, ds_room room);
void ds_window_end_back(ds_window_product *p);
/* Collects a window; computes a slab. */
void ds_window_see(ds_window_product *p, void *g, const ds_plane *plane, ds_window_place along,
                   ds_window_place inner);
void ds_window_flush_back(ds_window_product *p);
/* Adds what all outputs' slopes make of it to the bias's. */
void ds_windows_bias_back(const ds_op *op, const ds_back *b, ds_room room);
/* A window's copy, [taps][C], [G][taps][C / G], or where channels are repeated [taps][N]. */
void ds_window_copy(const ds_windows *s, char *row, const ds_window *in, ds_window_place along,
                    ds_window_place inner);
