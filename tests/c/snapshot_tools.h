/*
 * Snapshots taken apart and doctored, as docs/snapshot_format.md states them. Include it in one file per
 * program.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/plan.h"

enum { SNAPSHOT_FRAMES_AT = 40 }; /* where the frames so far of input 0 stand */

static inline uint64_t word_at(const char *data, size_t at)
{
    uint64_t word = 0;
    for (unsigned i = 0; i < 8; i++)
        word |= (uint64_t)(unsigned char)data[at + i] << (8 * i);
    return word;
}

static inline void set_word(char *data, size_t at, uint64_t word)
{
    for (unsigned i = 0; i < 8; i++)
        data[at + i] = (char)(word >> (8 * i));
}

/* The length and the checksum again; n_bytes: a multiple of 8, at least 16. */
static inline void seal_snapshot(char *data, size_t n_bytes)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    set_word(data, 8, n_bytes);
    for (size_t i = 0; i < n_bytes - 8; i += 8) {
        h = (h ^ word_at(data, i)) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    set_word(data, n_bytes - 8, h);
}

/* Moves a snapshot `by` frames of each input (and what that is on every edge) into the future; false where
 * it is not laid out as it should be, or no whole number of frames on some edge. */
static inline bool shift_snapshot(const ds_plan *p, char *data, size_t n_bytes, int64_t by)
{
    const ds_graph *g = p->model;
    size_t at = SNAPSHOT_FRAMES_AT;
    for (size_t i = 0; i < g->n_inputs; i++, at += 8)
        set_word(data, at, word_at(data, at) + (uint64_t)by);
    const uint64_t n_entries = word_at(data, at);
    at += 8;
    for (uint64_t k = 0; k < n_entries && at + 32 < n_bytes; k++) {
        const int64_t node = (int64_t)word_at(data, at), array = (int64_t)word_at(data, at + 8);
        if (array >= 0) {
            const int e =
                node < 0 ? g->inputs[-1 - node] : g->nodes[node].first_output + (int)array;
            const ds_rate rate = g->edges[e].signature.rate;
            if (by % rate.den != 0)
                return false;
            set_word(data, at + 16, word_at(data, at + 16) + (uint64_t)(by / rate.den * rate.num));
        }
        at += 32 + (size_t)(word_at(data, at + 24) + 7) / 8 * 8;
    }
    seal_snapshot(data, n_bytes);
    return at == n_bytes - 8;
}
