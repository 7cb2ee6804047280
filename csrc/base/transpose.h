/* base/transpose.h: planes of elements of 4 bytes, turned over. */
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Element i of to[j] becomes element j of from[i]; each is four elements. */
static inline void ds_transpose_4x4(char *const to[4], const char *const from[4])
{
#if defined(__SSE2__)
    __m128i x[4];
    for (int i = 0; i < 4; i++)
        x[i] = _mm_loadu_si128((const void *)from[i]);
    const __m128i ab = _mm_unpacklo_epi32(x[0], x[1]), cd = _mm_unpacklo_epi32(x[2], x[3]);
    const __m128i AB = _mm_unpackhi_epi32(x[0], x[1]), CD = _mm_unpackhi_epi32(x[2], x[3]);
    _mm_storeu_si128((void *)to[0], _mm_unpacklo_epi64(ab, cd));
    _mm_storeu_si128((void *)to[1], _mm_unpackhi_epi64(ab, cd));
    _mm_storeu_si128((void *)to[2], _mm_unpacklo_epi64(AB, CD));
    _mm_storeu_si128((void *)to[3], _mm_unpackhi_epi64(AB, CD));
#else
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++)
            memcpy(to[j] + 4 * i, from[i] + 4 * j, 4);
#endif
}

/* y[j][i] = x[i][j], i < n_i, j < n_j; lines are contiguous, x_row and y_row bytes apart. The last blocks may write
 * some elements once more. */
static inline __attribute__((always_inline)) void
ds_transpose(char *y, const char *x, int64_t n_i, int64_t n_j, int64_t x_row, int64_t y_row)
{
    if (n_i < 4 || n_j < 4) {
        for (int64_t i = 0; i < n_i; i++)
            for (int64_t j = 0; j < n_j; j++)
                memcpy(y + j * y_row + i * 4, x + i * x_row + j * 4, 4);
        return;
    }
    for (int64_t i = 0; i < n_i; i += 4)
        for (int64_t j = 0; j < n_j; j += 4) {
            const int64_t a = i + 4 <= n_i ? i : n_i - 4, b = j + 4 <= n_j ? j : n_j - 4;
            char *const to = y + b * y_row + a * 4;
            const char *const from = x + a * x_row + b * 4;
            char *const y_4[4] = {to, to + y_row, to + 2 * y_row, to + 3 * y_row};
            const char *const x_4[4] = {from, from + x_row, from + 2 * x_row, from + 3 * x_row};
            ds_transpose_4x4(y_4, x_4);
        }
}
