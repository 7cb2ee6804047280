/* A few words that are replaced together while any thread may be reading them: what holds the
 * process-wide settings (allocator, log).
 *
 * A sequence lock: `version` is odd while a writer is at work, and a reader that saw it odd, or
 * changed, reads again. Readers take no lock, so that a fork in another thread leaves none behind.
 * All accesses are atomic and sequentially consistent, which needs no fences and which
 * ThreadSanitizer understands. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#define DS_CELL_WORDS 3

/* All zero (static storage) is a valid cell of zeros. */
typedef struct ds_cell {
    atomic_size_t version;
    _Atomic(uintptr_t) words[DS_CELL_WORDS];
} ds_cell;

/* Fills `words` with the latest values, all from one write. Thread: any. */
void ds_cell_read(ds_cell *cell, uintptr_t words[DS_CELL_WORDS]);
/* Replaces the values. Thread: any. */
void ds_cell_write(ds_cell *cell, const uintptr_t words[DS_CELL_WORDS]);
