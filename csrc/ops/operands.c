/* ops/operands.c: operands of equal standing: their order, their types, the walk over what they broadcast to.
 *
 * A walk is a list of dimensions, frames first, each with a stride per operand, in elements; 0 repeats an operand.
 * Dimensions that continue each other are joined when they are added, so that equal shapes come out as one run. The
 * visitor gets the longest runs along which all strides are constant. A visit takes longer than the work of a few
 * elements: where runs are short, as many as make a block are written out one behind the other, operand by operand,
 * and visited together. Functions of single elements don't see the difference. */
#include "ops/operands.h"

#include <string.h>

#include "ops/back.h"
#include "ops/move.h"

bool ds_operands_locate(const ds_op *op, int i, int *index)
{
    const ds_attr_value *order = &op->attr[0];
    if (order->n_ints == 0) {
        *index = i;
        return false;
    }
    *index = 0;
    for (int j = 0; j < i; j++)
        *index += order->ints[j] == order->ints[i] ? 1 : 0;
    return order->ints[i] == 1;
}

static const ds_signature *signature_of(const ds_op *op, int i)
{
    int index;
    return ds_operands_locate(op, i, &index) ? &op->weight[index] : &op->in[index];
}

const ds_signature *ds_operands_first(const ds_op *op)
{
    return signature_of(op, 0);
}

/* ---------------------------------------------------------------- infer */

static ds_status check_order(const ds_op *op, int n_operands)
{
    const char *name = op->def->name;
    const ds_attr_value *order = &op->attr[0];
    int n_weights = 0;
    for (int i = 0; i < order->n_ints; i++) {
        DS_CHECK(order->ints[i] == 0 || order->ints[i] == 1, DS_ARGUMENT,
                 "%s: attribute 'order' holds 0 (input) and 1 (weight), got %lld", name,
                 (long long)order->ints[i]);
        n_weights += (int)order->ints[i];
    }
    DS_CHECK(order->n_ints == 0 || order->n_ints == n_operands, DS_ARGUMENT,
             "%s: attribute 'order' must have %d entries, got %d", name, n_operands, order->n_ints);
    DS_CHECK(op->n_inputs == n_operands - n_weights && op->n_weights == n_weights, DS_ARGUMENT,
             "%s: expected %d inputs and %d weights by its order, got %d and %d", name,
             n_operands - n_weights, n_weights, op->n_inputs, op->n_weights);
    for (int i = 0; i < n_weights; i++)
        DS_CHECK(ds_op_has_weight(op, i), DS_ARGUMENT, "%s: its weight %d is missing", name, i);
    return DS_OK;
}

/* Size of dimension d of a shape of `rank` dimensions to which this one is aligned at the right. */
static int64_t aligned(const ds_signature *signature, int rank, int d)
{
    const int own = d - (rank - signature->rank);
    return own < 0 ? 1 : signature->shape[own];
}

/* Broadcasts a shape against the next one. */
static ds_status broadcast(const ds_op *op, ds_signature *shape, const ds_signature *next)
{
    const ds_signature first = *shape;
    shape->rank = first.rank > next->rank ? first.rank : next->rank;
    for (int d = 0; d < shape->rank; d++) {
        const int64_t a = aligned(&first, shape->rank, d), b = aligned(next, shape->rank, d);
        DS_CHECK(a == b || a == 1 || b == 1, DS_SHAPE,
                 "%s: features of shapes %s and %s do not broadcast", op->def->name,
                 DS_SHAPE_TEXT(&first), DS_SHAPE_TEXT(next));
        shape->shape[d] = a == 1 ? b : a;
    }
    return DS_OK;
}

