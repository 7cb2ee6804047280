/* kernels/kernels.h: the table of kernels of one instruction set.
 *
 * Kernels are pure maths on raw arrays: no allocation, no state, no errors. Each is defined by its
 * plain source in ref/, compiled for float and double from one text; every other variant gives the
 * same bits (same order of operations, explicit fma, no contraction).
 *
 * Orders of summation, part of the definition:
 *   product, depthwise   along k: chains of 256 by fma, each starting from zero; the chains' sums
 *                        added in ascending order; then the bias, if any, added last.
 *   layer_norm, softmax  sixteen lanes: lane j adds elements j, j+16, ... in ascending order; the
 *                        lanes are then folded 8+8, 4+4, 2+2, 1+1; rms_norm likewise.
 *   column_sums          in double, one chain per column, from the first row on.
 *   reduce               in double, four lanes: lane j adds elements j, j + 4, ...; (0 + 1) + (2 + 3).
 * A row's result never depends on the other rows of the call or on their number.
 * The bits of a NaN (sign, payload) are not part of any definition.
 *
 * Rows are passed by pointer, so that overlapping windows of many streams form one product. */
#ifndef DS_KERNELS_H
#define DS_KERNELS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/detect.h"

/* Functions of single elements, by kernels/pointwise.def. */
typedef enum ds_unary {
#define UNARY(name, ID, ...) DS_UNARY_##ID,
#define WHOLE UNARY
#define FORM(ID, ...) DS_UNARY_##ID,
#include "kernels/pointwise.def"
    DS_UNARY_COUNT
} ds_unary;

typedef enum ds_binary {
#define BINARY(name, ID, ...) DS_BINARY_##ID,
#include "kernels/pointwise.def"
    DS_BINARY_COUNT
} ds_binary;

typedef enum ds_compare {
#define COMPARE(name, ID, ...) DS_COMPARE_##ID,
#include "kernels/pointwise.def"
    DS_COMPARE_COUNT
} ds_compare;

typedef enum ds_reduction {
    DS_REDUCE_SUM, DS_REDUCE_SQUARES, /* of what the elements differ from a centre by */
    DS_REDUCE_GREATEST, DS_REDUCE_LEAST /* NaN before all, else the first of equals */
} ds_reduction;

/* Where a product's weight lies: column n at depth (t * n_inner + i) * n_channels + c is
 * weight[n * col + t * tap + i * inner + c * channel]; the depth is n_taps * n_inner * n_channels. */
typedef struct ds_weight_layout {
    size_t n_taps, n_inner, n_channels;
    ptrdiff_t col, tap, inner, channel;
} ds_weight_layout;

