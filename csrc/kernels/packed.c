/* kernels/packed.c: packed weights of any format: made, and brought back to where they came from.
 *
 * Panels of 32 columns let a product read its weight in one line from start to end, whole registers at a
 * time. A raw weight is not copied: what is written says only where it is, so that it exists once, and
 * processes that map one file share it. */
#include <string.h>

#include "base/alloc.h"
#include "base/transpose.h"
#include "kernels/narrow.h"

enum { PACKED_GATHERED = 16 }; /* elements of a column at a time: what is written stays in cache */

static ds_stored packed_stored(const ds_real_kernels *k, ds_format format)
{
    const bool can = format == DS_FORMAT_PANELS || format == DS_FORMAT_CELLS;
    return can && k->element == sizeof(float) ? k->stored : DS_STORED_WIDE;
}

/* Columns and elements of a column, those that are none counted. */
static size_t packed_columns(ds_format format, size_t n_cols)
{
    const size_t panels = (n_cols + DS_PANEL_COLUMNS - 1) / DS_PANEL_COLUMNS * DS_PANEL_COLUMNS;
    return format == DS_FORMAT_RAW                                   ? 0
           : format == DS_FORMAT_PANELS || format == DS_FORMAT_CELLS ? panels
                                                                     : n_cols;
}

static size_t packed_depth(ds_format format, ds_stored stored, size_t depth)
{
    return format == DS_FORMAT_CELLS ? ds_cells(stored, depth) * DS_CELL / ds_stored_bytes(stored)
                                     : depth;
}

/* Arrays of one number for each column that lie behind the elements: scales, and sums. */
static size_t packed_behind(ds_format format, ds_stored stored)
{
    return stored != DS_STORED_INT8 ? 0 : format == DS_FORMAT_CELLS ? 2 : 1;
}

static size_t packed_elements_bytes(ds_format format, ds_stored stored, size_t element,
                                    size_t n_cols, size_t depth)
{
    const size_t columns = packed_columns(format, n_cols);
    const size_t width = stored == DS_STORED_WIDE ? element : ds_stored_bytes(stored);
    return ds_aligned(columns * packed_depth(format, stored, depth) * width) +
           packed_behind(format, stored) * ds_aligned(columns * sizeof(float));
}

size_t ds_packed_bytes(const ds_real_kernels *k, ds_format format, size_t n_cols, size_t depth)
{
    return ds_aligned(sizeof(ds_packed)) +
           (k->apart ? 0
                     : packed_elements_bytes(format, packed_stored(k, format), k->element, n_cols,
                                             depth));
}

size_t ds_packed_elements_bytes(const ds_packed *packed)
{
    return packed_elements_bytes(packed->format, packed->stored,
                                 packed->element == DS_F32 ? sizeof(float) : sizeof(double),
                                 packed->n_cols, packed->depth);
}

/* Elements from the raw weight's first to that of column 0 at depth k. */
static ptrdiff_t packed_source(const ds_weight_layout *l, size_t k)
{
    const size_t tap = k / l->n_channels;
    return (ptrdiff_t)(tap / l->n_inner) * l->tap + (ptrdiff_t)(tap % l->n_inner) * l->inner +
           (ptrdiff_t)(k % l->n_channels) * l->channel;
}

/* Elements from the packed weight's first to that of column n at depth k. */
static size_t packed_place(const ds_packed *p, size_t n, size_t k)
{
    if (p->format == DS_FORMAT_PANELS)
        return (n / DS_PANEL_COLUMNS * p->depth + k) * DS_PANEL_COLUMNS + n % DS_PANEL_COLUMNS;
    if (p->format == DS_FORMAT_CELLS) {
        const size_t g = 4 / ds_stored_bytes(p->stored);
        const size_t groups = ds_cells(p->stored, p->depth) * (DS_CELL / 4);
        return ((n / DS_PANEL_COLUMNS * groups + k / g) * DS_PANEL_COLUMNS + n % DS_PANEL_COLUMNS) *
                   g +
               k % g;
    }
    return p->format == DS_FORMAT_TAPS ? k * p->n_cols + n : n * p->depth + k;
}

/* The same of what has its numbers in pairs: of each four numbers the first and the third, then the second and the
 * fourth, of 16 columns, and of the 16 others; the earlier one above the later one in four bytes. */
static size_t packed_pair(const ds_packed *p, size_t n, size_t k)
{
    const size_t quads = ds_cells(p->stored, p->depth) * (DS_CELL / 8), half = DS_PANEL_COLUMNS / 2;
    const size_t quad = n / DS_PANEL_COLUMNS * quads + k / 4;
    const size_t vector = quad * 4 + n % DS_PANEL_COLUMNS / half * 2 + k % 2;
    return (vector * half + n % half) * 2 + (k % 4 < 2);
}