ds_status ds_operands_infer(ds_op *op, const char *types, char out)
{
    const int n_operands = (int)strlen(types);
    int real = -1; /* the first number */
    DS_TRY(check_order(op, n_operands));
    ds_signature shape = *signature_of(op, 0);
    for (int i = 1; i < n_operands; i++)
        DS_TRY(broadcast(op, &shape, signature_of(op, i)));
    for (int i = 0; i < n_operands; i++) {
        const ds_dtype own = signature_of(op, i)->dtype;
        const bool fits = types[i] == 'b'   ? own == DS_BOOL
                          : types[i] == 'n' ? ds_is_real(own) || own == DS_I64
                                            : ds_is_real(own);
        DS_CHECK(fits, DS_DTYPE, "%s: operand %d must be %s, got %s", op->def->name, i,
                 types[i] == 'b'   ? "bool"
                 : types[i] == 'n' ? "float32, float64 or int64"
                                   : "float32 or float64",
                 ds_dtype_name(own));
        real = real < 0 && types[i] != 'b' ? i : real;
        DS_CHECK(types[i] == 'b' || own == signature_of(op, real)->dtype, DS_DTYPE,
                 "%s: operand %d is %s but operand %d is %s", op->def->name, real,
                 ds_dtype_name(signature_of(op, real)->dtype), i, ds_dtype_name(own));
    }
    shape.dtype = out == 'b' ? DS_BOOL : signature_of(op, real)->dtype;
    shape.rate = op->in[0].rate;
    op->out[0] = shape;
    op->back_scratch.per_call = ds_back_sums_bytes(op);
    return DS_OK;
}

/* ---------------------------------------------------------------- the walk */

enum { RANK = DS_MAX_RANK + 1 /* frames */, BLOCK = 512, LONG_ROW = 16 /* elements */ };

typedef struct walk {
    const ds_op *op;
    const ds_real_kernels *k;
    ds_operands_visit visit;
    int n_operands, rank;
    size_t y_bytes, x_bytes[DS_OPERANDS]; /* of an element */
    int64_t shape[RANK], stride[RANK][DS_OPERANDS];
    int64_t index[RANK];         /* where it stands */
    const char *at[DS_OPERANDS]; /* there */
} walk;

/* Adds the next inner dimension; size >= 1. */
static void walk_add(walk *w, int64_t size, const int64_t *stride)
{
    if (size == 1)
        return;
    bool joined = w->rank > 0;
    for (int i = 0; joined && i < w->n_operands; i++)
        joined = w->stride[w->rank - 1][i] == stride[i] * size;
    const int d = joined ? w->rank - 1 : w->rank++;
    w->shape[d] = joined ? w->shape[d] * size : size;
    for (int i = 0; i < w->n_operands; i++)
        w->stride[d][i] = stride[i];
}

/* Goes on by one along dimension d, or if that is through, along those before it; false at the end. */
static bool walk_on(walk *w, int d)
{
    for (; d >= 0; d--) {
        const bool carry = ++w->index[d] == w->shape[d];
        const int64_t moved = carry ? 1 - w->shape[d] : 1;
        for (int i = 0; i < w->n_operands; i++)
            w->at[i] += moved * w->stride[d][i] * (int64_t)w->x_bytes[i];
        if (!carry)
            return true;
        w->index[d] = 0;
    }
    return false;
}

/* Writes out dimensions d.. of operand i, of which d has n indices. */
static void walk_spread(const walk *w, int d, int64_t n, int i, void *y, const char *x)
{
    const int64_t n_bytes = (int64_t)w->x_bytes[i];
    ds_box box;
    box.rank = 0;
    box.element = w->x_bytes[i];
    int64_t to = n_bytes;
    for (int e = d + 1; e < w->rank; e++)
        to *= w->shape[e];
    for (int e = d; e < w->rank; e++) {
        ds_box_add(&box, e == d ? n : w->shape[e], to, w->stride[e][i] * n_bytes);
        to /= e + 1 < w->rank ? w->shape[e + 1] : 1;
    }
    ds_box_copy(&box, y, x);
}

/* The step of operand i along dimensions d.., where it is the same for all of them: 0 or 1; else -1. */
static int walk_step(const walk *w, int d, int i)
{
    int64_t expected = 1;
    bool zero = true, one = true;
    for (int e = w->rank - 1; e >= d; expected *= w->shape[e--]) {
        zero = zero && w->stride[e][i] == 0;
        one = one && w->stride[e][i] == expected;
    }
    return zero ? 0 : one ? 1 : -1;
}

/* Visits runs, long ones as rows where the visitor takes several; where they are short some indices of dimension d at a
 * time, with all that lies within them. */
