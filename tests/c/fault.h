/* An allocator that counts, and fails on demand: for tests in C and, by way of
 * tests/helpers/faults.py, in Python.
 *
 *     static ds_fault_allocator fault;
 *     ds_fault_init(&fault);
 *     ds_allocator allocator = ds_fault_hooks(&fault);
 *     for (size_t nth = 1;; nth++) {
 *         ds_fault_arm(&fault, nth, false);
 *         ds_status status = thing_make(&thing, &allocator);
 *         if (status == DS_OK) break;                       // it made fewer than nth allocations
 *         // status is DS_NO_MEMORY, and ds_fault_live_blocks(&fault) is what it was
 *     }
 *     ds_fault_disarm(&fault);
 *
 * Each block carries a hidden header in front, so that a release with another size than was asked
 * for, or of memory that is not ours, is counted (ds_fault_bad_releases) instead of believed. Memory
 * is filled with rubbish when it is given out, so that nothing gets by on zeros that were there by
 * chance, and again when it comes back. All functions may be used from several threads at once. The
 * object outlives all blocks it gave. */
#pragma once
#include <stdbool.h>

#include "base/counted.h"

/* Fields are private to fault.c; the type is complete so that it can be static. */
typedef struct ds_fault_allocator {
    ds_counted live; /* what is given out; the blocks with their headers come from within */
    atomic_size_t calls, failures, bad_releases;
    atomic_size_t countdown; /* 0: not armed; n: the n-th call from now fails */
    atomic_bool persistent;
} ds_fault_allocator;

/* What one takes, for those who know the type by its pointer only. */
extern const size_t ds_fault_bytes;
/* Sets all counts to zero, not armed; while no other thread uses it. */
void ds_fault_init(ds_fault_allocator *fault);
/* Returns hooks that allocate from the C library through `fault` (kept). */
ds_allocator ds_fault_hooks(ds_fault_allocator *fault);
/* Lets the `nth` allocation from now (1: the next) fail, and with `persistent` all after it too;
 * `nth` = 0 disarms. */
void ds_fault_arm(ds_fault_allocator *fault, size_t nth, bool persistent);
/* No allocation fails on purpose any more. */
void ds_fault_disarm(ds_fault_allocator *fault);

/* Bytes and blocks that are given out now, and the most bytes there ever were. */
size_t ds_fault_live_bytes(const ds_fault_allocator *fault);
size_t ds_fault_live_blocks(const ds_fault_allocator *fault);
size_t ds_fault_peak_bytes(const ds_fault_allocator *fault);
/* Allocations asked for since the start, those that failed included. */
size_t ds_fault_calls(const ds_fault_allocator *fault);
/* Allocations that were made to fail. */
size_t ds_fault_failures(const ds_fault_allocator *fault);
/* Releases with a wrong size or pointer; what they named is not released. */
size_t ds_fault_bad_releases(const ds_fault_allocator *fault);
