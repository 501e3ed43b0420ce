/* FNV-1a: the hash of texts wherever this code needs one, in the recorder, the auditors and the slow file system. */
#ifndef RANKSCOPE_FNV_H
#define RANKSCOPE_FNV_H

#include <stdint.h>

#define RS_FNV32 2166136261u                /* to begin with */
#define RS_FNV64 0xcbf29ce484222325u

static inline uint32_t rs_fnv32(uint32_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 16777619u;
    return hash;
}

static inline uint64_t rs_fnv64_byte(uint64_t hash, uint8_t byte) { return (hash ^ byte) * 0x100000001b3u; }

static inline uint64_t rs_fnv64(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = rs_fnv64_byte(hash, (uint8_t)*text);
    return hash;
}

#endif