static void walk_run(walk *w, char *y, bool by_rows)
{
    uint64_t room[DS_OPERANDS][BLOCK];
    const char *held[DS_OPERANDS] = {NULL}; /* what the room shows, where dimension d repeats it */
    const void *view[DS_OPERANDS] = {NULL};
    ds_operands_rows r;
    bool written[DS_OPERANDS] = {false}; /* out to the room */
    int d = w->rank - 1;
    int64_t inner = 1, most = w->shape[d];
    by_rows = by_rows && d > 0 && w->shape[d] >= LONG_ROW;
    if (by_rows) {
        inner = w->shape[d--];
        most = w->shape[d];
    } else if (d > 0 && w->shape[d] < BLOCK / 4) {
        while (d > 0 && inner * w->shape[d] <= BLOCK / 2)
            inner *= w->shape[d--];
        most = BLOCK / inner;
    }
    for (int i = 0; i < w->n_operands; i++) {
        const int own = walk_step(w, d, i);
        r.row[i] = (size_t)w->stride[d][i];
        r.step[i] = by_rows ? (size_t)w->stride[d + 1][i] : own == 0 ? 0 : 1;
        written[i] = !by_rows && own < 0;
        view[i] = room[i];
    }
    do {
        for (int64_t j = 0, n; j < w->shape[d]; j += n) {
            n = w->shape[d] - j < most ? w->shape[d] - j : most;
            for (int i = 0; i < w->n_operands; i++) {
                const char *x = w->at[i] + j * w->stride[d][i] * (int64_t)w->x_bytes[i];
                if (!written[i]) {
                    view[i] = x;
                } else if (held[i] != x) {
                    walk_spread(w, d, n, i, room[i], x);
                    /* the first block is the longest */
                    held[i] = w->stride[d][i] == 0 ? x : NULL;
                }
            }
            r.n_rows = by_rows ? (size_t)n : 1;
            r.n = (size_t)(n * inner) / r.n_rows;
            w->visit(w->op, w->k, y, view, &r);
            y += (size_t)(n * inner) * w->y_bytes;
        }
    } while (walk_on(w, d - 1));
}

/* ---------------------------------------------------------------- forward */

/* What walks over all rows have in common. frame: elements from frame to frame of each operand. */
static void walk_form(walk *form, const ds_op *op, const ds_real_kernels *k, int n_operands,
                      int *index, bool *weight, int64_t *frame, int64_t stride[][DS_OPERANDS])
{
    const ds_signature *out = &op->out[0];
    *form =
        (walk){.op = op, .k = k, .n_operands = n_operands, .y_bytes = ds_dtype_bytes(out->dtype)};
    for (int i = 0; i < n_operands; i++) {
        const ds_signature *own = signature_of(op, i);
        weight[i] = ds_operands_locate(op, i, &index[i]);
        form->x_bytes[i] = ds_dtype_bytes(own->dtype);
        frame[i] = weight[i] ? 0 : ds_signature_elements(own);
        for (int d = 0; d < out->rank; d++)
            stride[d][i] = ds_broadcast_stride(own, out->rank, d);
    }
}

/* The dimensions of so many frames. */
static void walk_frames(walk *w, int64_t n_frames, const ds_op *op, const int64_t *frame,
                        int64_t stride[][DS_OPERANDS])
{
    const ds_signature *out = &op->out[0];
    walk_add(w, n_frames, frame);
    for (int d = 0; d < out->rank; d++)
        walk_add(w, out->shape[d], stride[d]);
    if (w->rank == 0)
        w->shape[w->rank++] = 1;
}

void ds_operands_forward(const ds_op *op, const ds_run *run, int n_operands,
                         ds_operands_visit visit, bool by_rows)
{
    int index[DS_OPERANDS];
    bool weight[DS_OPERANDS];
    int64_t frame[DS_OPERANDS], stride[DS_MAX_RANK][DS_OPERANDS];
    walk form;
    walk_form(&form, op, run->k, n_operands, index, weight, frame, stride);
    form.visit = visit;
    ds_frames f;
    for (f.next = 0; ds_next_frames(op, run, &f);) {
        walk w = form;
        walk_frames(&w, (int64_t)f.n, op, frame, stride);
        for (int i = 0; i < n_operands; i++)
            w.at[i] = weight[i] ? run->weights[index[i]] : f.x[index[i]];
        walk_run(&w, f.y[0], by_rows);
    }
}

/* ---------------------------------------------------------------- backward */

/* Where operands and their slopes are, at the walk's place; NULL where they aren't read or not wanted. */
typedef struct turned {
    const void *x[DS_OPERANDS];
    char *dx[DS_OPERANDS];
    double *sums[DS_OPERANDS]; /* instead of dx, of a weight */
    const char *g;
} turned;

