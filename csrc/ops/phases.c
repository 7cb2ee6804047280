/* ops/phases.c: the numbers of transposed windows, and their counts as programs. */
#include "ops/phases.h"

ds_status ds_phases_check(const ds_op *op, const ds_padding *numbers)
{
    DS_TRY(ds_padding_check(op, numbers));
    const int64_t most = numbers->stride > numbers->dilation ? numbers->stride : numbers->dilation;
    DS_CHECK(numbers->right < most, DS_ARGUMENT,
             "%s: output_padding must be below the larger of stride and dilation (%lld), got %lld",
             op->def->name, (long long)most, (long long)numbers->right);
    return DS_OK;
}

ds_phases ds_phases_make(ds_padding numbers)
{
    const int64_t common = ds_greatest_divisor(numbers.stride, numbers.dilation);
    ds_phases g = {.kernel = numbers.kernel,
                   .stride = numbers.stride,
                   .dilation = numbers.dilation,
                   .padding = numbers.left,
                   .output_padding = numbers.right,
                   .span = ds_padding_span(&numbers),
                   .tap_step = numbers.stride / common,
                   .frame_step = numbers.dilation / common};
    g.n_phases = g.kernel < g.tap_step ? g.kernel : g.tap_step;
    g.n_full = (g.kernel - 1) % g.tap_step + 1;
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
