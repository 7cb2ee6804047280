/* kernels/x86_amx/kernels_x86_amx.c: products of cells by the tile units of x86; all other kernels of such a machine
 * are those of x86_v4. */
#include "kernels/variants.h"

#if DSK_X86
#include <immintrin.h>

DSK_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2",
           "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,prefer-vector-width=512")
DSK_TARGET("amx-tile,amx-int8,amx-bf16", "amx-tile,amx-int8,amx-bf16")

enum { DSK_PANEL = DS_PANEL_COLUMNS };
#define NAME(kernel) tiles_##kernel
#include "kernels/ref/narrow_rows.inc"

/* Some compilers' tile instructions don't say that they read memory: what was written before must be there. */
#define TILE_SHAPES(s)                              \
    do {                                            \
        __asm__ volatile("" : : "r"(s) : "memory"); \
        _tile_loadconfig(s);                        \
    } while (0)
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_PASS(t, from, stride) _tile_stream_loadd(t, from, stride)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_INT8(c, a, b) _tile_dpbusd(c, a, b)
#define TILE_BF16(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_RELEASE() _tile_release()
#include "kernels/x86_amx/tiles.inc"

void dsk_product_cells__x86_amx(const ds_packed *weight, void *const *y, const void *const *x,
                                size_t n_rows, size_t begin, size_t end)
{
    if (weight->stored == DS_STORED_SPLIT)
        tiles_product(DS_STORED_SPLIT, weight, y, x, n_rows, begin, end);
    else if (weight->stored == DS_STORED_BF16)
        tiles_product(DS_STORED_BF16, weight, y, x, n_rows, begin, end);
    else
        tiles_product(DS_STORED_INT8, weight, y, x, n_rows, begin, end);
}

DSK_TARGET_END
DSK_TARGET_END
#else
typedef int dsk_no_x86_amx; /* a file must hold something */
#endif
