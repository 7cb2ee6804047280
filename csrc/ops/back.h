/* ops/back.h: what backward functions have in common: room, and sums that are products of rows.
 *
 * Slopes of rows that went through a matrix are a product with the matrix the other way round. The slope of the matrix
 * is a product whose depth is the rows: slabs of DS_BACK_ROWS, one after another, in the order of the batch. */
#pragma once
#include "base/alloc.h"
#include "ops/op.h"

enum { DS_BACK_ROWS = 512 };

/* Scratch that is taken piece by piece, each 64-byte aligned. */
typedef struct ds_room {
    char *at;
} ds_room;

static inline void *ds_room_take(ds_room *room, size_t n_bytes)
{
    void *const taken = room->at;
    room->at += ds_aligned(n_bytes);
    return taken;
}

/* y[i] += x[i] */
static inline void ds_back_add(const ds_real_kernels *k, void *y, const void *x, size_t n)
{
    k->binary(DS_BINARY_ADD, y, y, x, n, 1, 1);
}
/* y[i] += x[i], x in double. */
void ds_back_add_sums(const ds_real_kernels *k, void *y, const double *x, size_t n);

/* The most bytes that a packed weight takes. */
size_t ds_back_packed_bytes(size_t n_cols, size_t depth, size_t element);

/* dx[i] += g[i] . weight, for any number of rows; NULL among dx: not wanted. Room: ds_back_rows_bytes. */
size_t ds_back_rows_bytes(size_t n_cols, size_t element);
void ds_back_rows(const ds_run *run, const ds_packed *weight, void *const *dx, const void *const *g,
                  size_t n_rows, ds_room room);

/* dw[i * layout->col + place of k by layout] += sum over rows of g[row][i] x[row][k], i < n_g; as many k as the layout
 * has. Room: ds_back_outer_bytes. */
size_t ds_back_outer_bytes(size_t n_g, size_t n_x, size_t element);
void ds_back_outer(const ds_run *run, void *dw, const ds_weight_layout *layout,
                   const void *const *g, size_t n_g, const void *const *x, size_t n_rows,
                   ds_room room);

/* sum[i] += sum over rows of g[row][i], in double on the way. Room: n doubles. */
void ds_back_column_sums(const ds_run *run, void *sum, const void *const *g, size_t n_rows,
                         size_t n, ds_room room);

/* Sums of the slopes of weights, at most DS_SUMMED, in double, from zeros on; NULL where they are not wanted. At the
 * end they are added to the slopes, rounded once. Room: ds_back_sums_bytes. */
enum { DS_SUMMED = 4 };
size_t ds_back_sums_bytes(const ds_op *op);
void ds_back_sums_begin(const ds_op *op, const ds_back *b, double **sums, ds_room *room);
void ds_back_sums_end(const ds_op *op, const ds_back *b, double *const *sums);

/* As ds_next_frames, with slopes. */
bool ds_back_next_frames(const ds_op *op, const ds_back *b, ds_frames *f);

/* Calls a function that is compiled for both real types from one text: it is DS_FOR_ELEMENT, and its last parameter the
 * bytes of an element, a constant to the compiler. */
#define DS_FOR_ELEMENT static inline __attribute__((always_inline))
#define DS_BY_ELEMENT(function, element, ...)                          \
    ((element) == sizeof(float) ? function(__VA_ARGS__, sizeof(float)) \
                                : function(__VA_ARGS__, sizeof(double)))

/* Where slopes of what a row carries lie. */
static inline void *ds_back_carried(const ds_op *op, const ds_back *b, size_t r, int i)
{
    return (char *)b->dcarried[r] + op->carried[i].offset;
}

/* x[i] += value */
static inline void ds_back_add_real(void *x, size_t element, size_t i, double value)
{
    if (element == sizeof(float))
        ((float *)x)[i] = (float)((double)((float *)x)[i] + value);
    else
        ((double *)x)[i] += value;
}

/* The backward `name_backward` of framewise operators: `name_slopes(op, b, f)` for every row that has frames. */
#define DS_FRAMEWISE_BACKWARD(name)                                \
    static void name##_backward(const ds_op *op, const ds_back *b) \
    {                                                              \
        ds_frames f;                                               \
        for (f.next = 0; ds_back_next_frames(op, b, &f);)          \
            name##_slopes(op, b, &f);                              \
    }
