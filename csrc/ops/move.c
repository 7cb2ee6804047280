/* ops/move.c: pieces of moved elements, copied in the longest runs that they allow.
 *
 * A piece's box is reduced once: axes of one position are dropped, axes that continue each other joined, a short
 * run of elements becomes one wider element. What is left is copied plane by plane. */
#include "ops/move.h"

#include <string.h>

enum { BLOCK_BYTES = 16384 /* of frames with several pieces: what stays in the nearest cache */ };

/* Bytes between positions; y is never read, x never written. */
typedef struct extent {
    int64_t size, to, from;
} extent;

typedef struct box {
    int rank;
    size_t element;
    extent axis[DS_MAX_RANK + 3]; /* frames, their repeats, the piece's own */
} box;

/* ---------------------------------------------------------------- copying */

/* A run of any length; y may be x. */
static inline void copy_run(char *y, const char *x, size_t n)
{
    if (n > 32) {
        if (y != x)
            memmove(y, x, n);
        return;
    }
    if (n >= 16) { /* two moves that overlap; each reads before either writes */
        char head[16], tail[16];
        memcpy(head, x, 16);
        memcpy(tail, x + n - 16, 16);
        memcpy(y, head, 16);
        memcpy(y + n - 16, tail, 16);
    } else if (n >= 8) {
        char head[8], tail[8];
        memcpy(head, x, 8);
        memcpy(tail, x + n - 8, 8);
        memcpy(y, head, 8);
        memcpy(y + n - 8, tail, 8);
    } else {
        for (size_t i = 0; i < n; i++)
            y[i] = x[i];
    }
}

/* Elements of a constant size: a memcpy of it is a move or two. The last case's loops have nothing to assume. */
#define PLANE(bytes)                                                                            \
    for (int64_t i = 0; i < a.size; i++) {                                                      \
        char *const to = y + i * a.to;                                                          \
        const char *const from = x + i * a.from;                                                \
        if (b.from == 0) {                                                                      \
            char v[bytes];                                                                      \
            memcpy(v, from, bytes);                                                             \
            if (b.to == (bytes))                                                                \
                for (int64_t j = 0; j < b.size; j++)                                            \
                    memcpy(to + j * (bytes), v, bytes);                                         \
            else                                                                                \
                for (int64_t j = 0; j < b.size; j++)                                            \
                    memcpy(to + j * b.to, v, bytes);                                            \
        } else if (b.to == (bytes) && b.from == 2 * (bytes)) {                                  \
            for (int64_t j = 0; j < b.size; j++)                                                \
                memcpy(to + j * (bytes), from + j * 2 * (bytes), bytes);                        \
        } else if (b.to == (bytes)) {                                                           \
            for (int64_t j = 0; j < b.size; j++)                                                \
                memcpy(to + j * (bytes), from + j * b.from, bytes);                             \
        } else {                                                                                \
            for (int64_t j = 0; j < b.size; j++)                                                \
                memcpy(to + j * b.to, from + j * b.from, bytes);                                \
        }                                                                                       \
    }

static void copy_plane(char *y, const char *x, extent a, extent b, size_t element)
{
    if (b.to == (int64_t)element && b.from == (int64_t)element) {
        const size_t n = (size_t)b.size * element;
        for (int64_t i = 0; i < a.size; i++)
            copy_run(y + i * a.to, x + i * a.from, n);
        return;
    }
    if (a.size > b.size && b.size < 8) { /* the longer loop inside */
        const extent outer = b;
        b = a;
        a = outer;
    }
    switch (element) {
    case 1: PLANE(1) break;
    case 2: PLANE(2) break;
    case 4: PLANE(4) break;
    case 8: PLANE(8) break;
    case 16: PLANE(16) break;
    default:
        for (int64_t i = 0; i < a.size; i++)
            for (int64_t j = 0; j < b.size; j++)
                copy_run(y + i * a.to + j * b.to, x + i * a.from + j * b.from, element);
    }
}

