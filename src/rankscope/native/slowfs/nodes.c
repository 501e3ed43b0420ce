/* The files the kernel knows by number: a table from path and inode to a node, kept until the kernel forgets it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../core/fnv.h"
#include "slow.h"

int slow_source = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slow_node *root;
static struct slow_node **buckets;
static size_t bucket_count, node_count;

static struct slow_node *new_node(const char *path) {
    size_t size = strlen(path) + 1;
    struct slow_node *node = calloc(1, sizeof *node + size);
    if (node) memcpy(node->path, path, size);
    return node;
}

int slow_nodes_start(const char *source) {
    slow_source = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC);
    root = new_node(".");
    bucket_count = 1 << 12;
    buckets = calloc(bucket_count, sizeof *buckets);
    return slow_source >= 0 && root && buckets ? 0 : -1;
}

/* The kernel only hands back numbers it was given and has not forgotten: they are the nodes' addresses. */
struct slow_node *slow_node_of(uint64_t id) {
    if (id == FUSE_ROOT_ID) return root;
    return id == SLOW_COUNTERS_ID ? NULL : (struct slow_node *)(uintptr_t)id;
}

static uint32_t hash_of(const char *path, ino_t inode) {
    return rs_fnv32(RS_FNV32 ^ (uint32_t)inode, path);
}

static void grow(void) {
    size_t wider = bucket_count * 4;
    struct slow_node **fresh = calloc(wider, sizeof *fresh);
    if (!fresh) return; /* longer chains, but right */
    for (size_t place = 0; place < bucket_count; place++)
        for (struct slow_node *node = buckets[place], *next; node; node = next) {
            next = node->next;
            node->next = fresh[node->hash % wider];
            fresh[node->hash % wider] = node;
        }
    free(buckets);
    buckets = fresh;
    bucket_count = wider;
}

static struct slow_node *find(const char *path, const struct stat *found, uint32_t hash) {
    struct slow_node *node = buckets[hash % bucket_count];
    while (node && (node->inode != found->st_ino || node->device != found->st_dev || strcmp(node->path, path) != 0))
        node = node->next;
    return node;
}

static struct slow_node *insert(const char *path, const struct stat *found, uint32_t hash) {
    if (node_count >= 2 * bucket_count) grow();
    struct slow_node *node = new_node(path);
    if (!node) return NULL;
    node->device = found->st_dev;
    node->inode = found->st_ino;
    node->hash = hash;
    node->next = buckets[hash % bucket_count];
    buckets[hash % bucket_count] = node;
    node_count++;
    return node;
}

/* A file replaced under the same name has another inode and so gets another number: the kernel then sees the change. */
uint64_t slow_node_id(const char *path, const struct stat *found) {
    uint32_t hash = hash_of(path, found->st_ino);
    pthread_mutex_lock(&lock);
    struct slow_node *node = find(path, found, hash);
    if (!node) node = insert(path, found, hash);
    if (node) node->lookups++;
    pthread_mutex_unlock(&lock);
    return (uint64_t)(uintptr_t)node;
}

void slow_node_forget(uint64_t id, uint64_t lookups) {
    struct slow_node *node = slow_node_of(id);
    if (!node || node == root) return;
    pthread_mutex_lock(&lock);
    node->lookups -= lookups < node->lookups ? lookups : node->lookups;
    if (node->lookups == 0) {
        struct slow_node **place = &buckets[node->hash % bucket_count];
        while (*place != node) place = &(*place)->next;
        *place = node->next;
        node_count--;
        free(node);
    }
    pthread_mutex_unlock(&lock);
}
