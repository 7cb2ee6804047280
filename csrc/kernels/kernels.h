/* kernels/kernels.h: the table of kernels of one instruction set.
 *
 * Kernels are pure maths on raw arrays: no allocation, no state, no errors; what is too large for a small stack lies in
 * the thread's workspace. Each is defined by its plain source in ref/, compiled for float and double from one text;
 * every other variant gives the same bits (same order of operations, explicit fma, no contraction).
 *
 * Orders of summation, part of the definition:
 *   product, depthwise   along k: chains of 256 by fma, each starting from zero; the chains' sums
 *                        added in ascending order; then the bias, if any, added last. What an
 *                        epilogue does then is what its kernels (unary, binary, ...) do by themselves.
 *   layer_norm, softmax  sixteen lanes: lane j adds elements j, j+16, ... in ascending order; the
 *                        lanes are then folded 8+8, 4+4, 2+2, 1+1; rms_norm likewise.
 *   column_sums          in double, one chain per column, from the first row on.
 *   cells                of a row stored as the weight is (DS_FORMAT_CELLS, kernels/narrow.h), integers less the row's
 *                        zero by integers: exact, in 32 bits; as a float times the product of row's and column's
 *                        scale; the bias.
 *                        In bf16: per cell of 32 k a chain of the even and one of the odd by fma, from zero, and
 *                        sum += even + odd; numbers below 2^-126 are zero, before and after every operation; the bias.
 *                        Split in three of bf16, 0 the greatest, per cell six such terms, of rows' and columns' parts
 *                        0 2, 0 1, 1 1, 1 0, 2 0, 0 0: about as exact as products of floats.
 *   attend               q . k in sixteen lanes by fma, folded as above; sums over keys by tiles (ds_attend).
 *   reduce               in double, four lanes: lane j adds elements j, j + 4, ...; (0 + 1) + (2 + 3); so products.
 *   fft                  by the factors of its size, 4 before 2, 3, 5 and other primes in turn, without fma; where
 *                        primes are large, by such transforms of ds_fft_chirp points.
 * A row's result never depends on the other rows of the call or on their number.
 * The bits of a NaN (sign, payload) are not part of any definition.
 *
 * Rows are passed by pointer, so that overlapping windows of many streams form one product. A product knows
 * its weight as an object (ds_packed) that says its own format and element type: what operators compute
 * in and what their weights are stored in are two things. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/detect.h"
#include "cpu/threads.h"
#include "dreamstream.h"
#include "kernels/draw.h"

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
    DS_REDUCE_SUM,
    DS_REDUCE_SQUARES, /* of what the elements differ from a centre by */
    DS_REDUCE_PRODUCT,
    DS_REDUCE_GREATEST,
    DS_REDUCE_LEAST /* NaN before all, else the first of equals */
} ds_reduction;

/* Where a raw weight lies: column n at depth (t * n_inner + i) * n_channels + c is
 * weight[column(n) + t * tap + i * inner + c * channel], column(n) = n * col, or where n_sub is not 0
 * n / n_sub * col + n % n_sub * sub; the depth is n_taps * n_inner * n_channels. */
typedef struct ds_weight_layout {
    size_t n_taps, n_inner, n_channels;
    ptrdiff_t col, tap, inner, channel;
    size_t n_sub;
    ptrdiff_t sub;
} ds_weight_layout;

/* A matrix whose columns are its rows of n, or (turned) of which column i is what element i of n rows is. */
static inline ds_weight_layout ds_layout_rows(size_t n)
{
    return (ds_weight_layout){
        .n_taps = 1, .n_inner = 1, .n_channels = n, .col = (ptrdiff_t)n, .channel = 1};
}

static inline ds_weight_layout ds_layout_turned(size_t n_rows, ptrdiff_t row)
{
    return (ds_weight_layout){
        .n_taps = 1, .n_inner = 1, .n_channels = n_rows, .col = 1, .channel = row};
}

static inline ptrdiff_t ds_weight_column(const ds_weight_layout *l, size_t n)
{
    return l->n_sub == 0 ? (ptrdiff_t)n * l->col
                         : (ptrdiff_t)(n / l->n_sub) * l->col + (ptrdiff_t)(n % l->n_sub) * l->sub;
}

