/* ops/pad.c: frames added before and behind the stream (torch.nn.functional.pad along L).
 *
 *     y[t] = x[t - left]                      where that frame exists, else
 *            value                            constant
 *            x[0], x[T - 1]                   replicate
 *            x[left - t], x[2(T - 1) - (t - left)]   reflect
 *
 *               known                          total                 need(m)
 *     constant  known + left                   total + left + right  m - left
 *     replicate the same, 0 until known >= 1   the same              m - left - right
 *     reflect   the same, 0 until known > left 0 while total <= max(left, right) m - left - 2 right
 *
 * The conditions on known hold where left > 0; need's extra is what the right pad reads back. */
#include "ops/frames.h"
#include "ops/registry.h"

enum { LEFT, RIGHT, MODE, VALUE };
enum { CONSTANT, REPLICATE, REFLECT };

static const ds_attr_def attrs[] = {
    {"left", DS_ATTR_INT, .doc = "frames before the first"},
    {"right", DS_ATTR_INT, .doc = "frames behind the last"},
    {"mode", DS_ATTR_CHOICE, .choices = "constant|replicate|reflect", .doc = "what they hold"},
    {"value", DS_ATTR_REAL, .doc = "of every element, in mode constant"},
    {0}};

static ds_status infer(ds_op *op)
{
    char element[8];
    DS_TRY(ds_op_require_least(op, LEFT, 0));
    DS_TRY(ds_op_require_least(op, RIGHT, 0));
    DS_CHECK(ds_frames_encode(op->in[0].dtype, op->attr[VALUE].x, element), DS_ARGUMENT,
             "pad: %s has no value %g", ds_dtype_name(op->in[0].dtype), op->attr[VALUE].x);
    const int64_t mode = op->attr[MODE].i;
    op->reach = 1 + (mode == REFLECT ? op->attr[LEFT].i : 0) + mode * op->attr[RIGHT].i;
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    const int64_t left = op->attr[LEFT].i, right = op->attr[RIGHT].i, mode = op->attr[MODE].i;
    ds_expr known = ds_add_k(p, ds_known(p, 0), left);
    ds_expr total = ds_add_k(p, ds_total(p, 0), left + right);
    if (mode != CONSTANT && left > 0) {
        const int64_t start = mode == REFLECT ? left : 0;
        known = ds_select(p, ds_add_k(p, ds_known(p, 0), -start), known, ds_const(p, 0));
    }
    if (mode == REFLECT && (left > 0 || right > 0)) {
        const int64_t longest = left > right ? left : right;
        total = ds_select(p, ds_add_k(p, ds_total(p, 0), -longest), total, ds_const(p, 0));
    }
    ds_root(p, known);
    ds_root(p, total);
}

static void need(const ds_op *op, ds_program *p)
{
    const int64_t back = op->attr[MODE].i * op->attr[RIGHT].i; /* 0, right, 2 right */
    ds_root(p, ds_add_k(p, ds_m(p), -op->attr[LEFT].i - back));
}

/* Output t of the pad itself: t is below left, or at least left + total. */
static void write_pad(const ds_op *op, const ds_window *in, char *to, int64_t t, int64_t n,
                      int64_t total, size_t n_bytes)
{
    const int64_t q = t - op->attr[LEFT].i, mode = op->attr[MODE].i;
    if (mode == CONSTANT) {
        char element[8];
        ds_frames_encode(op->in[0].dtype, op->attr[VALUE].x, element);
        ds_frames_fill(to, (size_t)n * n_bytes, element, ds_op_element(op));
    } else if (mode == REPLICATE) {
        ds_frames_fill(to, (size_t)n * n_bytes, ds_at(in, q < 0 ? 0 : total - 1, n_bytes), n_bytes);
    } else {
        const int64_t source = q < 0 ? -q : 2 * (total - 1) - q;
        for (int64_t i = 0; i < n; i++) {
            ds_frames_copy(to + (size_t)i * n_bytes, ds_at(in, source - i, n_bytes), n_bytes);
        }
    }
}

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    const int64_t left = op->attr[LEFT].i;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_window *in = &run->in[r];
        const ds_target *out = &run->out[r];
        /* Until the end, nothing behind the last frame is asked for. */
        const int64_t total = run->ended[r] ? run->count[r].now.total : DS_NEVER;
        const int64_t m0 = out->m0, m1 = out->m1;
        const int64_t first = m0 > left ? m0 : left < m1 ? left : m1;
        const int64_t last = m1 < left + total ? m1 : left + total;
        if (m0 < first) {
            write_pad(op, in, out->data, m0, first - m0, total, n_bytes);
        }
        if (first < last) {
            ds_frames_copy(ds_to(out, first, n_bytes), ds_at(in, first - left, n_bytes),
                           (size_t)(last - first) * n_bytes);
        }
        const int64_t behind = first > last ? first : last;
        if (behind < m1) {
            write_pad(op, in, ds_to(out, behind, n_bytes), behind, m1 - behind, total, n_bytes);
        }
    }
}

const ds_op_def ds_op_pad = {.name = "pad",
                             .doc = "Adds frames at the start and at the end of the stream.",
                             .n_inputs = 1,
                             .n_outputs = 1,
                             .n_values = 1,
                             .attrs = attrs,
                             .infer = infer,
                             .counts = counts,
                             .need = need,
                             .forward = forward};
