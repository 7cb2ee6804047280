/* ops/phases.c: the numbers of transposed windows, and their counts as programs. */
#include "ops/phases.h"

ds_status ds_phases_check(const ds_op *op, int64_t kernel, int64_t stride, int64_t dilation,
                          int64_t padding, int64_t output_padding)
{
    const ds_padding numbers = {.kernel = kernel,
                                .stride = stride,
                                .dilation = dilation,
                                .left = padding,
                                .right = output_padding};
    DS_TRY(ds_padding_check(op, &numbers));
    const int64_t most = stride > dilation ? stride : dilation;
    DS_CHECK(output_padding < most, DS_ARGUMENT,
             "%s: output_padding must be below the larger of stride and dilation (%lld), got %lld",
             op->def->name, (long long)most, (long long)output_padding);
    return DS_OK;
}

ds_phases ds_phases_make(int64_t kernel, int64_t stride, int64_t dilation, int64_t padding,
                         int64_t output_padding)
{
    ds_phases g = {.kernel = kernel,
                   .stride = stride,
                   .dilation = dilation,
                   .padding = padding,
                   .output_padding = output_padding};
    const int64_t common = ds_greatest_divisor(stride, dilation);
    g.span = dilation * (kernel - 1) + 1;
    g.tap_step = stride / common;
    g.frame_step = dilation / common;
    g.n_phases = kernel < g.tap_step ? kernel : g.tap_step;
    g.n_full = (kernel - 1) % g.tap_step + 1;
    return g;
}

int64_t ds_phases_size(const ds_phases *g, int64_t n)
{
    return (n - 1) * g->stride - 2 * g->padding + g->span + g->output_padding;
}

void ds_phases_counts(const ds_phases *g, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_known(p, 0), g->stride), -g->padding));
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_add_k(p, ds_total(p, 0), -1), g->stride),
                        g->span + g->output_padding - 2 * g->padding));
}

void ds_phases_need(const ds_phases *g, ds_program *p)
{
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_m(p), g->padding - g->span + 1), g->stride));
}
