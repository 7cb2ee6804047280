/* ops/bmm.c: products of matrices that are both of a frame.
 *
 *     y[f][b..., m, n] = sum over k, ascending, of x[f][b..., m, k] z[f][b..., k, n]
 *
 * x [B..., M, K] and z [B..., K, N] progress in lockstep; out [B..., M, N]. Every element is one chain of fma: the
 * kernel that sums attention's values. Slopes are products, too, of x with z the other way round.
 *
 * Source: torch.matmul, torch.bmm. */
#include <string.h>

#include "ops/back.h"
#include "ops/move.h"
#include "ops/registry.h"

typedef struct matrices {
    size_t number, m, k, n; /* number: of a frame */
    size_t element;
} matrices;

static matrices bmm_sizes(const ds_op *op)
{
    const ds_signature *x = &op->in[0], *z = &op->in[1];
    const size_t m = (size_t)x->shape[x->rank - 2], k = ds_last_size(x);
    return (matrices){ds_elements(x) / m / k, m, k, ds_last_size(z), ds_op_element(op)};
}

/* Rows of a product, for any of them: where they are, factors of 1, terms from `none` to `all`. */
typedef struct rows {
    void **y;
    char *ones;
    size_t *none, *all;
} rows;

static size_t rows_bytes(size_t n)
{
    return n * (sizeof(void *) + sizeof(double) + 2 * sizeof(size_t)) + 4 * DS_ALIGNMENT;
}

static rows rows_take(ds_room *room, size_t n, size_t element)
{
    const rows r = {ds_room_take(room, n * sizeof(void *)), ds_room_take(room, n * sizeof(double)),
                    ds_room_take(room, n * sizeof(size_t)), ds_room_take(room, n * sizeof(size_t))};
    for (size_t i = 0; i < n; i++)
        ds_sums_set_real(r.ones, element, i, 1);
    memset(r.none, 0, n * sizeof(size_t));
    return r;
}

/* y[i] += sum over j < depth of weight[i * apart + j * next] z[j], i < n, rows of `width`. */
static void add_product(const ds_real_kernels *k, const rows *r, void *y, size_t n,
                        const void *weight, size_t apart, size_t next, const void *z, size_t depth,
                        size_t width)
{
    for (size_t i = 0; i < n; i++) {
        r->y[i] = (char *)y + i * width * k->element;
        r->all[i] = depth;
    }
    k->attend_sums(r->y, r->ones, n, weight, apart, next, z, width, width, r->none, r->all);
}

static ds_status bmm_infer(ds_op *op)
{
    const matrices s = bmm_sizes(op);
    op->out[0].shape[op->out[0].rank - 1] = (int64_t)s.n;
    const size_t most = s.m > s.k ? s.m : s.k;
    op->scratch.per_call = rows_bytes(s.m);
    op->back_scratch.per_call = rows_bytes(most) + s.k * s.n * s.element + DS_ALIGNMENT;
    return DS_OK;
}

static void bmm_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const matrices s = bmm_sizes(op);
    ds_room room = {run->scratch};
    const rows r = rows_take(&room, s.m, s.element);
    const char *x = f->x[0], *z = f->x[1];
    char *y = f->y[0];
    for (size_t i = 0; i < f->n * s.number; i++) {
        memset(y, 0, s.m * s.n * s.element);
        add_product(run->k, &r, y, s.m, x, s.k, 1, z, s.k, s.n);
        x += s.m * s.k * s.element;
        z += s.k * s.n * s.element;
        y += s.m * s.n * s.element;
    }
}
DS_FRAMEWISE_FORWARD(bmm)

static void bmm_backward(const ds_op *op, const ds_back *b)
{
    const matrices s = bmm_sizes(op);
    const ds_real_kernels *const k = b->run->k;
    const int64_t element = (int64_t)s.element, row = (int64_t)s.n * element;
    ds_room room = {b->scratch};
    const rows r = rows_take(&room, s.m > s.k ? s.m : s.k, s.element);
    void *const turned = ds_room_take(&room, s.k * s.n * s.element);
    ds_box turn = {.element = s.element}; /* z the other way round: [N][K] */
    ds_box_add(&turn, (int64_t)s.n, (int64_t)s.k * element, element);
    ds_box_add(&turn, (int64_t)s.k, element, row);
    ds_frames f;
    for (f.next = 0; ds_back_next_frames(op, b, &f);)
        for (size_t i = 0; i < f.n * s.number; i++) {
            const char *const slope = (const char *)f.g[0] + i * s.m * s.n * s.element;
            const size_t at = i * s.m * s.k * s.element, other = i * s.k * s.n * s.element;
            if (f.dx[0]) {
                ds_box_copy(&turn, turned, (const char *)f.x[1] + other);
                add_product(k, &r, (char *)f.dx[0] + at, s.m, slope, s.n, 1, turned, s.n, s.k);
            }
            if (f.dx[1])
                add_product(k, &r, (char *)f.dx[1] + other, s.k, (const char *)f.x[0] + at, 1, s.k,
                            slope, s.m, s.n);
        }
}

const ds_op_def ds_op_bmm = {
    DS_OPERATOR_OF(bmm, "Products of matrices of two streams, frame by frame.", 2, 1, 2),
    .flags = DS_OP_LOCKSTEP | DS_OP_REAL,
    .shapes = "[.., M, K]; [.., K, N]",
    .infer = bmm_infer,
    .forward = bmm_forward,
    .backward = bmm_backward,
    .reads = DS_READS_ALL_X};
