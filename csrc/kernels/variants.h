/* kernels/variants.h: what the files of this room share.
 *
 * Each variant has a table of kernels and, in builds with OpenBLAS, a second one that differs in its
 * products. Tables are constants of the file that compiles the variant. */
#pragma once
#include <math.h>
#include <string.h>

#include "base/transpose.h"
#include "cpu/detect.h"
#include "kernels/kernels.h"

/* Whether the variants for x86 are compiled in. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define DSK_X86 1
#else
#define DSK_X86 0
#endif
/* Whether the one for ARM is. */
#if defined(__aarch64__) && defined(__ARM_NEON) && (defined(__GNUC__) || defined(__clang__))
#define DSK_ARM 1
#else
#define DSK_ARM 0
#endif

/* Functions from here to the end are compiled for these features, as clang and as gcc name them. */
#define DSK_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define DSK_TARGET(clang_names, gcc_names) \
    DSK_PRAGMA(clang attribute push(__attribute__((target(clang_names))), apply_to = function))
#define DSK_TARGET_END DSK_PRAGMA(clang attribute pop)
#else
#define DSK_TARGET(clang_names, gcc_names) \
    DSK_PRAGMA(GCC push_options) DSK_PRAGMA(GCC target(gcc_names))
#define DSK_TARGET_END DSK_PRAGMA(GCC pop_options)
#endif

#if defined(DS_HAVE_OPENBLAS) && DS_HAVE_OPENBLAS
#define DSK_OPENBLAS 1
#else
#define DSK_OPENBLAS 0
#endif

/* With products by OpenBLAS or its own; NULL without OpenBLAS. */
const ds_kernels *dsk_table__ref(bool blas);
const ds_kernels *dsk_table__x86_v3(bool blas);
const ds_kernels *dsk_table__x86_v4(bool blas);
const ds_kernels *dsk_table__x86_bf16(bool blas);
const ds_kernels *dsk_table__x86_amx(bool blas);
const ds_kernels *dsk_table__arm_v8(bool blas);

/* Products of int8 for processors that have no instruction for them. */
void dsk_product_int8__x86_v3(const ds_packed *weight, void *const *y, const void *const *x,
                              size_t n_rows, size_t begin, size_t end);
/* Whether this processor's instruction for pairs of bf16, if there is one, adds as kernels.h says. */
bool dsk_pairs_agree(void);
/* Products of cells for those that have tiles. */
void dsk_product_cells__x86_amx(const ds_packed *weight, void *const *y, const void *const *x,
                                size_t n_rows, size_t begin, size_t end);

#if DSK_OPENBLAS
/* Products by OpenBLAS, of float or double as the weight is. Always of all columns. */
void dsk_product__openblas(const ds_product *p, size_t begin, size_t end);
#endif
