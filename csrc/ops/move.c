/* ops/move.c: pieces of moved elements, copied in the longest runs that they allow.
 *
 * A piece's box is reduced once: axes of one position are dropped, axes that continue each other joined, a short
 * run of elements becomes one wider element. What is left is copied plane by plane. */
#include "ops/move.h"

#include <string.h>

#include "base/transpose.h"
#include "ops/back.h"

enum { BLOCK_BYTES = 131072 /* of frames with several pieces: what stays in the nearest cache */ };

typedef struct ds_extent extent;

/* ---------------------------------------------------------------- copying */

/* n bytes by two moves of a constant size, at least half of it, that overlap: each reads before either writes. */
static inline __attribute__((always_inline)) void copy_ends(char *y, const char *x, size_t n,
                                                            const size_t half)
{
    char head[32], tail[32];
    memcpy(head, x, half);
    memcpy(tail, x + n - half, half);
    memcpy(y, head, half);
    memcpy(y + n - half, tail, half);
}

/* A run of any length; y may be x. */
static inline void copy_run(char *y, const char *x, size_t n)
{
    if (n > 256) {
        if (y != x)
            memmove(y, x, n);
    } else if (n > 64) { /* in less time than a call takes */
        for (size_t i = 0; i + 32 < n; i += 32)
            copy_ends(y + i, x + i, 32, 16);
        copy_ends(y + n - 32, x + n - 32, 32, 16);
    } else if (n >= 32) {
        copy_ends(y, x, n, 32);
    } else if (n >= 16) {
        copy_ends(y, x, n, 16);
    } else if (n >= 8) {
        copy_ends(y, x, n, 8);
    } else {
        for (size_t i = 0; i < n; i++)
            y[i] = x[i];
    }
}

/* n elements, of which 16 bytes are in v, one behind the other: the last such part may overlap the one before. */
static inline __attribute__((always_inline)) void copy_repeated(char *to, const char v[16],
                                                                int64_t n, const int64_t bytes)
{
    int64_t i = 0;
    for (; i + 16 <= n * bytes; i += 16)
        memcpy(to + i, v, 16);
    if (i > 0 && i < n * bytes)
        memcpy(to + n * bytes - 16, v, 16);
    for (; i == 0 && n > 0; n--)
        memcpy(to + (n - 1) * bytes, v, (size_t)bytes);
}

/* n elements of a constant size: a memcpy of it is a move or two. */
static inline __attribute__((always_inline)) void copy_line(char *to, const char *from, int64_t n,
                                                            int64_t to_step, int64_t from_step,
                                                            const int64_t bytes)
{
    for (int64_t j = 0; j < n; j++)
        memcpy(to + j * to_step, from + j * from_step, (size_t)bytes);
}

/* The same of a plane, with steps that are constants where they can be. */
static inline __attribute__((always_inline)) void copy_elements(char *y, const char *x, extent a,
                                                                extent b, const int64_t bytes)
{
    char v[16];
    for (int64_t i = 0; i < a.size; i++, y += a.to, x += a.from) {
        for (int64_t j = 0; j < 16 && b.from == 0; j += bytes)
            memcpy(v + j, x, (size_t)bytes);
        if (b.from == 0 && b.to == bytes)
            copy_repeated(y, v, b.size, bytes);
        else if (b.to == bytes && b.from == 2 * bytes)
            copy_line(y, x, b.size, bytes, 2 * bytes, bytes);
        else if (b.to == bytes && b.from == -bytes)
            copy_line(y, x, b.size, bytes, -bytes, bytes);
        else if (b.to == bytes)
            copy_line(y, x, b.size, bytes, b.from, bytes);
        else
            copy_line(y, x, b.size, b.to, b.from, bytes);
    }
}

static void copy_plane(char *y, const char *x, extent a, extent b, size_t element)
{
    if (b.to == (int64_t)element && b.from == (int64_t)element) {
        const size_t n = (size_t)b.size * element;
        for (int64_t i = 0; i < a.size; i++)
            copy_run(y + i * a.to, x + i * a.from, n);
        return;
    }
    if (element == 4 && a.size >= 4 && b.size >= 4) {
        if (a.to == 4 && b.from == 4 && a.from != 0) {
            ds_transpose(y, x, a.size, b.size, a.from, b.to);
            return;
        }
        if (b.to == 4 && a.from == 4 && b.from != 0) {
            ds_transpose(y, x, b.size, a.size, b.from, a.to);
            return;
        }
    }
    if (a.size > b.size && b.size < 8) { /* the longer loop inside */
        const extent outer = b;
        b = a;
        a = outer;
    }
    switch (element) {
    case 1:
        copy_elements(y, x, a, b, 1);
        break;
    case 2:
        copy_elements(y, x, a, b, 2);
        break;
    case 4:
        copy_elements(y, x, a, b, 4);
        break;
    case 8:
        copy_elements(y, x, a, b, 8);
        break;
    case 16:
        copy_elements(y, x, a, b, 16);
        break;
    default:
        for (int64_t i = 0; i < a.size; i++)
            for (int64_t j = 0; j < b.size; j++)
                copy_run(y + i * a.to + j * b.to, x + i * a.from + j * b.from, element);
    }
}

