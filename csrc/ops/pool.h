/* ops/pool.h: windows that are reduced to their largest or mean element, along the stream and along an
 * inner axis: what max_pool, avg_pool and adaptive_pool share.
 *
 * A frame is seen as [F][C]: F is its first feature axis (the inner axis), C all others. Output (m, g)
 * is made of the elements
 *
 *     x[m stride - left + t dilation][g inner_stride - inner_padding + u inner_dilation],
 *     t < kernel, u < inner_kernel
 *
 * channel by channel; those that lie in padding are left out. The counts are those of ops/padding.h, but
 * that with `ceil` a window may hang over the end, if it starts before the right padding:
 *
 *     total'  = n + 1 where n stride < total + left, else n;   n = ceil((total + left + right - span) / stride)
 *
 * A window that lies within what is known is there in any case, so ceil holds nothing back.
 *
 * Source: torch.nn.functional.max_pool2d, avg_pool2d (there left = right). */
#ifndef DS_OPS_POOL_H
#define DS_OPS_POOL_H
#include "ops/padding.h"

/* The attributes that both have, first in their lists and in this order. */
enum {
    DS_POOL_KERNEL,
    DS_POOL_STRIDE,
    DS_POOL_LEFT,
    DS_POOL_RIGHT,
    DS_POOL_CEIL,
    DS_POOL_INNER_KERNEL,
    DS_POOL_INNER_STRIDE,
    DS_POOL_INNER_PADDING,
    DS_POOL_OWN /* the first of the operator's own */
};

#define DS_POOL_ATTRS                                                                            \
    {.name = "kernel", .kind = DS_ATTR_INT, .i = 1, .doc = "frames in a window"},                \
        {.name = "stride", .kind = DS_ATTR_INT, .i = 1, .doc = "frames from window to window"},  \
        {.name = "left", .kind = DS_ATTR_INT, .doc = "frames of padding before the first"},      \
        {.name = "right", .kind = DS_ATTR_INT, .doc = "frames of padding after the last"},       \
        {.name = "ceil",                                                                         \
         .kind = DS_ATTR_INT,                                                                    \
         .doc = "1: a last window may hang over the end, on both axes"},                         \
        {.name = "inner_kernel",                                                                 \
         .kind = DS_ATTR_INT,                                                                    \
         .i = 1,                                                                                 \
         .doc = "elements of the first feature axis in a window"},                               \
        {.name = "inner_stride",                                                                 \
         .kind = DS_ATTR_INT,                                                                    \
         .i = 1,                                                                                 \
         .doc = "elements from window to window"},                                               \
    {                                                                                            \
        .name = "inner_padding", .kind = DS_ATTR_INT, .doc = "elements of padding at both ends"  \
    }

typedef struct ds_pool {
    ds_padding frames, inner;
    bool ceil;
    int64_t n_in, n_out; /* along the inner axis */
    size_t n_channels;
} ds_pool;

/* Windows of an operator whose attributes begin as above. */
ds_pool ds_pool_of(const ds_op *op, int64_t dilation, int64_t inner_dilation);
/* Checks the windows, fills all of op that infer has to. */
ds_status ds_pool_infer(ds_op *op, const ds_pool *pool);
void ds_pool_counts(const ds_pool *pool, ds_program *p);
void ds_pool_need(const ds_pool *pool, ds_program *p);

/* Positions first, first + step, ..., n of them: what is left of a window without padding. */
typedef struct ds_taps {
    int64_t first, step, n;
} ds_taps;

/* The taps of window m that lie within [0, size). */
ds_taps ds_pool_taps(const ds_padding *window, int64_t m, int64_t size);

/* y[C] = the largest of x over both taps, -inf of none; NaN wins. */
void ds_pool_max(const ds_op *op, const ds_run *run, const ds_window *x, ds_taps frames,
                 ds_taps inner, size_t n_channels, void *y);
/* y[C] = the sum of x over both taps / divisor; scratch holds C doubles. */
void ds_pool_mean(const ds_op *op, const ds_run *run, const ds_window *x, ds_taps frames,
                  ds_taps inner, size_t n_channels, double divisor, void *y);

#endif
