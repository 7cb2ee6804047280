/* base/transpose.h: blocks of 4 by 4 elements of 4 bytes, turned over. */
#ifndef DS_TRANSPOSE_H
#define DS_TRANSPOSE_H
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

#endif
