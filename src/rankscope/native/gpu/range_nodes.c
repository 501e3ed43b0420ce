/* The paths of ranges: each range inside those around it is a node, a row of the groups. */
#include "gpu_layer.h"

#define PLACES 4096u
#define MOST_NODES 1024u            /* of names of their own */
#define MOST_WITH_OTHERS 1536u      /* and those that hold what has too many names, one in each */

static struct node { uint64_t key; uint16_t id; } *nodes;
static uint32_t nodes_used;

void rs_range_nodes_forget(void)
{
    rs_memory_free(nodes, PLACES * sizeof *nodes);
    nodes = NULL;
    nodes_used = 0;
}

/* key is never 0: every range has a name. */
static struct node *place_of(uint64_t key)
{
    if (!nodes && !(nodes = rs_memory(PLACES * sizeof *nodes)))
        return NULL;
    uint32_t at = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 52);
    while (nodes[at].key && nodes[at].key != key)
        at = (at + 1) % PLACES;
    return &nodes[at];
}

static uint16_t new_node(struct node *place, uint64_t key, uint16_t around, uint16_t domain, uint16_t name)
{
    uint16_t id = 0;
    struct rs_group *row = rs_group_row(&id);
    if (!row) {
        rs_count(&rs.file->folded_groups, 1);
        return around;
    }
    row->handle = row->identity = key;
    row->remote_size = domain;
    row->name = name;
    row->parent = around ? around : domain;
    row->kind = RS_GROUP_RANGE;
    row->created_ticks = rs_ticks();
    place->key = key;
    place->id = id;
    nodes_used++;
    return id;
}

/* The range of this name inside the node `around` (0: inside none). Where there are too many: the one for all
 * others there, else what is around it. */
uint16_t rs_range_node(uint16_t around, uint16_t domain, uint16_t name)
{
    static const char others[] = "(ranges of other names)";
    uint64_t key = (uint64_t)around << 32 | (uint64_t)domain << 16 | name;
    struct node *place = key ? place_of(key) : NULL;
    if (!place)
        return around;
    if (place->key)
        return place->id;
    if (nodes_used < MOST_NODES)
        return new_node(place, key, around, domain, name);
    rs_gpu.row->folded_nodes++;
    key = (uint64_t)around << 32 | (uint64_t)domain << 16 | rs_intern(others);
    place = place_of(key);
    if (place->key)
        return place->id;
    return nodes_used < MOST_WITH_OTHERS ? new_node(place, key, around, domain, (uint16_t)key) : around;
}
