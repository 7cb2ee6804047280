/* WAV files in memory, for test_wav.c. Include it in one file per program. */
#ifndef WAV_FILES_H
#define WAV_FILES_H
#include <math.h>
#include <string.h>

#include "audio/wav.h"
#include "check.h"

enum { FILE_BYTES = 4096 };

typedef struct bytes {
    unsigned char data[FILE_BYTES];
    size_t n;
} bytes;

/* A file as it should be; what a test changes it changes in here, or in the bytes. */
typedef struct recipe {
    const char *riff;
    uint32_t riff_size, data_size;
    int format, channels, bits;
    bool extensible;
    size_t n_samples;
} recipe;

static inline void put(bytes *b, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        CHECK(b->n < FILE_BYTES);
        b->data[b->n++] = (unsigned char)(value >> 8 * i);
    }
}

static inline void put_text(bytes *b, const char *text)
{
    for (; *text != '\0'; text++) {
        put(b, (unsigned char)*text, 1);
    }
}

/* A chunk that nobody knows, of n bytes and what fills it up. */
static inline void put_chunk(bytes *b, const char *id, uint32_t n)
{
    put_text(b, id);
    put(b, n, 4);
    for (uint32_t i = 0; i < n + n % 2; i++) {
        put(b, 'd', 1);
    }
}

static inline void put_format(bytes *b, const recipe *r)
{
    const uint64_t frame_bytes = (uint64_t)(r->channels * (r->bits / 8));
    put_text(b, "fmt ");
    put(b, r->extensible ? 40 : 16, 4);
    put(b, r->extensible ? 0xFFFE : (uint64_t)r->format, 2);
    put(b, (uint64_t)r->channels, 2);
    put(b, 16000, 4);
    put(b, 16000 * frame_bytes, 4);
    put(b, frame_bytes, 2);
    put(b, (uint64_t)r->bits, 2);
    if (r->extensible) {
        static const unsigned char tail[14] = {0, 0, 0,    0, 0x10, 0,    0x80,
                                               0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
        put(b, 22, 2);
        put(b, (uint64_t)r->bits, 2);
        put(b, 0, 4);
        put(b, (uint64_t)r->format, 2);
        for (int i = 0; i < 14; i++) {
            put(b, tail[i], 1);
        }
    }
}

/* Sample i as an integer of 32 bits, all of them used; the first two are the extremes. */
static inline int32_t sample(size_t i)
{
    return i == 0 ? INT32_MIN : i == 1 ? INT32_MAX : (int32_t)(uint32_t)(i * 2654435761u + 12345u);
}

static inline double wide(size_t i)
{
    return sample(i) / 1e9;
}

static inline void put_sample(bytes *b, const recipe *r, size_t i)
{
    const uint32_t top = (uint32_t)sample(i);
    const float narrow = (float)wide(i);
    const double x = wide(i);
    uint32_t word;
    uint64_t long_word;
    memcpy(&word, &narrow, sizeof word);
    memcpy(&long_word, &x, sizeof long_word);
    if (r->format == 3) {
        put(b, r->bits == 32 ? word : long_word, (size_t)r->bits / 8);
    } else {
        put(b, r->bits == 8 ? (top >> 24) ^ 0x80 : top >> (32 - r->bits), (size_t)r->bits / 8);
    }
}

/* What sample i must be as a float. */
static inline float expected(const recipe *r, size_t i)
{
    if (r->format == 3) {
        return (float)wide(i);
    }
    const int32_t top = sample(i);
    const double value = floor((double)top / (double)((int64_t)1 << (32 - r->bits)));
    return (float)(value / (double)((int64_t)1 << (r->bits - 1)));
}

static inline bytes make(const recipe *r)
{
    bytes b = {.n = 0};
    put_text(&b, r->riff);
    put(&b, r->riff_size, 4);
    put_text(&b, "WAVE");
    if (strcmp(r->riff, "RIFF") != 0) {
        put_text(&b, "ds64");
        put(&b, 28, 4);
        put(&b, 5000, 8);
        put(&b, r->n_samples * (size_t)(r->bits / 8), 8);
        put(&b, r->n_samples, 8);
        put(&b, 0, 4);
    }
    put_chunk(&b, "LIST", 7);
    put_format(&b, r);
    put_chunk(&b, "fact", 4);
    put_text(&b, "data");
    put(&b, r->data_size, 4);
    for (size_t i = 0; i < r->n_samples; i++) {
        put_sample(&b, r, i);
    }
    return b;
}

static inline recipe plain(int format, int channels, int bits, size_t n_frames)
{
    const size_t n_samples = n_frames * (size_t)channels;
    return (recipe){.riff = "RIFF",
                    .riff_size = 4000,
                    .data_size = (uint32_t)(n_samples * (size_t)(bits / 8)),
                    .format = format,
                    .channels = channels,
                    .bits = bits,
                    .n_samples = n_samples};
}

#endif