/* How the elements of a packed weight lie. */
typedef enum ds_format {
    DS_FORMAT_RAW,    /* where their owner has them, who keeps them there, unchanged */
    DS_FORMAT_ROWS,   /* [n_cols][depth] */
    DS_FORMAT_PANELS, /* [n_cols / 32][depth][32], the last panel filled up with zero columns */
    DS_FORMAT_CELLS, /* [n_cols / 32][depth / g][32][g], g of them in four bytes; zeros as in panels, and up to
                         DS_CELL bytes of a column: for products whose rows are stored as the weight is. Of what
                         is split each such cell in its three parts, one behind the other */
    DS_FORMAT_TAPS /* [depth][n_cols], for depthwise */
} ds_format;

/* In what the elements of a weight are stored; whatever it is, each stands for one float, exactly (kernels/narrow.h);
 * but for DS_STORED_SPLIT, floats in three of bf16, for products by tile units: cells have it only, no graph. */
typedef enum ds_stored {
    DS_STORED_WIDE,
    DS_STORED_FP16,
    DS_STORED_BF16,
    DS_STORED_INT8,
    DS_STORED_SPLIT
} ds_stored;

/* How an operator's matrices are stored, and whether rows that they are multiplied with are so, too: wide ones with
 * products are split for these. */
typedef struct ds_narrowing {
    ds_stored stored;
    bool products;
} ds_narrowing;

/* A weight that passed once through `ds_pack`: it begins its block of memory, the elements follow, 64-byte
 * aligned, unless they lie elsewhere (ds_real_kernels.apart). The weights of one operator lie one behind the other. */
typedef struct ds_packed {
    ds_format format;
    ds_dtype element; /* what is computed in */
    ds_stored stored;
    bool tiles, pairs;             /* as its kernels' */
    size_t n_cols, depth, n_bytes; /* n_bytes: of the whole block */
    const void *data;
    const float *scales; /* a factor for each column of the panels; NULL: none, as floats have */
    const int32_t *sums; /* of each column's integers, of cells; NULL: none */
    const void *bias;    /* [n_cols], raw, in the type computed in; NULL: none */
    const void *raw;     /* where the weight came from: to be read in DS_FORMAT_RAW only */
    ds_weight_layout layout;
    int weight; /* which of its operator's weights that is, and how many bytes of it come before */
    size_t start; /* `raw`; both by ops/packed.h */
} ds_packed;

/* One step of an epilogue, on elements y of a row; columns count within the row. */
typedef enum ds_step_kind {
    DS_STEP_UNARY,   /* function(y) */
    DS_STEP_BINARY,  /* function(y, operand), or function(operand, y) where `swapped` */
    DS_STEP_COLUMNS, /* column_scale by operand [4][n]: mean, rest, scale, shift */
    DS_STEP_GLU      /* no step of its own: ds_epilogue.glu */
} ds_step_kind;

typedef struct ds_epilogue_step {
    ds_step_kind kind;
    int function;        /* ds_unary, ds_binary */
    double p[3];         /* of ds_unary */
    const void *operand; /* constants: one for each column, or one for all where `one` */
    bool one, swapped;
    const void *const *rows; /* instead of the operand: a row for each row of y */
    size_t n;                /* columns of a row, for DS_STEP_COLUMNS */
} ds_epilogue_step;

/* What is done to each block of a product, once, while it is in the nearest cache: after the bias first
 * the gated linear unit, then the steps. */
typedef struct ds_epilogue {
    bool glu; /* y[c] = z[c] sigmoid(z[n_cols / 2 + c]) of the product z: rows of n_cols / 2 */
    const ds_epilogue_step *steps;
    size_t n_steps;
} ds_epilogue;

/* y[m] = epilogue of (x[m][0..depth) . weight + its bias); y and x do not overlap. */
typedef struct ds_product {
    const ds_packed *weight;
    void *const *y;
    const void *const *x;
    size_t n_rows;
    const ds_epilogue *epilogue; /* NULL: none */
    void *workspace;             /* ds_product_workspace bytes, 64-byte aligned */
    bool backwards;              /* the last columns first: the same bits */
} ds_product;

