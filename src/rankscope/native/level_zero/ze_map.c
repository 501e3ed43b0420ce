/* Handles and what is known of them: open addressing, without marks for what was. */
#include "ze_layer.h"

#define FIRST 256u

struct rs_ze_entry { uint64_t key, value; };

static uint32_t home_of(const struct rs_ze_map *map, uint64_t key)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32) & (map->capacity - 1);
}

static struct rs_ze_entry *place_of(const struct rs_ze_map *map, uint64_t key)
{
    uint32_t at = home_of(map, key);
    while (map->entries[at].key && map->entries[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->entries[at];
}

uint64_t rs_ze_map_get(const struct rs_ze_map *map, uint64_t key)
{
    return map->used && key ? place_of(map, key)->value : 0;
}

static int grow(struct rs_ze_map *map)
{
    struct rs_ze_map larger = {NULL, map->capacity ? 2 * map->capacity : FIRST, map->used};
    larger.entries = rs_memory(larger.capacity * sizeof *larger.entries);
    if (!larger.entries)
        return 0;
    for (uint32_t i = 0; i < map->capacity; i++)
        if (map->entries[i].key)
            *place_of(&larger, map->entries[i].key) = map->entries[i];
    rs_memory_free(map->entries, map->capacity * sizeof *map->entries);
    *map = larger;
    return 1;
}

int rs_ze_map_put(struct rs_ze_map *map, uint64_t key, uint64_t value)
{
    if (!key || (2 * (map->used + 1) > map->capacity && !grow(map)))
        return 0;
    struct rs_ze_entry *entry = place_of(map, key);
    map->used += !entry->key;
    *entry = (struct rs_ze_entry){key, value};
    return 1;
}

/* What stands behind the freed place moves up. */
uint64_t rs_ze_map_take(struct rs_ze_map *map, uint64_t key)
{
    struct rs_ze_entry *entry = map->used && key ? place_of(map, key) : NULL;
    uint64_t value = entry && entry->key ? entry->value : 0;
    if (!entry || !entry->key)
        return 0;
    uint32_t hole = (uint32_t)(entry - map->entries), mask = map->capacity - 1;
    for (uint32_t at = (hole + 1) & mask; map->entries[at].key; at = (at + 1) & mask)
        if (((at - home_of(map, map->entries[at].key)) & mask) >= ((at - hole) & mask)) {
            map->entries[hole] = map->entries[at];
            hole = at;
        }
    map->entries[hole] = (struct rs_ze_entry){0, 0};
    map->used--;
    return value;
}

void rs_ze_map_free(struct rs_ze_map *map)
{
    rs_memory_free(map->entries, map->capacity * sizeof *map->entries);
    *map = (struct rs_ze_map){NULL, 0, 0};
}

void rs_ze_map_walk(const struct rs_ze_map *map, rs_ze_visit visit, void *context)
{
    for (uint32_t i = 0; i < map->capacity; i++)
        if (map->entries[i].key && visit(context, map->entries[i].key, map->entries[i].value))
            return;
}
