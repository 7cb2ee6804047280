/* kernels/narrow.h: floats that are stored in 16 or 8 bits.
 *
 *   fp16, bf16   the nearest of those numbers, ties to even
 *   int8         q * scale, q in [-127, 127]: a scale for each output channel, the greatest magnitude / 127, rounded
 *                up to 16 significant bits. So every product q * scale is a float, and the greatest is 127 * scale
 *
 *   split        three numbers of bf16: of x, of what it lacks of x, and of what both lack; zero below 2^-126.
 *                What is not finite, or rounds to that, has a NaN among them
 *
 * Rounding once more changes nothing: the floats alone say what is stored. Channels whose greatest magnitude is below
 * 2^-100 are zero in int8; those with what is not finite are NaN. */
#pragma once
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

enum {
    DS_PARTS = 3,                /* of what is split */
    DS_FP16_BEYOND = 0x477ff000, /* the bits of 65520, the first that rounds to infinity */
    DS_BF16_BEYOND = 0x7f7f8000  /* of the first that does so in bf16 */
};

/* Bytes of an element, or a part of one; of DS_STORED_WIDE those of a float. */
static inline size_t ds_stored_bytes(ds_stored stored)
{
    return stored == DS_STORED_WIDE ? sizeof(float) : stored == DS_STORED_INT8 ? 1 : 2;
}

/* Cells of a column of such elements. */
static inline size_t ds_cells(ds_stored stored, size_t depth)
{
    const size_t parts = stored == DS_STORED_SPLIT ? DS_PARTS : 1;
    return (depth * ds_stored_bytes(stored) + DS_CELL - 1) / DS_CELL * parts;
}

static inline const char *ds_stored_name(ds_stored stored)
{
    static const char *const names[] = {"fp32", "fp16", "bf16", "int8", "fp32-tiles"};
    return names[stored];
}

static inline uint32_t ds_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ds_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t ds_bf16_of_float(float x)
{
    const uint32_t bits = ds_float_bits(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The same as a float's bits, zero for what is below 2^-126. */
static inline uint32_t ds_bf16_flushed(float x)
{
    const uint32_t bits = ds_float_bits(x), magnitude = bits & INT32_MAX;
    const uint32_t rounded =
        magnitude > 0x7f800000 ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    return magnitude < 0x800000 ? 0 : rounded & 0xffff0000;
}

/* Splits x; its parts lie `step` apart. */
static inline void ds_split(uint16_t *part, size_t step, float x)
{
    for (size_t i = 0; i < DS_PARTS; i++) {
        const uint32_t bits = ds_bf16_flushed(x);
        part[i * step] = (uint16_t)(bits >> 16);
        x -= ds_float_of_bits(bits);
    }
}

static inline uint16_t ds_fp16_of_float(float x)
{
    const uint32_t sign = ds_float_bits(x) >> 16 & 0x8000, bits = ds_float_bits(x) & INT32_MAX;
    /* below 2^-14 there are multiples of 2^-24, which the sum rounds to */
    const uint32_t low = ds_float_bits(ds_float_of_bits(bits) + 0.5f) - 0x3f000000;
    const uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13;
    const uint32_t half = bits < 0x38800000 ? low : bits < DS_FP16_BEYOND ? normal : 0x7c00;
    return (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : half));
}

static inline float ds_float_of_fp16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
                   fraction = half & 0x3ff;
    const uint32_t low = ds_float_bits((float)(int32_t)fraction * 0x1p-24f);
    const uint32_t normal = (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    return ds_float_of_bits(sign | (exponent == 0 ? low : normal));
}

/* The element of a stored weight. scale: of its channel, in int8. */
static inline float ds_widened(ds_stored stored, const void *from, float scale)
{
    uint16_t half;
    if (stored == DS_STORED_INT8)
        return (float)*(const int8_t *)from * scale;
    memcpy(&half, from, sizeof half);
    return stored == DS_STORED_BF16 ? ds_float_of_bits((uint32_t)half << 16)
                                    : ds_float_of_fp16(half);
}

static inline void ds_narrowed(ds_stored stored, void *to, float x, float scale)
{
    if (stored == DS_STORED_INT8) {
        /* ends with the integer next to x / scale, or with 0 where scale is 0 */
        const uint32_t bits = ds_float_bits(x / scale + 0x1.8p23f);
        *(int8_t *)to = isnan(scale) ? 1 : (int8_t)bits;
        return;
    }
    const uint16_t half = stored == DS_STORED_BF16 ? ds_bf16_of_float(x) : ds_fp16_of_float(x);
    memcpy(to, &half, sizeof half);
}

/* The scale of a channel by its greatest magnitude, which may be no number. */
static inline float ds_narrow_scale(float greatest)
{
    if (!isfinite(greatest))
        return NAN;
    if (greatest < 0x1p-100f)
        return 0;
    const uint32_t bits = ds_float_bits(greatest / 127);
    return ds_float_of_bits((bits + 0xff) & ~(uint32_t)0xff);
}

/* Of x and the greatest so far, NaN where one is. */
static inline float ds_narrow_greatest(float greatest, float x)
{
    return isnan(x) || fabsf(x) > greatest ? fabsf(x) : greatest;
}

/* That of n numbers: as bits, where NaN is beyond all others, which compilers make vectors of. */
static inline float ds_narrow_greatest_of(const float *x, size_t n)
{
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)(ds_float_bits(x[i]) & INT32_MAX);
        most = bits > most ? bits : most;
    }
    return ds_float_of_bits((uint32_t)most);
}