/* Where a window's taps lie: tap t at t / inner * outer + t % inner * step elements from the first. */
typedef struct ds_taps {
    size_t step, inner, outer;
} ds_taps;

/* Fourier transforms of rows of n numbers; complex rows are two, of real and of imaginary parts. */
typedef enum ds_fft_kind {
    DS_FFT_REAL,         /* n reals to n / 2 + 1 complex numbers */
    DS_FFT_REAL_INVERSE, /* and back, divided by n; imaginary parts of what must be real are not read */
    DS_FFT_COMPLEX,
    DS_FFT_COMPLEX_INVERSE /* divided by n */
} ds_fft_kind;

typedef struct ds_fft {
    ds_fft_kind kind;
    size_t n;          /* at least 1, below 2^30 */
    const void *table; /* by fft_table, for kind and n */
    void *scratch;     /* ds_fft_scratch bytes, 64-byte aligned */
} ds_fft;

enum {
    DS_FFT_BESIDE = 4096, /* points of rows that are transformed beside each other, at most */
    DS_FFT_PRIME = 61,    /* the largest prime factor whose sums are made one by one */
    DS_FFT_PRIMES = 128   /* what all above 5 add up to, at most */
};

/* The complex points that a transform passes through. */
static inline size_t ds_fft_points(ds_fft_kind kind, size_t n)
{
    const bool halved = kind <= DS_FFT_REAL_INVERSE && n % 2 == 0;
    return halved ? n / 2 : n;
}

/* The size of the transforms that make one of so many points, whose prime factors are too large; 0: they are not. */
static inline size_t ds_fft_chirp(size_t points)
{
    size_t left = points, most = 1, sum = 0;
    for (size_t r = 2; r <= DS_FFT_PRIME; r++)
        for (; left % r == 0; left /= r)
            sum += r > 5 ? r : 0;
    if (left <= 1 && sum <= DS_FFT_PRIMES)
        return 0;
    while (most < 2 * points - 1)
        most *= 2;
    return most / 8 * 5 >= 2 * points - 1   ? most / 8 * 5
           : most / 4 * 3 >= 2 * points - 1 ? most / 4 * 3
                                            : most;
}

/* Complex numbers that a row takes while it is transformed. */
static inline size_t ds_fft_plane(size_t points)
{
    const size_t chirp = ds_fft_chirp(points);
    return chirp > 0 ? chirp : points + 1;
}

/* Bytes of what transforms of a size need besides. */
static inline size_t ds_fft_table_bytes(ds_fft_kind kind, size_t n, size_t element)
{
    const size_t points = ds_fft_points(kind, n), chirp = ds_fft_chirp(points);
    return (chirp > 0 ? 4 * points + 6 * chirp : 2 * n) * element;
}

/* Bytes that any variant wants for it. */
static inline size_t ds_fft_scratch(ds_fft_kind kind, size_t n, size_t element)
{
    const size_t plane = ds_fft_plane(ds_fft_points(kind, n));
    return 4 * plane * (plane <= DS_FFT_BESIDE + 1 ? 64 : element);
}

/* A function of the distance between a query and a key, in a table: entry i is that of distance first + i. */
typedef struct ds_distances {
    const void *table; /* NULL: none */
    int64_t first;
    size_t n; /* 1 at least */
    bool
        linear; /* beyond the ends it goes on as its last two entries do; else it keeps the value there */
} ds_distances;

/* Vectors by the distance between a query and a key: row t is that of distance first - t, as keys follow each other;
 * beyond the ends stand the last and the first. */
typedef struct ds_distance_rows {
    const void *table; /* [n][d]; NULL: none */
    int64_t first;
    size_t n, d; /* 1 at least */
} ds_distance_rows;

/* Sines and cosines in turn of the distance between a query and a key, without an end. */
typedef struct ds_distance_turns {
    const double *angles; /* [d / 2], of a step; NULL: none */
    const void *table;    /* [DS_ATTEND_TILE][d]: sine and cosine of 0, 1, ... steps */
    size_t d;             /* even */
} ds_distance_turns;

