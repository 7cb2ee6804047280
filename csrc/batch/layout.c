/* Copies between two arrangements of the same elements.
 *
 * Axes that both sides lay out as one are joined, then two are chosen: along b the target's elements lie
 * closest, along a the source's of the others. The rest is a walk over planes [a][b]. */
#include "batch/layout.h"

#include <string.h>

#include "base/transpose.h"

enum { MAX_AXES = DS_MAX_RANK + 1, TILE = 16, NEAR = 1 << 15 /* bytes */ };

typedef struct axis {
    int64_t n;
    ptrdiff_t to, from; /* strides */
} axis;

typedef void (*plane_copy)(char *to, const char *from, axis a, axis b);

/* ---------------------------------------------------------------- the walk */
static ptrdiff_t distance(ptrdiff_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Leaves out axes of one element and joins those that are one on both sides; returns how many are left. */
static int join_axes(axis *axes, int n)
{
    int left = 0;
    for (int k = 0; k < n; k++) {
        const axis x = axes[k];
        if (x.n == 1)
            continue;
        if (left > 0 && axes[left - 1].to == x.to * x.n && axes[left - 1].from == x.from * x.n)
            axes[left - 1] = (axis){axes[left - 1].n * x.n, x.to, x.from};
        else
            axes[left++] = x;
    }
    return left;
}

/* Takes an axis out of n, or, where there is none, one of a single element. */
static axis take_axis(axis *axes, int *n, bool by_target)
{
    int best = *n - 1;
    if (best < 0)
        return (axis){1, 0, 0};
    for (int k = *n - 2; k >= 0; k--)
        if (by_target ? distance(axes[k].to) < distance(axes[best].to)
                      : distance(axes[k].from) < distance(axes[best].from))
            best = k;
    const axis taken = axes[best];
    for (int k = best; k + 1 < *n; k++)
        axes[k] = axes[k + 1];
    --*n;
    return taken;
}

static void walk_planes(char *to, const char *from, const axis *axes, int n, axis a, axis b,
                        plane_copy copy)
{
    if (n == 0) {
        copy(to, from, a, b);
        return;
    }
    for (int64_t i = 0; i < axes->n; i++)
        walk_planes(to + i * axes->to, from + i * axes->from, axes + 1, n - 1, a, b, copy);
}

static void copy_all(char *to, const char *from, axis *axes, int n, plane_copy copy)
{
    for (int k = 0; k < n; k++)
        if (axes[k].n == 0)
            return;
    n = join_axes(axes, n);
    const axis b = take_axis(axes, &n, true), a = take_axis(axes, &n, false);
    walk_planes(to, from, axes, n, a, b, copy);
}

/* ---------------------------------------------------------------- planes */
/* Copies, in tiles, that make `expression` of the source's element x. */
#define COPY(name, target, source, expression)                                                \
    static inline void name##_one(char *t, const char *f)                                     \
    {                                                                                         \
        source x;                                                                             \
        memcpy(&x, f, sizeof x);                                                              \
        const target y = (expression);                                                        \
        memcpy(t, &y, sizeof y);                                                              \
    }                                                                                         \
    static void name(char *to, const char *from, axis a, axis b)                              \
    {                                                                                         \
        if (b.to == sizeof(target) && b.from == sizeof(source)) {                             \
            for (int64_t i = 0; i < a.n; i++, to += a.to, from += a.from)                     \
                for (int64_t j = 0; j < b.n; j++)                                             \
                    name##_one(to + j * (int)sizeof(target), from + j * (int)sizeof(source)); \
            return;                                                                           \
        }                                                                                     \
        for (int64_t i0 = 0; i0 < a.n; i0 += TILE)                                            \
            for (int64_t j0 = 0; j0 < b.n; j0 += TILE)                                        \
                for (int64_t i = i0; i < a.n && i < i0 + TILE; i++)                           \
                    for (int64_t j = j0; j < b.n && j < j0 + TILE; j++)                       \
                        name##_one(to + i * a.to + j * b.to, from + i * a.from + j * b.from); \
    }

COPY(copy_bytes, unsigned char, unsigned char, x)
COPY(copy_singles, uint32_t, uint32_t, x)
COPY(copy_doubles, uint64_t, uint64_t, x)
COPY(round_f64, float, double, (float)x)

/* Turns a tile of elements of four bytes: n_b lines of n_a each become n_a lines. */
static void turn_tile(char *to, const char *from, int64_t n_b, int64_t n_a, ptrdiff_t from_line,
                      ptrdiff_t to_line)
{
    if (n_a == TILE && n_b == TILE) /* a case of its own, of known size */
        ds_transpose(to, from, TILE, TILE, from_line, to_line);
    else
        ds_transpose(to, from, n_b, n_a, from_line, to_line);
}

/* Elements of four bytes that lie side by side along b in `to`, along a in `from`: by tiles, unless a cache keeps all
 * lines. */
static void turn(char *to, const char *from, axis a, axis b)
{
    const int64_t tile = b.n * distance(b.from) <= NEAR ? a.n + b.n : TILE;
    for (int64_t i = 0; i < a.n; i += tile)
        for (int64_t j = 0; j < b.n; j += tile)
            turn_tile(to + i * a.to + j * 4, from + i * 4 + j * b.from,
                      b.n - j < tile ? b.n - j : tile, a.n - i < tile ? a.n - i : tile, b.from,
                      a.to);
}

static void copy_floats(char *to, const char *from, axis a, axis b)
{
    (b.to == 4 && a.from == 4 && b.from != 4 ? turn : copy_singles)(to, from, a, b);
}

/* What is to be turned is rounded first, tile by tile. */
static inline void round_lines(float *tile, const char *from, int64_t n_b, int64_t n_a,
                               ptrdiff_t from_line)
{
    for (int64_t k = 0; k < n_b; k++)
        for (int64_t l = 0; l < n_a; l++)
            round_f64_one((char *)&tile[k * TILE + l], from + l * 8 + k * from_line);
}

static void convert_f64(char *to, const char *from, axis a, axis b)
{
    float tile[TILE * TILE];
    if (b.to != 4 || a.from != 8) {
        round_f64(to, from, a, b);
        return;
    }
    for (int64_t i = 0; i < a.n; i += TILE)
        for (int64_t j = 0; j < b.n; j += TILE) {
            const int64_t n_a = a.n - i < TILE ? a.n - i : TILE;
            const int64_t n_b = b.n - j < TILE ? b.n - j : TILE;
            const char *const lines = from + i * 8 + j * b.from;
            if (n_a == TILE)
                round_lines(tile, lines, n_b, TILE, b.from);
            else
                round_lines(tile, lines, n_b, n_a, b.from);
            turn_tile(to + i * a.to + j * 4, (const char *)tile, n_b, n_a, TILE * 4, a.to);
        }
}

COPY(convert_samples, float, int16_t, (float)x * (1.0f / 32768.0f))
COPY(convert_bool, unsigned char, unsigned char, x != 0)
COPY(convert_i8, int64_t, int8_t, x)
COPY(convert_i16, int64_t, int16_t, x)
COPY(convert_i32, int64_t, int32_t, x)
COPY(convert_u8, int64_t, uint8_t, x)
COPY(convert_u16, int64_t, uint16_t, x)
COPY(convert_u32, int64_t, uint32_t, x)

/* ---------------------------------------------------------------- what an input takes */
static const struct {
    size_t n_bytes;
    plane_copy to_i64; /* NULL: no integer */
} elements[] = {
    [DS_ELEMENT_F32] = {4, NULL},         [DS_ELEMENT_F64] = {8, NULL},
    [DS_ELEMENT_BOOL] = {1, NULL},        [DS_ELEMENT_I8] = {1, convert_i8},
    [DS_ELEMENT_I16] = {2, convert_i16},  [DS_ELEMENT_I32] = {4, convert_i32},
    [DS_ELEMENT_I64] = {8, copy_doubles}, [DS_ELEMENT_U8] = {1, convert_u8},
    [DS_ELEMENT_U16] = {2, convert_u16},  [DS_ELEMENT_U32] = {4, convert_u32},
    [DS_ELEMENT_U64] = {8, copy_doubles}, /* modulo 2^64 */
};

static plane_copy find_reader(const ds_signature *s, ds_element element)
{
    if (s->dtype == DS_F32)
        return element == DS_ELEMENT_F32                   ? copy_floats
               : element == DS_ELEMENT_F64                 ? convert_f64
               : element == DS_ELEMENT_I16 && s->rank == 0 ? convert_samples
                                                           : NULL;
    if (s->dtype == DS_BOOL)
        return element == DS_ELEMENT_BOOL ? convert_bool : NULL;
    return elements[element].to_i64;
}

bool ds_layout_fits(const ds_signature *signature, ds_element element)
{
    return find_reader(signature, element) != NULL;
}

/* ---------------------------------------------------------------- copies */
/* The strides of contiguous frames of elements of so many bytes. */
static void fill_contiguous(ptrdiff_t *strides, const ds_signature *s, size_t n_bytes)
{
    for (int d = s->rank; d >= 0; d--) {
        strides[d] = (ptrdiff_t)n_bytes;
        n_bytes *= d > 0 ? (size_t)s->shape[d - 1] : 1;
    }
}

/* Whether n frames lie end to end. */
static bool is_contiguous(const ptrdiff_t *strides, const ds_signature *s, int64_t n)
{
    if (!strides)
        return true;
    size_t n_bytes = ds_dtype_bytes(s->dtype);
    for (int d = s->rank; d >= 0; d--) {
        const int64_t size = d > 0 ? s->shape[d - 1] : n;
        if (size != 1 && strides[d] != (ptrdiff_t)n_bytes)
            return false;
        n_bytes *= (size_t)size;
    }
    return true;
}

/* Copies n frames between two arrangements; strides NULL: contiguous frames of the signature's elements. */
static void copy_between(void *to, const ptrdiff_t *to_strides, const void *from,
                         const ptrdiff_t *from_strides, const ds_signature *s, int64_t n,
                         plane_copy copy)
{
    ptrdiff_t dense[MAX_AXES];
    axis axes[MAX_AXES];
    fill_contiguous(dense, s, ds_dtype_bytes(s->dtype));
    for (int d = 0; d <= s->rank; d++)
        axes[d] = (axis){d ? s->shape[d - 1] : n, (to_strides ? to_strides : dense)[d],
                         (from_strides ? from_strides : dense)[d]};
    copy_all(to, from, axes, s->rank + 1, copy);
}

void ds_layout_read(void *to, const void *from, const ptrdiff_t *strides, ds_element element,
                    const ds_signature *signature, int64_t n)
{
    const plane_copy copy = find_reader(signature, element);
    if ((copy == copy_floats || copy == copy_doubles) && is_contiguous(strides, signature, n)) {
        memcpy(to, from, (size_t)n * ds_signature_bytes(signature));
        return;
    }
    ptrdiff_t close[MAX_AXES];
    fill_contiguous(close, signature, elements[element].n_bytes);
    copy_between(to, NULL, from, strides ? strides : close, signature, n, copy);
}

void ds_layout_write(void *to, const ptrdiff_t *strides, const void *from,
                     const ds_signature *signature, int64_t n)
{
    if (is_contiguous(strides, signature, n)) {
        memcpy(to, from, (size_t)n * ds_signature_bytes(signature));
        return;
    }
    const size_t n_bytes = ds_dtype_bytes(signature->dtype);
    copy_between(to, strides, from, NULL, signature, n,
                 n_bytes == 4   ? copy_floats
                 : n_bytes == 8 ? copy_doubles
                                : copy_bytes);
}