static void copy_box(const box *b, int d, char *y, const char *x)
{
    static const extent one = {1, 0, 0};
    if (b->rank - d <= 2) {
        const extent outer = b->rank - d == 2 ? b->axis[d] : one;
        const extent inner = b->rank > d ? b->axis[b->rank - 1] : one;
        if (b->rank == d)
            copy_run(y, x, b->element);
        else
            copy_plane(y, x, outer, inner, b->element);
        return;
    }
    for (int64_t i = 0; i < b->axis[d].size; i++)
        copy_box(b, d + 1, y + i * b->axis[d].to, x + i * b->axis[d].from);
}

/* Adds the next inner axis; sizes are at least 1. */
static void add_axis(box *b, extent a)
{
    extent *last = b->rank > 0 ? &b->axis[b->rank - 1] : NULL;
    if (a.size == 1)
        return;
    if (last != NULL && last->to == a.size * a.to && last->from == a.size * a.from)
        *last = (extent){last->size * a.size, a.to, a.from};
    else
        b->axis[b->rank++] = a;
}

/* A run of elements at the end becomes one element, unless it is all there is. */
static void widen(box *b)
{
    const extent last = b->rank > 1 ? b->axis[b->rank - 1] : (extent){0, 0, 0};
    const int64_t element = (int64_t)b->element, n = last.size * element;
    if (last.to == element && last.from == element && (n == 2 || n == 4 || n == 8 || n == 16)) {
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

/* Frames [m0, m0 + n) of one row: each of n / hold groups shows one place of the source. */
static void move_frames(const ds_piece *p, char *y, const char *x, int64_t n, int64_t hold, size_t element,
                        int64_t frame)
{
    const int64_t e = (int64_t)element, step = hold > 1 || p->hold == 1 ? p->step : 0;
    box b = {.element = element};
    add_axis(&b, (extent){n / hold, frame * hold * e, step * e});
    add_axis(&b, (extent){hold, frame * e, 0});
    for (int d = 0; d < p->rank; d++)
        add_axis(&b, (extent){p->axis[d].size, p->axis[d].to * e,
                            p->input == DS_MOVE_FILL ? 0 : p->axis[d].from * e});
    widen(&b);
    copy_box(&b, 0, y, x);
}

/* Frames [m0, m1) of one row, the source's elements being those from x on, of which the first is number `at`. */
static void move_row(const ds_move *move, const ds_piece *p, const ds_target *out, int64_t m0, int64_t m1,
                     const char *x, int64_t at)
{
    const size_t element = ds_dtype_bytes(move->op->out[0].dtype);
    const int64_t frame = ds_signature_elements(&move->op->out[0]);
    while (m0 < m1) {
        int64_t n = m1 - m0, hold = 1;
        if (p->hold > 1) { /* what is left of a group, whole groups, the beginning of one */
            const int64_t in_group = m0 % p->hold;
            if (in_group != 0 || n < p->hold)
                n = n < p->hold - in_group ? n : p->hold - in_group;
            else
                hold = p->hold, n -= n % p->hold;
        }
        char *y = (char *)out->data + ((m0 - out->m0) * frame + p->to) * (int64_t)element;
        const int64_t first = advance(advance(p->from, m0 / p->hold, p->step), -1, at);
        move_frames(p, y, p->input == DS_MOVE_FILL ? x : x + first * (int64_t)element, n, hold, element,
                    frame);
        m0 += n;
    }
}

void ds_move_piece(const ds_move *move, const ds_piece *piece)
{
    const ds_op *op = move->op;
    const ds_run *run = move->run;
    char value[8];
    ds_piece p = *piece;
    if (p.input == DS_MOVE_FILL) {
        ds_move_encode(op->out[0].dtype, p.value, value);
        p.step = 0;
    }
    const int64_t frame = p.input >= 0 ? ds_signature_elements(&op->in[p.input]) : 0;
    for (size_t r = move->row; r < move->row + move->n_rows; r++) {
        const ds_target *out = &run->out[r];
        int64_t m0 = out->m0 > move->m0 ? out->m0 : move->m0, m1 = out->m1 < move->m1 ? out->m1 : move->m1;
        m0 = m0 > p.m0 ? m0 : p.m0;
        m1 = m1 < p.m1 ? m1 : p.m1;
        if (m0 >= m1)
            continue;
        const ds_window *in = p.input >= 0 ? &run->in[(size_t)p.input * run->n_rows + r] : NULL;
        const char *x = in != NULL                  ? in->data
                        : p.input == DS_MOVE_WEIGHT ? run->weights[0]
                                                    : value;
        move_row(move, &p, out, m0, m1, x, in != NULL ? advance(0, in->at, frame) : 0);
    }
}

void ds_move_frames(const ds_move *move, int64_t m0, int64_t m1, int64_t from, int64_t step)
{
    const int64_t n = ds_signature_elements(&move->op->in[0]);
    const ds_piece p = {.m0 = m0, .m1 = m1, .from = advance(0, from, n), .step = step * n, .hold = 1,
                        .rank = 1, .axis = {{n, 1, 1}}};
    ds_move_piece(move, &p);
}

void ds_move_fill(const ds_move *move, int64_t m0, int64_t m1, double value)
{
    const ds_piece p = {.input = DS_MOVE_FILL, .value = value, .m0 = m0, .m1 = m1, .hold = 1, .rank = 1,
                        .axis = {{ds_signature_elements(&move->op->out[0]), 1, 0}}};
    ds_move_piece(move, &p);
}

ds_piece ds_piece_along(const ds_op *op, int axis, int64_t to, int64_t n, int input, int64_t from, int64_t step)
{
    const ds_signature *out = &op->out[0], *in = input >= 0 ? &op->in[input] : out;
    const int64_t inner = ds_move_stride(out, axis), outer = ds_signature_elements(out) / inner / out->shape[axis];
    return (ds_piece){.input = input, .m1 = DS_NEVER, .to = to * inner, .from = from * inner,
                      .step = ds_signature_elements(in), .hold = 1, .rank = 3,
                      .axis = {{outer, out->shape[axis] * inner, in->shape[axis] * inner},
                               {n, inner, step * inner},
                               {inner, 1, 1}}};
}

void ds_move_forward(const ds_op *op, const ds_run *run, ds_move_list list, unsigned flags)
{
    ds_move move = {op, run, 0, run->n_rows, 0, DS_NEVER, DS_NEVER};
    int64_t most = DS_NEVER, longest = 0;
    if (flags & DS_MOVE_WITHIN) {
        most = BLOCK_BYTES / (int64_t)ds_signature_bytes(&op->out[0]);
        most = most < 1 ? 1 : most;
    }
    for (size_t r = 0; r < run->n_rows; r++) {
        const int64_t n = run->out[r].m1 - run->out[r].m0;
        longest = n > longest ? n : longest;
    }
    if (longest <= most && !(flags & DS_MOVE_ENDS)) {
        list(op, &move);
        return;
    }
    move.n_rows = 1;
    for (; move.row < run->n_rows; move.row++) {
        const ds_target *out = &run->out[move.row];
        move.total = run->ended[move.row] ? run->count[move.row].now.total : DS_NEVER;
        for (move.m0 = out->m0; move.m0 < out->m1; move.m0 = move.m1) {
            move.m1 = out->m1 - move.m0 > most ? move.m0 + most : out->m1;
            list(op, &move);
        }
    }
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
    if (!(value >= (dtype == DS_BOOL ? 0.0 : -limit) && value <= limit) || (double)(int64_t)value != value)
        return false;
    if (dtype == DS_I64)
        memcpy(element, &(int64_t){(int64_t)value}, sizeof(int64_t));
    else if (dtype == DS_I16)
        memcpy(element, &(int16_t){(int16_t)value}, sizeof(int16_t));
    else
        memcpy(element, &(uint8_t){value > 0.0 ? 1 : 0}, 1);
    return true;
}

void ds_move_repeat(void *to, size_t n_bytes, const void *pattern, size_t pattern_bytes)
{
    char *bytes = to;
    if (n_bytes != 0)
        memcpy(bytes, pattern, pattern_bytes);
    for (size_t done = pattern_bytes; done < n_bytes;) {
        const size_t n = done < n_bytes - done ? done : n_bytes - done;
        memcpy(bytes + done, bytes, n);
        done += n;
    }
}