/* Copies an element of the raw weight to its place, or back. */
static inline void packed_copy(char *place, char *raw, bool back, size_t element, ds_stored stored,
                               float scale)
{
    float x;
    if (stored == DS_STORED_WIDE) {
        memcpy(back ? raw : place, back ? place : raw, element);
    } else if (back) {
        x = ds_widened(stored, place, scale);
        memcpy(raw, &x, sizeof x);
    } else {
        memcpy(&x, raw, sizeof x);
        ds_narrowed(stored, place, x, scale);
    }
}

/* Narrows n numbers that lie side by side, the first of which is number `at` of a group, and puts the groups `step`
 * bytes apart. */
static inline void packed_groups(char *to, size_t step, const float *from, size_t at, size_t n,
                                 ds_stored stored, float scale)
{
    char narrow[PACKED_GATHERED * sizeof(float)];
    const size_t width = ds_stored_bytes(stored), group = 4 / width;
    for (size_t i = 0; i < n; i++)
        ds_narrowed(stored, narrow + i * width, from[i], scale);
    size_t i = 0;
    for (; at == 0 && i + group <= n; i += group, to += step)
        memcpy(to, narrow + i * width, 4);
    for (; i < n; i++, at = at + 1 < group ? at + 1 : 0, to += at == 0 ? step : 0)
        memcpy(to + at * width, narrow + i * width, width);
}

/* The scales of a panel's columns, which it reads just before they are narrowed by these. */
static void packed_scale(const ds_packed *p, const float *raw, size_t col)
{
    const bool together =
        p->depth > 0 && packed_source(&p->layout, p->depth - 1) == (ptrdiff_t)p->depth - 1;
    for (size_t j = col; j < p->n_cols && j < col + DS_PANEL_COLUMNS; j++) {
        const float *const column = raw + ds_weight_column(&p->layout, j);
        float greatest = together ? ds_narrow_greatest_of(column, p->depth) : 0;
        for (size_t k = 0; k < p->depth && !together; k++)
            greatest = ds_narrow_greatest(greatest, column[packed_source(&p->layout, k)]);
        ((float *)(uintptr_t)p->scales)[j] = ds_narrow_scale(greatest);
    }
}

/* Copies between the raw weight and the packed one, by short runs of some columns beside each other. */
static inline void packed_move(const ds_packed *p, char *data, char *raw, bool back, size_t element,
                               ds_stored stored)
{
    const ds_weight_layout l = p->layout;
    const size_t width = stored == DS_STORED_WIDE ? element : ds_stored_bytes(stored);
    const unsigned shift =
        p->format == DS_FORMAT_CELLS ? 3 - (unsigned)width : 0; /* so many beside each other */
    const size_t beside = ((size_t)1 << shift) - 1;
    const size_t step = (packed_place(p, 0, beside + 1) - packed_place(p, 0, 0)) * width;
    const ptrdiff_t channel = l.channel * (ptrdiff_t)element;
    for (size_t col = 0; col < p->n_cols; col += DS_PANEL_COLUMNS) {
        if (stored == DS_STORED_INT8 && !back)
            packed_scale(p, (const float *)(const void *)raw, col);
        for (size_t k = 0, n; k < p->depth; k += n) {
            const size_t left = l.n_channels - k % l.n_channels;
            const ptrdiff_t first = packed_source(&l, k);
            n = left < PACKED_GATHERED ? left : PACKED_GATHERED;
            for (size_t j = col; j < p->n_cols && j < col + DS_PANEL_COLUMNS; j++) {
                char *from = raw + (first + ds_weight_column(&l, j)) * (ptrdiff_t)element;
                char *const to = data + packed_place(p, j, k & ~beside) * width;
                const float scale = stored == DS_STORED_INT8 ? p->scales[j] : 1;
                if (shift > 0 && !back && l.channel == 1) {
                    packed_groups(to, step, (const float *)(const void *)from, k & beside, n,
                                  stored, scale);
                    continue;
                }
                for (size_t i = k & beside; i < n + (k & beside); i++, from += channel)
                    packed_copy(to + (i >> shift) * step + (i & beside) * width, from, back,
                                element, stored, scale);
            }
        }
    }
}

/* Narrows lines of numbers, of which each has n_cols columns, into those of panels. */
static inline void packed_narrowed(char *data, const float *lines, size_t n_lines, size_t n_cols,
                                   ds_stored stored, const float *scales)
{
    const size_t width = ds_stored_bytes(stored);
    for (size_t i = 0; i < n_lines * DS_PANEL_COLUMNS; i += DS_PANEL_COLUMNS)
        for (size_t j = 0; j < n_cols; j++)
            ds_narrowed(stored, data + (i + j) * width, lines[i + j], scales ? scales[j] : 1);
}

/* Copies a raw weight to panels whole lines at a time, where columns or channels lie beside each other; false: they
 * do not. */
