/* kernels/packed.c: packed weights of any format: how they begin, taps, and back to where they came from. */
#include <string.h>

#include "kernels/variants.h"

void *dsk_packed_begin(ds_packed *packed, ds_format format, size_t element, size_t n_bytes,
                       const void *weight, size_t n_cols, const ds_weight_layout *layout,
                       const void *bias)
{
    void *const data = (char *)packed + DSK_PACKED_HEAD;
    *packed = (ds_packed){.format = format,
                          .element = element == sizeof(float) ? DS_F32 : DS_F64,
                          .n_cols = n_cols,
                          .depth = layout->n_taps * layout->n_inner * layout->n_channels,
                          .n_bytes = n_bytes,
                          .data = data,
                          .bias = bias,
                          .raw = weight,
                          .layout = *layout};
    return data;
}

static void packed_copy(char *to, const char *from, size_t element)
{
    if (element == sizeof(float))
        memcpy(to, from, sizeof(float));
    else
        memcpy(to, from, sizeof(double));
}

/* Elements from the raw weight's first to that of column n at depth k. */
static ptrdiff_t packed_source(const ds_weight_layout *l, size_t n, size_t k)
{
    const size_t tap = k / l->n_channels;
    return ds_weight_column(l, n) + (ptrdiff_t)(tap / l->n_inner) * l->tap +
           (ptrdiff_t)(tap % l->n_inner) * l->inner + (ptrdiff_t)(k % l->n_channels) * l->channel;
}

size_t ds_taps_bytes(size_t n_cols, size_t depth, size_t element)
{
    return DSK_PACKED_HEAD + dsk_aligned(n_cols * depth * element);
}

void ds_taps_pack(ds_packed *packed, const void *weight, size_t element, size_t n_cols,
                  const ds_weight_layout *layout, const void *bias)
{
    const size_t depth = layout->n_taps * layout->n_inner * layout->n_channels;
    char *to =
        dsk_packed_begin(packed, DS_FORMAT_TAPS, element, ds_taps_bytes(n_cols, depth, element),
                         weight, n_cols, layout, bias);
    for (size_t k = 0; k < depth; k++)
        for (size_t n = 0; n < n_cols; n++, to += element)
            packed_copy(to, (const char *)weight + packed_source(layout, n, k) * (ptrdiff_t)element,
                        element);
}

/* Elements from the packed weight's first to that of column n at depth k. */
static size_t packed_place(const ds_packed *p, size_t n, size_t k)
{
    if (p->format == DS_FORMAT_PANELS)
        return (n / DS_PANEL_COLUMNS * p->depth + k) * DS_PANEL_COLUMNS + n % DS_PANEL_COLUMNS;
    return p->format == DS_FORMAT_TAPS ? k * p->n_cols + n : n * p->depth + k;
}

void ds_unpack(const ds_packed *packed, void *raw)
{
    const size_t element = packed->element == DS_F32 ? sizeof(float) : sizeof(double);
    if (packed->format == DS_FORMAT_RAW)
        return;
    for (size_t n = 0; n < packed->n_cols; n++)
        for (size_t k = 0; k < packed->depth; k++)
            packed_copy((char *)raw + packed_source(&packed->layout, n, k) * (ptrdiff_t)element,
                        (const char *)packed->data + packed_place(packed, n, k) * element, element);
}
