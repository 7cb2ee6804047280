/* ops/phases.h: transposed windows along one axis, what conv_transpose1d and conv_transpose2d
 * share.
 *
 * Input i adds to the outputs i * stride + j * dilation - padding, for every tap j = 0 .. kernel
 * - 1. Seen from output m, with u = m + padding: tap j reaches it from input (u - j * dilation) /
 * stride, where that is an integer. So the taps that reach m depend on its phase, u mod stride,
 * only. They are every `tap_step`-th tap (stride / gcd(stride, dilation)), on inputs `frame_step`
 * apart (dilation / gcd).
 *
 * Phases are numbered by their first tap, f: taps f, f + tap_step, ... reach the outputs with (u
 * - f * dilation) divisible by stride. The first n_full of them have one tap more than the rest.
 * Outputs of no phase exist where n_phases < stride. Seen in ascending order of inputs, the taps
 * of a phase descend.
 *
 * With span = dilation * (kernel - 1) + 1 and the axis being the stream:
 *
 *     known'  = known * stride - padding
 *     total'  = (total - 1) * stride - 2 * padding + span + output_padding
 *     need(m) = ceil((m + padding - span + 1) / stride) */
#pragma once
#include "ops/padding.h"

typedef struct ds_phases {
    int64_t kernel, stride, dilation, padding, output_padding, span;
    int64_t tap_step, frame_step; /* between the taps of one phase */
    int64_t n_phases, n_full;     /* with any tap; with the most taps */
} ds_phases;

/* DS_ARGUMENT where a number is out of range; the message names the operator. left is padding, right is
 * output_padding. */
ds_status ds_phases_check(const ds_op *op, const ds_padding *numbers);
ds_phases ds_phases_make(ds_padding numbers);
/* Outputs of n inputs; not more than 0 where there are none. */
int64_t ds_phases_size(const ds_phases *g, int64_t n);
/* The two roots of counts, and the root of need, for input 0. */
void ds_phases_counts(const ds_phases *g, ds_program *p);
void ds_phases_need(const ds_phases *g, ds_program *p);

/* Taps of phase f. */
static inline int64_t ds_phases_taps(const ds_phases *g, int64_t f)
{
    return (g->kernel - f + g->tap_step - 1) / g->tap_step;
}

/* The last of them. */
static inline int64_t ds_phases_last(const ds_phases *g, int64_t f)
{
    return f + (ds_phases_taps(g, f) - 1) * g->tap_step;
}

/* The first output m >= m0 of phase f. */
static inline int64_t ds_phases_from(const ds_phases *g, int64_t f, int64_t m0)
{
    const int64_t rest = (m0 + g->padding - f * g->dilation) % g->stride;
    return m0 - rest + (rest > 0 ? g->stride : 0);
}

/* Whether any tap reaches output m. */
static inline bool ds_phases_reach(const ds_phases *g, int64_t m)
{
    bool reached = g->n_phases == g->stride;
    for (int64_t f = 0; f < g->n_phases && !reached; f++)
        reached = ds_phases_from(g, f, m) == m;
    return reached;
}

/* The input at the last tap of phase f: the first that output m of that phase reads; may be < 0. */
static inline int64_t ds_phases_first(const ds_phases *g, int64_t f, int64_t m)
{
    return (m + g->padding - ds_phases_last(g, f) * g->dilation) / g->stride; /* exact */
}