static bool packed_lines(const ds_packed *p, char *data, const char *raw, size_t element)
{
    const ds_weight_layout l = p->layout;
    const bool across = l.col == 1, along = l.channel == 1 && element == sizeof(float);
    const bool wide = p->stored == DS_STORED_WIDE;
    if (p->format != DS_FORMAT_PANELS || l.n_sub > 0 || !(across || along))
        return false;
    float lines[PACKED_GATHERED * DS_PANEL_COLUMNS];
    const size_t line = DS_PANEL_COLUMNS * element, most = wide ? SIZE_MAX : PACKED_GATHERED;
    const size_t own_line = wide ? line : DS_PANEL_COLUMNS * ds_stored_bytes(p->stored);
    for (size_t col = 0; col < p->n_cols; col += DS_PANEL_COLUMNS) {
        const size_t left = p->n_cols - col;
        const size_t n_cols = left < DS_PANEL_COLUMNS ? left : DS_PANEL_COLUMNS;
        if (p->stored == DS_STORED_INT8)
            packed_scale(p, (const float *)(const void *)raw, col);
        for (size_t k = 0, n; k < p->depth; k += n, data += n * own_line) {
            const ptrdiff_t first = packed_source(&l, k) + ds_weight_column(&l, col);
            const char *const from = raw + first * (ptrdiff_t)element;
            char *const to = wide ? data : (char *)lines;
            n = across ? 1 : l.n_channels - k % l.n_channels;
            n = n < most ? n : most;
            if (across)
                memcpy(to, from, n_cols * element);
            else
                ds_transpose(to, from, (int64_t)n_cols, (int64_t)n,
                             (int64_t)l.col * (int64_t)element, (int64_t)line);
            if (p->stored == DS_STORED_BF16)
                packed_narrowed(data, lines, n, n_cols, DS_STORED_BF16, NULL);
            else if (p->stored == DS_STORED_FP16)
                packed_narrowed(data, lines, n, n_cols, DS_STORED_FP16, NULL);
            else if (!wide)
                packed_narrowed(data, lines, n, n_cols, DS_STORED_INT8, p->scales + col);
        }
    }
    return true;
}

/* Pairs of the numbers of two lines. */
static inline void packed_pair_lines(uint16_t *to, const float *above, const float *below, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        const uint32_t pair =
            (uint32_t)ds_bf16_of_float(above[j]) << 16 | ds_bf16_of_float(below[j]);
        memcpy(to + 2 * j, &pair, sizeof pair);
    }
}

/* Copies numbers in pairs, of a panel's columns together where a column's numbers lie side by side. */
static void packed_pairs(const ds_packed *p, uint16_t *data, float *raw, bool back)
{
    const ds_weight_layout l = p->layout;
    const bool beside = !back && l.channel == 1 && l.n_channels % 4 == 0 && l.n_sub == 0;
    const size_t half = DS_PANEL_COLUMNS / 2;
    float lines[PACKED_GATHERED * DS_PANEL_COLUMNS];
    for (size_t col = 0; col < p->n_cols; col += DS_PANEL_COLUMNS) {
        const size_t left = p->n_cols - col;
        const size_t n_cols = left < DS_PANEL_COLUMNS ? left : DS_PANEL_COLUMNS;
        for (size_t k = 0, n; k < p->depth; k += n) {
            const ptrdiff_t first = packed_source(&l, k);
            n = beside ? l.n_channels - k % l.n_channels : 1;
            n = n < PACKED_GATHERED ? n : PACKED_GATHERED;
            for (size_t j = col; j < col + n_cols && !beside; j++)
                packed_copy((char *)(data + packed_pair(p, j, k)),
                            (char *)(raw + first + ds_weight_column(&l, j)), back, sizeof *raw,
                            DS_STORED_BF16, 1);
            if (beside)
                ds_transpose((char *)lines, (char *)(raw + first + ds_weight_column(&l, col)),
                             (int64_t)n_cols, (int64_t)n, (int64_t)l.col * (int64_t)sizeof *raw,
                             (int64_t)(DS_PANEL_COLUMNS * sizeof *raw));
            for (size_t i = 0; i < n && beside; i += i % 4 == 0 ? 1 : 3)
                for (size_t j = 0; j < n_cols; j += half)
                    packed_pair_lines(data + packed_pair(p, col + j, k + i) - 1,
                                      lines + i * DS_PANEL_COLUMNS + j,
                                      lines + (i + 2) * DS_PANEL_COLUMNS + j,
                                      n_cols - j < half ? n_cols - j : half);
        }
    }
}