static void copy_axes(const ds_box *b, int d, char *y, const char *x)
{
    static const extent one = {1, 0, 0};
    const int left = b->rank - d;
    if (left <= 2) {
        copy_plane(y, x, left == 2 ? b->axis[d] : one, left > 0 ? b->axis[b->rank - 1] : one,
                   b->element);
        return;
    }
    for (int64_t i = 0; i < b->axis[d].size; i++)
        copy_axes(b, d + 1, y + i * b->axis[d].to, x + i * b->axis[d].from);
}

void ds_box_copy(const ds_box *b, void *y, const void *x)
{
    copy_axes(b, 0, y, x);
}

void ds_box_add(ds_box *b, int64_t size, int64_t to, int64_t from)
{
    extent *last = b->rank > 0 ? &b->axis[b->rank - 1] : NULL;
    if (size == 1)
        return;
    if (last != NULL && last->to == size * to && last->from == size * from)
        *last = (extent){last->size * size, to, from};
    else
        b->axis[b->rank++] = (extent){size, to, from};
}

/* A short run of elements at the end becomes one wider element. */
static void widen(ds_box *b)
{
    extent *const last = b->rank > 0 ? &b->axis[b->rank - 1] : NULL;
    const int64_t element = (int64_t)b->element, n = last != NULL ? last->size * element : 0;
    if (last == NULL || last->to != element || last->from != element)
        return;
    if (n == 2 || n == 4 || n == 8 || n == 16) {
        b->element = (size_t)n;
        b->rank--;
    }
}

/* ---------------------------------------------------------------- pieces */

/* a + n b, where only the result need fit. */
static int64_t advance(int64_t a, int64_t n, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)n * (uint64_t)b);
}

/* Adds slopes from y on, over axes d.. of a box, to the reals whose byte `at` is their first; what would lie before
 * them is not wanted. */
static void add_axes(const ds_real_kernels *k, const ds_box *b, int d, const char *y, char *x,
                     int64_t at)
{
    const extent one = {1, 0, 0}, a = d < b->rank ? b->axis[d] : one;
    const int64_t element = (int64_t)k->element;
    if (d < b->rank - 1) {
        for (int64_t i = 0; i < a.size; i++)
            add_axes(k, b, d + 1, y + i * a.to, x, at + i * a.from);
    } else if (a.to == element && a.from == element) {
        const int64_t skipped = at < 0 ? -at / element : 0;
        if (skipped < a.size)
            ds_back_add(k, x + at + skipped * element, y + skipped * element,
                        (size_t)(a.size - skipped));
    } else if (a.from == 0 && at >= 0) {
        double sum = 0;
        for (int64_t i = 0; i < a.size; i++)
            sum += ds_sums_real(y + i * a.to, k->element, 0);
        ds_back_add_sums(k, x + at, &sum, 1);
    } else {
        for (int64_t i = 0; i < a.size; i++)
            if (at + i * a.from >= 0)
                ds_back_add(k, x + at + i * a.from, y + i * a.to, 1);
    }
}

/* Frames [m0, m1) of one row, in groups of `hold` that show one place of the source, `step` bytes apart; frame 0 of
 * the output would begin `origin` bytes behind x in the source. */
static void move_row(const ds_move *move, const ds_box *within, char *y, char *x, int64_t origin,
                     int64_t m0, int64_t m1, int64_t hold, int64_t step, int64_t frame)
{
    if (m1 - m0 == 1 && !move->back) {
        ds_box_copy(within, y, x + advance(origin, m0 / hold, step));
        return;
    }
    for (int64_t n; m0 < m1; m0 += n, y += n * frame) {
        const int64_t left = m1 - m0, done = m0 % hold;
        const bool whole =
            done == 0 && left >= hold; /* else the rest of a group, or its beginning */
        ds_box b;
        b.rank = 0;
        b.element = within->element;
        n = whole ? left - left % hold : left < hold - done ? left : hold - done;
        ds_box_add(&b, whole ? n / hold : 1, frame * hold, step);
        ds_box_add(&b, whole ? hold : n, frame, 0);
        for (int d = 0; d < within->rank; d++)
            ds_box_add(&b, within->axis[d].size, within->axis[d].to, within->axis[d].from);
        const int64_t at = advance(origin, m0 / hold, step);
        if (move->back)
            add_axes(move->run->k, &b, 0, y, x, at);
        else
            ds_box_copy(&b, y, x + at);
    }
}

