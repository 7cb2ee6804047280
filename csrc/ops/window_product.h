/* ops/window_product.h: products of windows over a stream with one weight, the work of conv1d and of
 * each phase of conv_transpose1d.
 *
 *     y[n] = sum over taps t and channels c of x[first + t * step][c] * w[n][t][c]  (+ bias[n])
 *
 * The sum runs tap by tap and, within a tap, channel by channel. So with step 1 and one group a
 * window is a contiguous run of the stream's frames and is passed by pointer; where frames have gaps
 * between them, channels are split into groups, or padding is touched, it is copied first, in the
 * same order and with explicit zeros: the bits are equal either way.
 *
 * With G groups, C channels in and N out, group g makes outputs [gN/G, (g+1)N/G) of channels
 * [gC/G, (g+1)C/G): G products over one copied row [G][taps][C/G]. Where every group has one channel
 * (depthwise) no product is needed: y[n] = sum over t of x[..][n / (N/C)] * w[t][n], by a kernel that
 * skips the gaps itself; with N > C the copied row repeats each channel N/C times.
 *
 * Windows are collected until the room for copies is full or the stream ends; as no row of a product
 * depends on another, that leaves no trace in the results. */
#ifndef DS_OPS_WINDOW_PRODUCT_H
#define DS_OPS_WINDOW_PRODUCT_H
#include "ops/padding.h"

/* Shape of the product. */
typedef struct ds_window_shape {
    size_t n_in, n_out, groups; /* both divisible by groups */
    size_t n_taps;              /* all >= 1 */
    int64_t step;               /* frames between taps, >= 1 */
    size_t element;
} ds_window_shape;

/* Weight (n, t, c) with n < n_out, c < n_in / groups: weight[start + n * col + t * tap + c * channel]
 * for the first group, and `group` elements further for each next one, n counting within the group. */
typedef struct ds_window_weight {
    size_t start, group;
    ptrdiff_t col, tap, channel;
} ds_window_weight;

/* Bytes of the prepared weight, a multiple of 64. */
size_t ds_window_prepared_bytes(const ds_window_shape *s);
/* Bytes for the copies of windows, a multiple of 64; none where nothing is padded and nothing is
 * copied otherwise. */
size_t ds_window_copy_bytes(const ds_window_shape *s, bool padded);
/* DS_LIMIT where the sizes above overflow. */
ds_status ds_window_check(const ds_window_shape *s);
void ds_window_prepare(const ds_window_shape *s, void *prepared, const void *weight,
                       const ds_window_weight *layout, const ds_real_kernels *k);

/* A product being collected. */
typedef struct ds_window_product {
    ds_window_shape shape;
    const ds_real_kernels *k;
    const void *prepared, *bias;
    void **y; /* [n windows of the call] */
    const void **x;
    char *copies;
    size_t n, n_copies, max_copies;
    size_t tap_stride; /* of the collected depthwise windows */
} ds_window_product;

/* scratch holds copies (copy_bytes of it), then 2 * n_windows pointers. */
void ds_window_begin(ds_window_product *p, const ds_window_shape *s, const ds_real_kernels *k,
                     const void *prepared, const void *bias, void *scratch, size_t copy_bytes,
                     size_t n_windows);
/* Adds the window whose first tap is at frame `first`; padding as in ops/padding.h. */
void ds_window_add(ds_window_product *p, void *y, const ds_window *in, int64_t first,
                   ds_padding_mode mode, int64_t total);
/* Computes what has been collected. */
void ds_window_flush(ds_window_product *p);

#endif
