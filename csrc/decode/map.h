/* A hash table from 64-bit keys to 32-bit numbers, by open addressing: words by the hash of their text, and the
 * edges of tries by (node, label). */
#pragma once
#include "base/alloc.h"

#define DS_MAP_NONE UINT32_MAX /* what an unknown key gives; no value may be it */

typedef struct ds_map {
    ds_allocator allocator;
    uint64_t *keys;
    uint32_t *values;
    size_t n, n_places; /* a power of two, or 0 */
} ds_map;

/* Makes an empty table, which holds no memory. */
void ds_map_init(ds_map *map, const ds_allocator *allocator);
void ds_map_free(ds_map *map);
/* Puts a value where the key has none; fills `*value` with the one that is there. Errors: DS_NO_MEMORY. */
ds_status ds_map_put(ds_map *map, uint64_t key, uint32_t *value);
/* Where a key's search begins: every bit of the key counts. */
static inline size_t ds_map_place(const ds_map *map, uint64_t key)
{
    key *= UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(key ^ key >> 32) & (map->n_places - 1);
}

static inline uint32_t ds_map_get(const ds_map *map, uint64_t key)
{
    if (map->n_places == 0)
        return DS_MAP_NONE;
    size_t at = ds_map_place(map, key);
    while (map->values[at] != DS_MAP_NONE && map->keys[at] != key)
        at = (at + 1) & (map->n_places - 1);
    return map->values[at];
}

/* The key of an edge of a trie. */
static inline uint64_t ds_map_edge(uint32_t node, uint32_t label)
{
    return (uint64_t)node << 32 | label;
}

/* The hash of a text (FNV-1a), which can be continued piece by piece: begin with DS_HASH_EMPTY. */
#define DS_HASH_EMPTY UINT64_C(0xCBF29CE484222325)
static inline uint64_t ds_hash(uint64_t hash, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    return hash;
}