/* The elements of a piece's source in row r, or their slopes, and the byte among them at which frame 0 of the output
 * would begin; NULL where there are none. */
static char *piece_source(const ds_move *move, const ds_piece *p, size_t r, int64_t *origin)
{
    const ds_run *run = move->run;
    const ds_back *back = move->back;
    const int64_t e = move->element;
    const int64_t n = p->input > 0 ? ds_signature_elements(&move->op->in[p->input]) : move->n_in;
    const size_t at = (size_t)(p->input > 0 ? p->input : 0) * run->n_rows + r;
    *origin = advance(0, p->from, e);
    if (p->input == DS_MOVE_WEIGHT)
        return back ? back->dweights[0] : (char *)(uintptr_t)run->weights[0];
    *origin = advance(*origin, back ? -back->dx[at].at : -run->in[at].at, n * e);
    return back ? back->dx[at].data : (char *)(uintptr_t)run->in[at].data;
}

void ds_move_piece(const ds_move *move, const ds_piece *p)
{
    const ds_run *run = move->run;
    const bool constant = p->input == DS_MOVE_FILL;
    const int64_t e = move->element, step = constant ? 0 : p->step * e, frame = move->n_out * e;
    char value[8];
    if (constant && move->back)
        return;
    if (constant)
        ds_move_encode(move->op->out[0].dtype, p->value, value);
    ds_box within;
    within.rank = 0;
    within.element = (size_t)e;
    for (int d = 0; d < p->rank; d++)
        ds_box_add(&within, p->axis[d].size, p->axis[d].to * e, constant ? 0 : p->axis[d].from * e);
    if (!move->back)
        widen(&within);
    const bool solid = p->hold == 1 && step == frame && p->rank == 1 && !move->back &&
                       p->axis[0].size == move->n_out && p->axis[0].from == 1;
    for (size_t r = move->row; r < move->row + move->n_rows; r++) {
        const ds_target *out = &run->out[r];
        int64_t m0 = out->m0 > move->m0 ? out->m0 : move->m0,
                m1 = out->m1 < move->m1 ? out->m1 : move->m1, origin = 0;
        m0 = m0 > p->m0 ? m0 : p->m0;
        m1 = m1 < p->m1 ? m1 : p->m1;
        char *const x = constant ? value : piece_source(move, p, r, &origin);
        if (m0 >= m1 || (!x && move->back))
            continue;
        char *const all = move->back ? (char *)(uintptr_t)move->back->dy[r] : out->data;
        char *const y = all + (m0 - out->m0) * frame + p->to * e;
        if (solid)
            copy_run(y, x + advance(origin, m0, step), (size_t)((m1 - m0) * frame));
        else
            move_row(move, &within, y, x, origin, m0, m1, p->hold, step, frame);
    }
}

void ds_move_frames(const ds_move *move, int input, int64_t m0, int64_t m1, int64_t from,
                    int64_t step)
{
    const int64_t n = move->n_out;
    const ds_piece p = {.input = input,
                        .m0 = m0,
                        .m1 = m1,
                        .from = advance(0, from, n),
                        .step = step * n,
                        .hold = 1,
                        .rank = 1,
                        .axis = {{n, 1, 1}}};
    if (m0 < m1 && m0 < move->m1 && m1 > move->m0)
        ds_move_piece(move, &p);
}

void ds_move_fill(const ds_move *move, int64_t m0, int64_t m1, double value)
{
    const ds_piece p = {.input = DS_MOVE_FILL,
                        .value = value,
                        .m0 = m0,
                        .m1 = m1,
                        .hold = 1,
                        .rank = 1,
                        .axis = {{move->n_out, 1, 0}}};
    if (m0 < m1 && m0 < move->m1 && m1 > move->m0)
        ds_move_piece(move, &p);
}

