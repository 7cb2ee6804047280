/* kernels/draw.h: random numbers that are functions of a key and a place.
 *
 * Nothing is drawn in turn: whoever asks for the number of a place gets the same one, in whatever order, so that
 * neither chunks nor other rows of a batch show in what is dropped. Source: SplitMix64, by Steele, Lea and Flood, "Fast
 * splittable pseudorandom number generators" (2014), whose state after n steps is the key and n times a constant. */
#pragma once

#include <stdint.h>

/* Number `place` of a key; it may serve as a key itself. */
static inline uint64_t ds_draw(uint64_t key, uint64_t place)
{
    uint64_t z = key + (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The same as a number in [0, 1). */
static inline double ds_draw_real(uint64_t key, uint64_t place)
{
    return (double)(ds_draw(key, place) >> 11) * 0x1p-53;
}

/* What an operator drops within itself, of each row by its key. */
typedef struct ds_drop {
    double p; /* below 1, or 1: everything */
    const uint64_t *keys;
} ds_drop;

/* By what is multiplied what has this place. */
static inline double ds_drop_factor(const ds_drop *drop, uint64_t key, uint64_t place)
{
    return drop->p < 1 && ds_draw_real(key, place) >= drop->p ? 1 / (1 - drop->p) : 0;
}