/* Attention of queries to the keys of one head, which lie along a stream. Query i, at a position of its own, sees keys
 * [from[i], to[i]): y = sum over j of softmax(scale (q . k_j + u . row(position - j)) + bias(position - j)) v_j, zeros
 * where it sees none. With a softcap c, c tanh(s / c) stands for what is before the bias; a sink is the score of one
 * more key, before all others, whose value is 0.
 *
 * Keys come in tiles of DS_ATTEND_TILE, which begin at multiples of it. A tile's exponentials, of what its scores
 * differ by from the greatest so far, are added in sixteen lanes, its values by one chain of fma per element; what
 * was before is scaled to the new greatest and added by fma. So nothing depends on when keys came.
 *
 * Where the first n_kept keys of the stream are given beside the others, queries see those of them before `from` too,
 * first. */
typedef struct ds_attend {
    void *const *y;                      /* [n_queries][d_value] */
    const void *const *q;                /* [n_queries][d_key] */
    const int64_t *position, *from, *to; /* [n_queries] */
    size_t n_queries;
    const void *keys, *values; /* those of position `at` */
    int64_t at;
    ds_fetch *keys_ahead, *values_ahead; /* what is read next; NULL: none is fetched */
    const void *kept_keys, *kept_values; /* those of position 0 */
    int64_t n_kept;                      /* 0: none */
    size_t key_step, value_step;         /* elements from one to the next */
    size_t d_key, d_value;
    double scale;
    ds_distances bias;
    const void *const *u; /* [n_queries][rows.d or turns.d]; NULL where there are neither */
    ds_distance_rows rows;
    ds_distance_turns turns; /* in place of rows */
    double softcap;          /* 0: none */
    const void *sink;        /* NULL: none */
    void *const *
        logs; /* [n_queries]: room for the logarithm of each sum of exponentials; NULL: not wanted */
    const ds_drop
        *drop; /* of weights, by the keys' positions and those of queries; NULL: none are dropped */
    uint64_t drop_key;
} ds_attend;

/* Of rows of elements: that of row r at i is x[r * row + i * step], step 0 or 1. */
typedef struct ds_factor {
    const void *x;
    size_t row, step;
} ds_factor;

/* One frame of a linear recurrence over rows of n elements: h = a before + b, rounded twice; a is the product of two
 * factors or its exponential, b a product too, of each the second with the step 1 if either has it. What sums are of:
 * h c over each row, as `reduce` adds. */
typedef struct ds_linear_recurrence {
    size_t n_rows, n;
    ds_factor a[2], b[2], c; /* c.step is 1 */
    bool exponential;
    const void *before;
    void *h;    /* may be `before` */
    void *sums; /* [n_rows]; NULL: none */
    void *room; /* [2 * max(n, DS_RECURRENCE_BLOCK)] */
} ds_linear_recurrence;

/* A step of an optimizer for n parameters p with gradients g; what it does without is NULL. */
typedef struct ds_update {
    void *p;
    const void *g;
    void *mean, *square,
        *most; /* of gradients, of their squares, and the greatest of these so far */
    size_t n;
    bool nesterov;
    bool first;         /* the mean begins as the gradient */
    double decay;       /* how much of a parameter is added to its gradient */
    double shrink;      /* what stays of a parameter by itself */
    double part;        /* of the difference to the gradient, how much the mean moves */
    double keep, fresh; /* what stays of the squares, or of SGD's mean; what comes of the new one */
    double root, eps;   /* the root of the squares is divided by it, and has eps added */
    double rate;
} ds_update;

/* Functions of int64, whose sums and products wrap; as those of reals (ds_real_kernels), `binary` as binary_rows. */
typedef struct ds_whole_kernels {
    void (*binary)(ds_binary function, int64_t *y, const int64_t *a, const int64_t *b,
                   size_t n_rows, size_t n, size_t a_row, size_t a_step, size_t b_row,
                   size_t b_step);
    void (*compare)(ds_compare function, uint8_t *y, const void *a, const void *b, size_t n,
                    size_t a_step, size_t b_step);
    void (*where)(void *y, const uint8_t *condition, const void *a, const void *b, size_t n,
                  size_t condition_step, size_t a_step, size_t b_step);
    void (*reduce)(ds_reduction kind, int64_t *y, const int64_t *x, size_t n_results, size_t stride,
                   size_t n, size_t step); /* but for squares */
} ds_whole_kernels;