ds_piece ds_piece_along(const ds_op *op, int axis, int64_t to, int64_t n, int input, int64_t from,
                        int64_t step)
{
    const ds_signature *out = &op->out[0], *in = input >= 0 ? &op->in[input] : out;
    const int64_t inner = ds_signature_stride(out, axis),
                  outer = ds_signature_elements(out) / inner / out->shape[axis];
    return (ds_piece){.input = input,
                      .m1 = DS_NEVER,
                      .to = to * inner,
                      .from = from * inner,
                      .step = ds_signature_elements(in),
                      .hold = 1,
                      .rank = 3,
                      .axis = {{outer, out->shape[axis] * inner, in->shape[axis] * inner},
                               {n, inner, step * inner},
                               {inner, 1, 1}}};
}

/* back NULL: forward. */
static void move_rows(const ds_op *op, const ds_run *run, const ds_back *back)
{
    const ds_op_def *def = op->def;
    ds_move move = {.op = op,
                    .run = run,
                    .back = back,
                    .n_rows = run->n_rows,
                    .m1 = DS_NEVER,
                    .total = DS_NEVER,
                    .element = (int64_t)ds_dtype_bytes(op->out[0].dtype),
                    .n_in = ds_signature_elements(&op->in[0]),
                    .n_out = ds_signature_elements(&op->out[0])};
    int64_t most = DS_NEVER, longest = 0;
    if (def->moves & DS_MOVE_WITHIN) {
        most = BLOCK_BYTES / (move.n_out * move.element);
        most = most < 1 ? 1 : most;
    }
    for (size_t r = 0; r < run->n_rows; r++) {
        const int64_t n = run->out[r].m1 - run->out[r].m0;
        longest = n > longest ? n : longest;
    }
    if (longest <= most && !(def->moves & DS_MOVE_ENDS)) {
        def->pieces(op, &move);
        return;
    }
    for (; move.row < run->n_rows; move.row += move.n_rows) {
        const ds_target *out = &run->out[move.row];
        move.n_rows = 1;
        move.total = run->ended[move.row] ? run->count[move.row].now.total : DS_NEVER;
        if (longest <= most && !run->ended[move.row]) { /* rows that go on are alike */
            while (move.row + move.n_rows < run->n_rows && !run->ended[move.row + move.n_rows])
                move.n_rows++;
            move.m0 = 0;
            move.m1 = DS_NEVER;
            def->pieces(op, &move);
            continue;
        }
        for (move.m0 = out->m0; move.m0 < out->m1; move.m0 = move.m1) {
            move.m1 = out->m1 - move.m0 > most ? move.m0 + most : out->m1;
            def->pieces(op, &move);
        }
    }
}

void ds_move_forward(const ds_op *op, const ds_run *run)
{
    move_rows(op, run, NULL);
}

void ds_move_backward(const ds_op *op, const ds_back *b)
{
    move_rows(op, b->run, b);
}

void ds_same_pieces(const ds_op *op, const ds_move *move)
{
    (void)op;
    ds_move_frames(move, 0, 0, DS_NEVER, 0, 1);
}

void ds_first_pieces(const ds_op *op, const ds_move *move)
{
    (void)op;
    ds_move_frames(move, 0, 0, DS_NEVER, 0, 0);
}

/* ---------------------------------------------------------------- values */

bool ds_move_encode(ds_dtype dtype, double value, void *element)
{
    if (dtype == DS_F32) {
        memcpy(element, &(float){(float)value}, sizeof(float));
        return true;
    }
    if (dtype == DS_F64) {
        memcpy(element, &value, sizeof value);
        return true;
    }
    const double limit = dtype == DS_I64 ? 9007199254740992.0 : dtype == DS_I16 ? 32767.0 : 1.0;
    if (!(value >= (dtype == DS_BOOL ? 0.0 : -limit) && value <= limit) ||
        (double)(int64_t)value != value)
        return false;
    if (dtype == DS_I64)
        memcpy(element, &(int64_t){(int64_t)value}, sizeof(int64_t));
    else if (dtype == DS_I16)
        memcpy(element, &(int16_t){(int16_t)value}, sizeof(int16_t));
    else
        memcpy(element, &(uint8_t){value > 0.0 ? 1 : 0}, 1);
    return true;
}

ds_status ds_move_require_value(const ds_op *op, int attr)
{
    char element[8];
    DS_CHECK(ds_move_encode(op->in[0].dtype, op->attr[attr].x, element), DS_ARGUMENT,
             "%s: %s has no value %g", op->def->name, ds_dtype_name(op->in[0].dtype),
             op->attr[attr].x);
    return DS_OK;
}

void ds_move_repeat(void *to, size_t n_bytes, const void *pattern, size_t pattern_bytes)
{
    ds_box box = {.element = pattern_bytes};
    ds_box_add(&box, (int64_t)(n_bytes / pattern_bytes), (int64_t)pattern_bytes, 0);
    ds_box_copy(&box, to, pattern);
}
