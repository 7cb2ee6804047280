/* ops/padding.c: the counts of padded windows as programs. */
#include "ops/padding.h"

ds_status ds_padding_check(const ds_op *op, const ds_padding *g)
{
    const struct {
        const char *name;
        int64_t value, least;
    } rules[] = {{"kernel size", g->kernel, 1},
                 {"stride", g->stride, 1},
                 {"dilation", g->dilation, 1},
                 {"left padding", g->left, 0},
                 {"right padding", g->right, 0}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        DS_CHECK(rules[i].value >= rules[i].least && rules[i].value <= DS_PADDING_LIMIT,
                 DS_ARGUMENT, "%s: %s must be %lld to %lld, got %lld", op->def->name, rules[i].name,
                 (long long)rules[i].least, (long long)DS_PADDING_LIMIT, (long long)rules[i].value);
    }
    return DS_OK;
}

bool ds_padding_whole(const ds_padding *g)
{
    return g->mode == DS_PADDING_CIRCULAR && (g->left > 0 || g->right > 0);
}

int64_t ds_padding_outputs(const ds_padding *g, int64_t n)
{
    const int64_t room = n + g->left + g->right - ds_padding_span(g);
    return room < 0 ? 0 : room / g->stride + 1;
}

/* floor((frames + padding - span) / stride) + 1 */
static ds_expr n_windows(const ds_padding *g, ds_program *p, ds_expr frames, int64_t padding)
{
    const ds_expr room = ds_add_k(p, frames, padding - ds_padding_span(g));
    return ds_add_k(p, ds_floordiv_k(p, room, g->stride), 1);
}

void ds_padding_counts(const ds_padding *g, ds_program *p)
{
    const int64_t widest = g->left > g->right ? g->left : g->right;
    const ds_expr none = ds_const(p, 0);
    ds_expr known = n_windows(g, p, ds_known(p, 0), g->left);
    ds_expr total = n_windows(g, p, ds_total(p, 0), g->left + g->right);
    if (ds_padding_whole(g)) {
        known = none;
        total = ds_select(p, ds_add_k(p, ds_total(p, 0), 1 - widest), total, none);
    } else if (g->mode == DS_PADDING_REFLECT && widest > 0) {
        if (g->left > 0)
            known = ds_select(p, ds_add_k(p, ds_known(p, 0), -g->left), known, none);
        total = ds_select(p, ds_add_k(p, ds_total(p, 0), -widest), total, none);
    } else if (g->mode == DS_PADDING_REPLICATE && g->left > 0) {
        known = ds_select(p, ds_known(p, 0), known, none);
    }
    ds_root(p, known);
    ds_root(p, total);
}

void ds_padding_need(const ds_padding *g, ds_program *p)
{
    if (ds_padding_whole(g)) {
        ds_root(p, ds_const(p, 0));
        return;
    }
    int64_t back = 0;
    if (g->mode == DS_PADDING_REPLICATE)
        back = ds_padding_span(g) - 1 - g->right;
    if (g->mode == DS_PADDING_REFLECT)
        back = ds_padding_span(g) - 1 - 2 * g->right;
    if (back > 0 || g->right == 0)
        back = 0;
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_m(p), g->stride), back - g->left));
}