/* The kernels of one real type (element = sizeof of it). All arrays are of that type unless typed. */
typedef struct ds_real_kernels {
    size_t element;
    /* Whether packed weights point at the raw ones, which then must outlive them unchanged. */
    bool borrows;
    /* Bytes that `pack` writes for a weight of n_cols columns and this depth: exact, a multiple of 64. */
    size_t (*packed_bytes)(size_t n_cols, size_t depth);
    /* Prepares a weight for `product`; packed: 64-byte aligned. */
    void (*pack)(void *packed, const void *weight, size_t n_cols, const ds_weight_layout *layout);
    /* y[m][0..n_cols) = x[m][0..depth) . packed + bias; bias may be NULL; y and x do not overlap. */
    void (*product)(void *const *y, const void *const *x, size_t n_rows, const void *packed,
                    const void *bias, size_t n_cols, size_t depth);
    /* y[m][c] = sum over taps of x[m][tap * tap_stride + c] * weight[tap * n_channels + c], + bias. */
    void (*depthwise)(void *const *y, const void *const *x, size_t n_rows, size_t tap_stride,
                      const void *weight, const void *bias, size_t n_taps, size_t n_channels);
    /* Elementwise; y may be x. p: the function's three parameters; NULL where it has none. */
    void (*unary)(ds_unary function, void *y, const void *x, size_t n, const double *p);
    /* y[i] = f(a[i * a_step], b[i * b_step]), steps 0 or 1; y may be a or b where their step is 1. */
    void (*binary)(ds_binary function, void *y, const void *a, const void *b, size_t n,
                   size_t a_step, size_t b_step);
    void (*compare)(ds_compare function, uint8_t *y, const void *a, const void *b, size_t n,
                    size_t a_step, size_t b_step);
    void (*where)(void *y, const uint8_t *condition, const void *a, const void *b, size_t n,
                  size_t condition_step, size_t a_step, size_t b_step);
    /* Rows of n contiguous elements: softmax, or its logarithm; y may be x. A row of -inf only gives
     * zeros, or their logarithm -inf. */
    void (*softmax)(void *y, const void *x, size_t n_rows, size_t n, int logarithm);
    /* Mean, its rounding error, then the variance about both; weight and bias may be NULL; y may be x. */
    void (*layer_norm)(void *y, const void *x, size_t n_rows, size_t n, const void *weight,
                       const void *bias, double epsilon);
    /* y = x / sqrt(mean of x^2 + epsilon) * weight over rows; weight may be NULL; y may be x. */
    void (*rms_norm)(void *y, const void *x, size_t n_rows, size_t n, const void *weight,
                     double epsilon);
    /* Adds to sums[0..n) the rows' elements, or with a centre the squares of what they differ by. */
    void (*column_sums)(double *sums, const void *x, size_t n_rows, size_t n, const double *centre);
    /* y[r] = the reduction of x[r * stride + k * step], k < n, n >= 1; stride or step is 1. centre: of each result,
     * for squares; NULL stands for 0. */
    void (*reduce)(ds_reduction kind, double *y, const void *x, size_t n_results, size_t stride, size_t n,
                   size_t step, const double *centre);
    /* y[m][i] = ((x[m][i] - mean[i]) - rest[i]) * scale[i] + shift[i]; y may be x. */
    void (*column_scale)(void *y, const void *x, size_t n_rows, size_t n, const void *mean,
                         const void *rest, const void *scale, const void *shift);
    /* One LSTM cell: gates = from_x + from_h, [4][n] in torch's order i, f, g, o;
     * c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c). h and c are updated. */
    void (*lstm_cell)(void *h, void *c, const void *from_x, const void *from_h, size_t n);
    /* One GRU cell: a = from_x, b = from_h, [3][n] in torch's order r, z, n, each sum of a and b but
     * n = tanh(a_n + sigmoid(r) b_n); h = n + sigmoid(z) (h - n). h is updated. */
    void (*gru_cell)(void *h, const void *from_x, const void *from_h, size_t n);
    /* One plain cell: h = tanh(from_x + from_h), or its positive part where relu is not 0. */
    void (*rnn_cell)(void *h, const void *from_x, const void *from_h, size_t n, int relu);
} ds_real_kernels;

typedef struct ds_kernels {
    const char *name; /* "ref", "x86_v3", "x86_v4", with "+openblas" where products go there */
    ds_isa isa;
    ds_real_kernels real[2]; /* float, double */
} ds_kernels;

/* The kernels for an instruction set: the best variant not above it. Returns view (static). */
const ds_kernels *ds_kernels_for(ds_isa isa);
/* The same with products by OpenBLAS; NULL where the library was built without it. */
const ds_kernels *ds_kernels_blas(ds_isa isa);
/* Holds OpenBLAS to n threads; no effect without it. */
void ds_blas_set_threads(int n_threads);
/* OpenBLAS's own description of its build, or NULL. */
const char *ds_blas_description(void);
/* All variants compiled in, whether this machine runs them or not, without OpenBLAS, lowest first: for
 * tests and benchmarks. Fills at most n, returns the number. */
size_t ds_kernels_list(const ds_kernels **fills, size_t n);

#endif