/* Adds n slopes to those of operand i, which are a step of 0 or 1 apart. */
static void add_slopes(const walk *w, turned *t, int i, const void *slopes, size_t n, size_t step)
{
    if (step == 1 && t->sums[i]) {
        ds_sums_add(t->sums[i], slopes, n, w->op->out[0].dtype);
    } else if (step == 1) {
        ds_back_add(w->k, t->dx[i], slopes, n);
    } else {
        double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += ds_sums_real(slopes, w->k->element, j);
        if (t->sums[i])
            *t->sums[i] += sum;
        else
            ds_back_add_sums(w->k, t->dx[i], &sum, 1);
    }
}

/* All elements of dimensions d.. */
static void walk_back(const walk *w, turned *t, int d, ds_operands_slopes slopes)
{
    if (d < w->rank - 1) {
        for (int64_t j = 0; j < w->shape[d]; j++) {
            turned at = *t;
            for (int i = 0; i < w->n_operands; i++) {
                const int64_t moved = j * w->stride[d][i];
                at.x[i] = at.x[i] ? (const char *)at.x[i] + moved * (int64_t)w->x_bytes[i] : NULL;
                at.dx[i] = at.dx[i] ? at.dx[i] + moved * (int64_t)w->x_bytes[i] : NULL;
                at.sums[i] = at.sums[i] ? at.sums[i] + moved : NULL;
            }
            walk_back(w, &at, d + 1, slopes);
            t->g = at.g;
        }
        return;
    }
    double room[BLOCK];
    size_t step[DS_OPERANDS];
    for (int i = 0; i < w->n_operands; i++)
        step[i] = w->shape[d] > 1 ? (size_t)w->stride[d][i] : 1;
    for (int64_t j = 0, n; j < w->shape[d]; j += n) {
        n = w->shape[d] - j < BLOCK ? w->shape[d] - j : BLOCK;
        for (int i = 0; i < w->n_operands; i++) {
            if (!t->dx[i] && !t->sums[i])
                continue;
            slopes(w->op, w->k, i, room, t->g, t->x, (size_t)n, step);
            add_slopes(w, t, i, room, (size_t)n, step[i]);
        }
        for (int i = 0; i < w->n_operands; i++) {
            const int64_t moved = n * (int64_t)step[i];
            t->x[i] = t->x[i] ? (const char *)t->x[i] + moved * (int64_t)w->x_bytes[i] : NULL;
            t->dx[i] = t->dx[i] ? t->dx[i] + moved * (int64_t)w->x_bytes[i] : NULL;
            t->sums[i] = t->sums[i] ? t->sums[i] + moved : NULL;
        }
        t->g += (size_t)n * w->y_bytes;
    }
}

void ds_operands_backward(const ds_op *op, const ds_back *b, int n_operands,
                          ds_operands_slopes slopes)
{
    const ds_run *run = b->run;
    walk form;
    int index[DS_OPERANDS];
    bool weight[DS_OPERANDS];
    int64_t frame[DS_OPERANDS], stride[DS_MAX_RANK][DS_OPERANDS];
    double *sums[DS_SUMMED];
    ds_room room = {b->scratch};
    walk_form(&form, op, run->k, n_operands, index, weight, frame, stride);
    ds_back_sums_begin(op, b, sums, &room);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *target = &run->out[r];
        if (target->m1 <= target->m0)
            continue;
        walk w = form;
        turned t = {.g = b->dy[r]};
        walk_frames(&w, target->m1 - target->m0, op, frame, stride);
        for (int i = 0; i < n_operands; i++) {
            const size_t at = (size_t)index[i] * run->n_rows + r,
                         n_bytes = (size_t)frame[i] * w.x_bytes[i];
            if (weight[i]) {
                t.sums[i] = sums[index[i]];
                t.x[i] = run->weights[index[i]];
            } else {
                t.x[i] = run->in[at].data ? ds_at(&run->in[at], target->m0, n_bytes) : NULL;
                t.dx[i] = ds_slope_at(&b->dx[at], target->m0, n_bytes);
            }
        }
        walk_back(&w, &t, 0, slopes);
    }
    ds_back_sums_end(op, b, sums);
}
