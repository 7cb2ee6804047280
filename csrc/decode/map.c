/* At most half of the places are taken, so that a search ends soon. */
#include "decode/map.h"

#include <string.h>

void ds_map_init(ds_map *map, const ds_allocator *allocator)
{
    *map = (ds_map){.allocator = *allocator};
}

void ds_map_free(ds_map *map)
{
    ds_release(&map->allocator, map->keys, map->n_places * sizeof *map->keys);
    ds_release(&map->allocator, map->values, map->n_places * sizeof *map->values);
    *map = (ds_map){.allocator = map->allocator};
}

static uint32_t *place_of(const ds_map *map, uint64_t key)
{
    size_t at = ds_map_place(map, key);
    while (map->values[at] != DS_MAP_NONE && map->keys[at] != key)
        at = (at + 1) & (map->n_places - 1);
    map->keys[at] = key;
    return &map->values[at];
}

static ds_status grow(ds_map *map)
{
    ds_map larger = {.allocator = map->allocator, .n = map->n};
    larger.n_places = map->n_places ? 2 * map->n_places : 64;
    size_t n_bytes;
    DS_TRY(ds_array_bytes(&n_bytes, larger.n_places, sizeof *map->keys));
    DS_TRY(ds_allocate(&map->allocator, (void **)&larger.keys, n_bytes));
    DS_TRY_ELSE(ds_allocate(&map->allocator, (void **)&larger.values,
                            larger.n_places * sizeof *map->values),
                ds_release(&map->allocator, larger.keys, n_bytes));
    memset(larger.values, 0xFF, larger.n_places * sizeof *larger.values); /* DS_MAP_NONE */
    for (size_t i = 0; i < map->n_places; i++)
        if (map->values[i] != DS_MAP_NONE)
            *place_of(&larger, map->keys[i]) = map->values[i];
    ds_map_free(map);
    *map = larger;
    return DS_OK;
}

ds_status ds_map_put(ds_map *map, uint64_t key, uint32_t *value)
{
    if (2 * map->n >= map->n_places)
        DS_TRY(grow(map));
    uint32_t *place = place_of(map, key);
    if (*place == DS_MAP_NONE) {
        *place = *value;
        map->n++;
    }
    *value = *place;
    return DS_OK;
}