/* The kernels of one real type (element = sizeof of it). All arrays are of that type unless typed. */
typedef struct ds_real_kernels {
    size_t element;
    /* These kernels with products of their own, for sums that no library may order: themselves mostly. */
    const struct ds_real_kernels *own;
    /* Of the weights of `product`. In DS_FORMAT_ROWS sums are a library's: no epilogues, no parts. */
    ds_format format;
    ds_stored stored; /* what ds_pack stores panels and cells of floats in */
    bool tiles;       /* whether products of cells go through tile units */
    bool pairs; /* or, of bf16, through instructions for pairs, for which cells lie otherwise */
    /* ds_pack writes no elements: ds_pack_elements puts them where its caller wants them. */
    bool apart;
    /* Columns [begin, end) of y, begin a multiple of DS_PANEL_COLUMNS; of a gated product so is half of
     * n_cols, or all is asked for. Called by ds_product_run. */
    void (*product)(const ds_product *p, size_t begin, size_t end);
    /* Each column by its own taps, the weight in DS_FORMAT_TAPS: y[m][c] = sum over taps of
     * x[m][place of the tap + c] * weight[tap][c], + bias; steps, but no glu. */
    void (*depthwise)(const ds_product *p, ds_taps places);
    /* The steps of the epilogue alone, on all columns of y, which holds the sums. */
    void (*finish)(const ds_product *p);
    /* Elementwise; y may be x. p: the function's three parameters; NULL where it has none. */
    void (*unary)(ds_unary function, void *y, const void *x, size_t n, const double *p);
    /* y[i] = f(a[i * a_step], b[i * b_step]), steps 0 or 1; y may be a or b where their step is 1. */
    void (*binary)(ds_binary function, void *y, const void *a, const void *b, size_t n,
                   size_t a_step, size_t b_step);
    /* The same of n_rows rows of n >= 1, contiguous in y; those of a and b begin a_row and b_row elements apart. */
    void (*binary_rows)(ds_binary function, void *y, const void *a, const void *b, size_t n_rows,
                        size_t n, size_t a_row, size_t a_step, size_t b_row, size_t b_step);
    void (*compare)(ds_compare function, uint8_t *y, const void *a, const void *b, size_t n,
                    size_t a_step, size_t b_step);
    void (*where)(void *y, const uint8_t *condition, const void *a, const void *b, size_t n,
                  size_t condition_step, size_t a_step, size_t b_step);
    /* Rows of n contiguous elements: softmax, or its logarithm; y may be x. A row of -inf only gives
     * zeros, or their logarithm -inf. */
    void (*softmax)(void *y, const void *x, size_t n_rows, size_t n, int logarithm);
    void (*attend)(const ds_attend *a);
    /* What attend's values are summed by, and all of its backward: y[i] = y[i] scale[i] + sum over j of
     * weight[i * apart + j * next] values[j * step], d elements each, for j in [a[i], b[i]). */
    void (*attend_sums)(void *const *y, const void *scale, size_t n_sums, const void *weight,
                        size_t apart, size_t next, const void *values, size_t step, size_t d,
                        const size_t *a, const size_t *b);
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
    void (*reduce)(ds_reduction kind, double *y, const void *x, size_t n_results, size_t stride,
                   size_t n, size_t step, const double *centre);
    /* y[m * n + i] = the largest of x[m * stride + t * step + i], t < n_taps, or where the divisor is not 0 their sum
     * in double divided by it: from the first on, or with `halves` of parts of 2^k taps, the longest first, each the
     * sum of its halves. n_taps is 1 at least, and below 2^32. */
    void (*pool)(double divisor, bool halves, void *y, const void *x, size_t n_windows,
                 size_t stride, size_t n_taps, size_t step, size_t n);
    /* y[m][i] = ((x[m][i] - mean[i]) - rest[i]) * scale[i] + shift[i]; y may be x. */
    void (*column_scale)(void *y, const void *x, size_t n_rows, size_t n, const void *mean,
                         const void *rest, const void *scale, const void *shift);
    /* Writes what transforms of size n need, ds_fft_table_bytes: cos and sin of 2 pi j / n in turn, and what a chirp
     * takes. */
    void (*fft_table)(void *table, ds_fft_kind kind, size_t n);
    /* y: one or two arrays of rows, as x; they do not overlap. */
    void (*fft)(const ds_fft *f, void *const *y, const void *const *x, size_t n_rows);
    /* One LSTM cell: gates = from_x + from_h, [4][n] in torch's order i, f, g, o;
     * c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c). h and c are updated. */
    void (*lstm_cell)(void *h, void *c, const void *from_x, const void *from_h, size_t n);
    /* One GRU cell: a = from_x, b = from_h, [3][n] in torch's order r, z, n, each sum of a and b but
     * n = tanh(a_n + sigmoid(r) b_n); h = n + sigmoid(z) (h - n). h is updated. */
    void (*gru_cell)(void *h, const void *from_x, const void *from_h, size_t n);
    /* One plain cell: h = tanh(from_x + from_h), or its positive part where relu is not 0. */
    void (*rnn_cell)(void *h, const void *from_x, const void *from_h, size_t n, int relu);
    void (*linear_recurrence)(const ds_linear_recurrence *p);
    /* dx[i] += what dy[i], the slope of y[i], makes of it for x[i]; x and y as far as the function's line of
     * pointwise.def reads them. p as for `unary`. */
    void (*unary_slope)(ds_unary function, void *dx, const void *dy, const void *x, const void *y,
                        size_t n, const double *p);
    /* dx[i] = the same of operand 0 or 1 of `binary`; a and b as there. */
    void (*binary_slope)(ds_binary function, int operand, void *dx, const void *dy, const void *a,
                         const void *b, size_t n, size_t a_step, size_t b_step);
    /* What torch's optimizers of these names do; the arrays do not overlap. */
    void (*adam)(const ds_update *u);
    void (*sgd)(const ds_update *u);
    const ds_whole_kernels *whole; /* beside either real type the same */
} ds_real_kernels;

