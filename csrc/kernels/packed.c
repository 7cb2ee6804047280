/* kernels/packed.c: packed weights of any format: made, and brought back to where they came from.
 *
 * Panels of 32 columns let a product read its weight in one line from start to end, whole registers at a
 * time. A raw weight is not copied: what is written says only where it is, so that it exists once, and
 * processes that map one file share it. */
#include <string.h>

#include "base/alloc.h"
#include "kernels/kernels.h"

enum { PACKED_GATHERED = 16 }; /* elements of a column at a time: what is written stays in cache */

size_t ds_packed_bytes(const ds_real_kernels *k, ds_format format, size_t n_cols, size_t depth)
{
    const size_t columns = format == DS_FORMAT_RAW      ? 0
                           : format == DS_FORMAT_PANELS ? (n_cols + DS_PANEL_COLUMNS - 1) /
                                                              DS_PANEL_COLUMNS * DS_PANEL_COLUMNS
                                                        : n_cols;
    return ds_aligned(sizeof(ds_packed)) + ds_aligned(columns * depth * k->element);
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
    return p->format == DS_FORMAT_TAPS ? k * p->n_cols + n : n * p->depth + k;
}

/* Copies between the raw weight and the packed one, by short runs of some columns beside each other. */
static inline void packed_move(const ds_packed *p, char *data, char *raw, bool back, size_t element)
{
    const ds_weight_layout l = p->layout;
    const size_t step = (packed_place(p, 0, 1) - packed_place(p, 0, 0)) * element;
    const ptrdiff_t channel = l.channel * (ptrdiff_t)element;
    for (size_t col = 0; col < p->n_cols; col += DS_PANEL_COLUMNS)
        for (size_t k = 0, n; k < p->depth; k += n) {
            const size_t left = l.n_channels - k % l.n_channels;
            const ptrdiff_t first = packed_source(&l, k);
            n = left < PACKED_GATHERED ? left : PACKED_GATHERED;
            for (size_t j = col; j < p->n_cols && j < col + DS_PANEL_COLUMNS; j++) {
                char *from = raw + (first + ds_weight_column(&l, j)) * (ptrdiff_t)element;
                char *to = data + packed_place(p, j, k) * element;
                for (size_t i = 0; i < n; i++, from += channel, to += step)
                    memcpy(back ? from : to, back ? to : from, element);
            }
        }
}

void ds_pack(const ds_real_kernels *k, ds_format format, ds_packed *packed, const void *weight,
             size_t n_cols, const ds_weight_layout *layout, const void *bias)
{
    const size_t element = k->element;
    const size_t depth = layout->n_taps * layout->n_inner * layout->n_channels;
    char *const data = (char *)packed + ds_aligned(sizeof(ds_packed));
    *packed = (ds_packed){.format = format,
                          .element = element == sizeof(float) ? DS_F32 : DS_F64,
                          .n_cols = n_cols,
                          .depth = depth,
                          .n_bytes = ds_packed_bytes(k, format, n_cols, depth),
                          .data = data,
                          .bias = bias,
                          .raw = weight,
                          .layout = *layout};
    if (format == DS_FORMAT_RAW)
        return;
    if (format == DS_FORMAT_PANELS &&
        n_cols % DS_PANEL_COLUMNS != 0) /* the columns that are none */
        memset(data + n_cols / DS_PANEL_COLUMNS * DS_PANEL_COLUMNS * depth * element, 0,
               DS_PANEL_COLUMNS * depth * element);
    if (element == sizeof(float))
        packed_move(packed, data, (char *)(uintptr_t)weight, false, sizeof(float));
    else
        packed_move(packed, data, (char *)(uintptr_t)weight, false, sizeof(double));
}

void ds_unpack(const ds_packed *packed, void *raw)
{
    char *const data = (char *)(uintptr_t)packed->data;
    if (packed->format != DS_FORMAT_RAW)
        packed_move(packed, data, raw, true,
                    packed->element == DS_F32 ? sizeof(float) : sizeof(double));
}
