/* ops/window_product.h: products of windows over a stream with one weight, the work of
 * convolutions and of each phase of transposed ones.
 *
 * A frame is a row of `width` positions of C channels (one position: a stream of vectors). A
 * window has taps on several frames and, on each, on several positions:
 *
 *     y[n] = sum over taps t, inner taps i and channels c of
 *            x[first + t * step][inner first + i * inner_step][c] * w[n][t][i][c]  (+ bias[n])
 *
 * The sum runs tap by tap, within a tap by inner taps, within these channel by channel. So where
 * all of that lies in one contiguous run (one group; whole frames with step 1, or positions side
 * by side of one frame), a window is passed by pointer; where there are gaps, channels are split
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
#ifndef DS_OPS_WINDOW_PRODUCT_H
#define DS_OPS_WINDOW_PRODUCT_H
#include "ops/padding.h"

/* Shape of the product; all numbers >= 1. */
typedef struct ds_window_shape {
    size_t n_in, n_out, groups; /* both divisible by groups */
    size_t n_taps, n_inner;
    int64_t step;       /* frames between taps */
    int64_t inner_step; /* positions between inner taps */
    size_t width;       /* positions of a frame */
    size_t element;
} ds_window_shape;

/* Where taps are along one axis: the first, and what stands below 0 and from total on. */
typedef struct ds_window_place {
    int64_t first;
    ds_padding_mode mode;
    int64_t total;
} ds_window_place;

/* Bytes of the prepared weight, a multiple of 64. */
size_t ds_window_prepared_bytes(const ds_window_shape *s, const ds_real_kernels *k);
/* Bytes for the copies of windows, not less for longer ones; none where nothing is padded and nothing is
 * copied otherwise. */
size_t ds_window_copy_bytes(const ds_window_shape *s, bool padded);
/* What such a product may end with (op->finishes). */
unsigned ds_window_finishes(const ds_window_shape *s);
/* DS_LIMIT where the sizes above overflow with any kernels; fills the most that a prepared weight takes. */
ds_status ds_window_check(const ds_window_shape *s, size_t *most);
/* Writes the packed weights, one for each group or one for all where windows are depthwise. layout: where the
 * first group's lie from `weight` on, its numbers filled in here; each next group's lie `group` elements further.
 * bias [N], or NULL. */
void ds_window_prepare(const ds_window_shape *s, void *prepared, const void *weight, size_t group,
                       ds_weight_layout *layout, const void *bias, const ds_real_kernels *k);

/* A product being collected. */
typedef struct ds_window_product {
    ds_window_shape shape;
    const ds_run *run;
    const void *prepared;
    void **y; /* [n windows of the call] */
    const void **x;
    char *copies;
    size_t n, n_copies, max_copies;
    bool depthwise, direct; /* direct: windows that touch no padding are passed by pointer */
    size_t tap_stride;      /* of the collected depthwise windows */
} ds_window_product;

/* scratch holds 2 * n_windows pointers, then copy_bytes. */
void ds_window_begin(ds_window_product *p, const ds_window_shape *s, const ds_run *run,
                     const void *prepared, void *scratch, size_t n_windows);
/* Adds a window of `in`; padding as in ops/padding.h. */
void ds_window_add(ds_window_product *p, void *y, const ds_window *in, ds_window_place along,
                   ds_window_place inner);
/* Computes what has been collected. */
void ds_window_flush(ds_window_product *p);

#endif
