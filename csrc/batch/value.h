/* batch/value.h: what a value on an edge is, and the part of it that one call sees.
 *
 * A value is [sum of lengths][feature shape...], channels last, with one run of frames per stream; no
 * padding exists. A pair is what is known of one stream's frames on one edge (absolute counts). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dreamstream.h"

enum { DS_MAX_RANK = 6 };

/* Frames per frame of the reference clock, an exact fraction in lowest terms; 0/1: no stream axis. */
typedef struct ds_rate {
    int64_t num, den;
} ds_rate;

typedef struct ds_signature {
    ds_dtype dtype;
    int rank; /* of one frame's features; 0 = a scalar */
    int64_t shape[DS_MAX_RANK];
    ds_rate rate;
} ds_signature;

/* known: frames whose value and existence no future can change; total: the length if the stream
 * ended now, 0 <= known <= total. Or total is -1, and known 0, where a stream that ended now would have no such
 * edge: it has not begun (by a first frame or its end), or is too short for an operator that refuses what is (torch raises an error there). No
 * frames and no edge are not the same: what pads an edge of no frames has some. */
typedef struct ds_pair {
    int64_t known, total;
} ds_pair;

/* The counts of one edge for one stream before a call and after it. */
typedef struct ds_counts {
    ds_pair before, now;
} ds_counts;

/* Frames [at, at + n) of one stream, contiguous. */
typedef struct ds_window {
    const void *data;
    int64_t at, n;
} ds_window;

/* Where frames [m0, m1) of one stream are to be written, contiguous. */
typedef struct ds_target {
    void *data;
    int64_t m0, m1;
} ds_target;

size_t ds_dtype_bytes(ds_dtype dtype);
const char *ds_dtype_name(ds_dtype dtype);
ds_dtype ds_dtype_find(const char *name); /* 0 where there is none of that name */
/* Elements of one frame. */
int64_t ds_signature_elements(const ds_signature *signature);
/* Bytes of one frame. */
size_t ds_signature_bytes(const ds_signature *signature);
bool ds_signature_same_shape(const ds_signature *a, const ds_signature *b);
/* Writes the shape as "(3, 4)" for messages; returns text. */
const char *ds_signature_text(const ds_signature *signature, char *text, size_t n_bytes);
/* The same in room of its own, which lasts as long as the block. */
#define DS_SHAPE_TEXT(signature) ds_signature_text((signature), (char[160]){0}, 160)

/* The greatest common divisor, not negative. */
int64_t ds_greatest_divisor(int64_t a, int64_t b);
bool ds_rate_equal(ds_rate a, ds_rate b);
/* rate * num / den in lowest terms; false where that overflows. */
bool ds_rate_scale(ds_rate *rate, int64_t num, int64_t den);