/* The same, a loop for each kind of element. */
static void packed_move_all(const ds_packed *p, char *data, char *raw, bool back)
{
    if (!back && packed_lines(p, data, raw, p->element == DS_F32 ? sizeof(float) : sizeof(double)))
        return;
    if (p->pairs)
        packed_pairs(p, (uint16_t *)(void *)data, (float *)(void *)raw, back);
    else if (p->stored == DS_STORED_INT8)
        packed_move(p, data, raw, back, sizeof(float), DS_STORED_INT8);
    else if (p->stored == DS_STORED_BF16)
        packed_move(p, data, raw, back, sizeof(float), DS_STORED_BF16);
    else if (p->stored == DS_STORED_FP16)
        packed_move(p, data, raw, back, sizeof(float), DS_STORED_FP16);
    else if (p->element == DS_F32)
        packed_move(p, data, raw, back, sizeof(float), DS_STORED_WIDE);
    else
        packed_move(p, data, raw, back, sizeof(double), DS_STORED_WIDE);
}

/* Puts the parts of a weight's elements to their places. */
static void packed_split(const ds_packed *p, uint16_t *data, const float *raw)
{
    const size_t cell = DS_CELL / sizeof(uint16_t), step = packed_place(p, 0, cell);
    for (size_t j = 0; j < p->n_cols; j++)
        for (size_t k = 0; k < p->depth; k++)
            ds_split(data + packed_place(p, j, k / cell * DS_PARTS * cell + k % cell), step,
                     raw[ds_weight_column(&p->layout, j) + packed_source(&p->layout, k)]);
}

/* What the integers of each column add up to. */
static void packed_sum(const ds_packed *p, int32_t *sums)
{
    const int8_t *q = p->data;
    const size_t groups = ds_cells(p->stored, p->depth) * (DS_CELL / 4);
    for (size_t first = 0; first < p->n_cols; first += DS_PANEL_COLUMNS)
        for (size_t g = 0; g < groups; g++)
            for (size_t j = first; j < first + DS_PANEL_COLUMNS; j++, q += 4)
                sums[j] += q[0] + q[1] + q[2] + q[3];
}

void ds_pack(const ds_real_kernels *k, ds_format format, ds_packed *packed, const void *weight,
             size_t n_cols, const ds_weight_layout *layout, const void *bias)
{
    const size_t depth = layout->n_taps * layout->n_inner * layout->n_channels;
    *packed = (ds_packed){.format = format,
                          .element = k->element == sizeof(float) ? DS_F32 : DS_F64,
                          .stored = packed_stored(k, format),
                          .tiles = k->tiles,
                          .pairs = k->pairs && format == DS_FORMAT_CELLS &&
                                   packed_stored(k, format) == DS_STORED_BF16,
                          .n_cols = n_cols,
                          .depth = depth,
                          .n_bytes = ds_packed_bytes(k, format, n_cols, depth),
                          .bias = bias,
                          .raw = weight,
                          .layout = *layout};
    if (!k->apart)
        ds_pack_elements(packed, (char *)packed + ds_aligned(sizeof(ds_packed)));
}

void ds_pack_elements(ds_packed *packed, void *to)
{
    const ds_format format = packed->format;
    const ds_stored stored = packed->stored;
    const size_t wide = packed->element == DS_F32 ? sizeof(float) : sizeof(double);
    const size_t element = stored == DS_STORED_WIDE ? wide : ds_stored_bytes(stored);
    const size_t columns = packed_columns(format, packed->n_cols);
    const size_t column = packed_depth(format, stored, packed->depth) * element;
    char *const data = to;
    float *const scales =
        stored == DS_STORED_INT8 ? (float *)(void *)(data + ds_aligned(columns * column)) : NULL;
    int32_t *const sums =
        packed_behind(format, stored) == 2 ? (int32_t *)(void *)(scales + columns) : NULL;
    packed->data = data;
    packed->scales = scales;
    packed->sums = sums;
    if (format == DS_FORMAT_RAW)
        return;
    if (scales) /* those of columns that are none are 0 */
        memset(scales, 0, packed_behind(format, stored) * ds_aligned(columns * sizeof(float)));
    /* The columns that are none, and what is none of a column. */
    const size_t whole =
        format == DS_FORMAT_CELLS ? 0 : packed->n_cols / DS_PANEL_COLUMNS * DS_PANEL_COLUMNS;
    if (format == DS_FORMAT_PANELS || format == DS_FORMAT_CELLS)
        memset(data + whole * column, 0, (columns - whole) * column);
    if (stored == DS_STORED_SPLIT)
        packed_split(packed, (uint16_t *)(void *)data, packed->raw);
    else
        packed_move_all(packed, data, (char *)(uintptr_t)packed->raw, false);
    if (sums)
        packed_sum(packed, sums);
}

void ds_unpack(const ds_packed *packed, void *raw)
{
    if (packed->format != DS_FORMAT_RAW)
        packed_move_all(packed, (char *)(uintptr_t)packed->data, raw, true);
}
