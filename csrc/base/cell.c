/* A sequence lock over a few words. */
#include "base/cell.h"

#include <stddef.h>

void ds_cell_read(ds_cell *cell, uintptr_t words[DS_CELL_WORDS])
{
    size_t before;
    do {
        before = atomic_load(&cell->version);
        for (size_t i = 0; i < DS_CELL_WORDS; i++)
            words[i] = atomic_load(&cell->words[i]);
    } while (before % 2 != 0 || atomic_load(&cell->version) != before);
}

void ds_cell_write(ds_cell *cell, const uintptr_t words[DS_CELL_WORDS])
{
    size_t version = atomic_load(&cell->version);
    do {
        version -= version % 2; /* wait until no other writer is at work */
    } while (!atomic_compare_exchange_weak(&cell->version, &version, version + 1));
    for (size_t i = 0; i < DS_CELL_WORDS; i++)
        atomic_store(&cell->words[i], words[i]);
    atomic_store(&cell->version, version + 2);
}
