/* audio/samples.c: one loop for each kind of sample; bytes are joined by hand, whatever the
 * machine's order. A signed integer is made by moving its bits to the top of 32. */
#include "audio/samples.h"

#include <string.h>

static int32_t top8(const unsigned char *p)
{
    return (int32_t)((uint32_t)(p[0] ^ 0x80) << 24);
}

static int32_t top16(const unsigned char *p)
{
    return (int32_t)((uint32_t)p[0] << 16 | (uint32_t)p[1] << 24);
}

static int32_t top24(const unsigned char *p)
{
    return (int32_t)((uint32_t)p[0] << 8 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 24);
}

static uint32_t u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int32_t top32(const unsigned char *p)
{
    return (int32_t)u32(p);
}

static float float32(const unsigned char *p)
{
    const uint32_t word = u32(p);
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

static float float64(const unsigned char *p)
{
    const uint64_t word = (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
    double x;
    memcpy(&x, &word, sizeof x);
    return (float)x;
}

#define EACH(n_bytes, expression)                       \
    for (size_t i = 0; i < n; i++, from += (n_bytes)) { \
        to[i] = (expression);                           \
    }

void ds_samples_to_float(float *to, const unsigned char *from, size_t n, int bits, bool floating)
{
    const float scale = 0x1p-31f;
    if (floating && bits == 32) {
        EACH(4, float32(from))
    } else if (floating) {
        EACH(8, float64(from))
    } else if (bits == 8) {
        EACH(1, (float)top8(from) * scale)
    } else if (bits == 16) {
        EACH(2, (float)top16(from) * scale)
    } else if (bits == 24) {
        EACH(3, (float)top24(from) * scale)
    } else {
        EACH(4, (float)top32(from) * scale)
    }
}

void ds_samples_to_int16(int16_t *to, const unsigned char *from, size_t n, int bits)
{
    if (bits == 8) {
        EACH(1, (int16_t)(top8(from) / 65536))
    } else {
        EACH(2, (int16_t)(top16(from) / 65536))
    }
}
