/* ops/padding.h: windows over a padded stream, the integers that conv1d, pad, frame and pooling share.
 *
 * The stream is thought of as padded by `left` frames before its first and `right` frames after its
 * last. Output m sees the frames at m * stride - left + tap * dilation, tap = 0 .. kernel - 1, where
 * positions below 0 and from the stream's length on are padding:
 *
 *     zeros      nothing: the frame is zero (or whatever the operator puts there)
 *     replicate  the nearest frame
 *     reflect    mirrored about the first and the last frame, these not repeated; it needs more
 *                frames than it mirrors, and there are no outputs where there are fewer
 *     circular   the stream repeated; it needs the whole stream, and as many frames as it pads
 *
 * span = dilation * (kernel - 1) + 1 frames. With `known` and `total` of the input (op.h, expr.h):
 *
 *     known'  = floor((known + left - span) / stride) + 1
 *     total'  = floor((total + left + right - span) / stride) + 1
 *     need(m) = m * stride - left + min(0, back)
 *
 * where back, the way from a window's start to the earliest frame that its right padding copies, is
 * span - 1 - right for replicate and span - 1 - 2 * right for reflect.
 *
 * Source: torch.nn.functional.pad, torch.nn.Conv1d's padding_mode. */
#pragma once
#include "ops/op.h"

typedef enum ds_padding_mode {
    DS_PADDING_ZEROS,
    DS_PADDING_REPLICATE,
    DS_PADDING_REFLECT,
    DS_PADDING_CIRCULAR
} ds_padding_mode;

/* The choices of an attribute in the enumeration's order. */
#define DS_PADDING_CHOICES "zeros|replicate|reflect|circular"

typedef struct ds_padding {
    int64_t kernel, stride, dilation; /* >= 1 */
    int64_t left, right;              /* >= 0 */
    ds_padding_mode mode;
} ds_padding;

/* A window sees one frame: frame in, frame out. */
#define DS_PADDING_NONE ((ds_padding){.kernel = 1, .stride = 1, .dilation = 1})

/* The length that an ended stream has, and one that goes on never reaches. */
#define DS_PADDING_OPEN INT64_MAX

/* No kernel, stride, dilation or padding may exceed this: then no sum or product here overflows. */
#define DS_PADDING_LIMIT ((int64_t)1 << 29)

/* DS_ARGUMENT where a number is out of range; the message names the operator. */
ds_status ds_padding_check(const ds_op *op, const ds_padding *g);
/* Whether the whole stream is needed: circular, and something is padded. */
bool ds_padding_whole(const ds_padding *g);
/* Outputs of an axis of n frames; not more than 0 where no window fits. */
int64_t ds_padding_outputs(const ds_padding *g, int64_t n);
/* The two roots of counts, and the root of need, for input 0. */
void ds_padding_counts(const ds_padding *g, ds_program *p);
void ds_padding_need(const ds_padding *g, ds_program *p);

/* Both functions of an operator whose numbers along the stream, a ds_padding or a ds_phases, are geometry(op). */
#define DS_COUNTS_OF(name, type, geometry)                    \
    static void name##_counts(const ds_op *op, ds_program *p) \
    {                                                         \
        const type g = geometry(op);                          \
        type##_counts(&g, p);                                 \
    }                                                         \
    static void name##_need(const ds_op *op, ds_program *p)   \
    {                                                         \
        const type g = geometry(op);                          \
        type##_need(&g, p);                                   \
    }

/* dilation * (kernel - 1) + 1 */
static inline int64_t ds_padding_span(const ds_padding *g)
{
    return g->dilation * (g->kernel - 1) + 1;
}

/* The frame of the stream that stands at `position` of the padded one; -1 where it is zero padding.
 * total: the stream's length if it has ended, else DS_PADDING_OPEN. */
static inline int64_t ds_padding_source(ds_padding_mode mode, int64_t position, int64_t total)
{
    if (position >= 0 && position < total)
        return position;
    switch (mode) {
    case DS_PADDING_REPLICATE:
        return position < 0 ? 0 : total - 1;
    case DS_PADDING_REFLECT:
        return position < 0 ? -position : 2 * (total - 1) - position;
    case DS_PADDING_CIRCULAR:
        return position < 0 ? position + total : position - total;
    case DS_PADDING_ZEROS:
        break;
    }
    return -1;
}
