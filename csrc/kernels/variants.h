/* kernels/variants.h: what the files of this room share.
 *
 * Each line of kernels.def has a table of kernels and, in builds with OpenBLAS, a second one that
 * differs in its products. Tables are constants of the file that compiles the variant. */
#ifndef DS_KERNELS_VARIANTS_H
#define DS_KERNELS_VARIANTS_H
#include "kernels/kernels.h"

/* Whether the variants for x86 are compiled in. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define DSK_X86 1
#else
#define DSK_X86 0
#endif

#if defined(DS_HAVE_OPENBLAS) && DS_HAVE_OPENBLAS
#define DSK_OPENBLAS 1
#else
#define DSK_OPENBLAS 0
#endif

#define DSK_VARIANT(name, level)               \
    const ds_kernels *dsk_table__##name(void); \
    const ds_kernels *dsk_blas_table__##name(void); /* NULL without OpenBLAS */
#include "kernels/kernels.def"
#undef DSK_VARIANT

/* Rounded up to what prepared weights are aligned to. */
static inline size_t dsk_aligned(size_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

/* Bytes of a packed weight before its elements. */
#define DSK_PACKED_HEAD dsk_aligned(sizeof(ds_packed))

/* Begins a packed weight whose elements follow it; returns where. */
void *dsk_packed_begin(ds_packed *packed, ds_format format, size_t element, size_t n_bytes,
                       const void *weight, size_t n_cols, const ds_weight_layout *layout,
                       const void *bias);

#if DSK_OPENBLAS
/* Products by OpenBLAS; see kernels.h for their arguments. Always of all columns. */
size_t dsk_f32_packed_bytes__openblas(size_t n_cols, size_t depth);
size_t dsk_f64_packed_bytes__openblas(size_t n_cols, size_t depth);
void dsk_f32_pack__openblas(ds_packed *packed, const void *weight, size_t n_cols,
                            const ds_weight_layout *layout, const void *bias);
void dsk_f64_pack__openblas(ds_packed *packed, const void *weight, size_t n_cols,
                            const ds_weight_layout *layout, const void *bias);
void dsk_f32_product__openblas(const ds_product *p, size_t begin, size_t end);
void dsk_f64_product__openblas(const ds_product *p, size_t begin, size_t end);
#endif

#endif