typedef struct ds_kernels {
    const char *
        name; /* "ref", "x86_v3", "x86_v4", "x86_bf16", "x86_amx", "arm_v8", with "+openblas" where products go there */
    ds_isa isa;
    ds_real_kernels real[2]; /* float, double */
} ds_kernels;

enum {
    DS_PANEL_COLUMNS = 32,
    DS_ATTEND_TILE = 64,
    DS_RECURRENCE_BLOCK = 512, /* elements */
    DS_CELL = 64,              /* bytes of a column */
    DS_INT8_DEPTH = 66000,     /* the most of products of int8: sums of 255 * 127 fit 32 bits */
    DS_BF16_DEPTH = 33000,     /* and of bf16: a row of them is held on the stack */
    DS_PRODUCT_SLAB =
        64 /* rows of a gated product at a time, of others with an epilogue at least */
};

/* Bytes that a product of n_cols columns wants as its workspace. */
size_t ds_product_workspace(size_t n_cols, bool glu, size_t element);
/* Computes a product; by all threads of the pool (NULL: by this one), a part of the columns each, where it
 * is large enough. The bits are the same. */
void ds_product_run(const ds_real_kernels *k, const ds_product *p, ds_pool *pool);
/* Bytes that ds_pack writes for a weight of n_cols columns and this depth: exact, a multiple of 64. */
size_t ds_packed_bytes(const ds_real_kernels *k, ds_format format, size_t n_cols, size_t depth);
/* The same for its elements alone. */
size_t ds_packed_elements_bytes(const ds_packed *packed);
/* Writes the elements of a weight that was packed apart; data: 64-byte aligned. */
void ds_pack_elements(ds_packed *packed, void *data);
/* Prepares a weight for `product`, whose format is k->format, or for `depthwise`, whose is DS_FORMAT_TAPS.
 * packed: 64-byte aligned; the bias, which may be NULL, stays. */
void ds_pack(const ds_real_kernels *k, ds_format format, ds_packed *packed, const void *weight,
             size_t n_cols, const ds_weight_layout *layout, const void *bias);
/* The inverse of any packing but a split one, which lacks what is below 2^-126: writes the weight's elements where its
 * layout has them, counted from raw. */
void ds_unpack(const ds_packed *packed, void *raw);

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
