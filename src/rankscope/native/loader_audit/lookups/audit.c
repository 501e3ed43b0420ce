/* Gives the recorder's functions to libraries that look those of an MPI, or of oneCCL, up by name in the library they have
   opened (dlsym with a handle), as oneCCL does with MPI's: what is preloaded is not found that way. Loaded by LD_AUDIT.
   Only bindings to an MPI or to oneCCL are looked at, and only those by name are changed. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

static const struct link_map *recorder;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

PUBLIC unsigned la_version(unsigned version)
{
    (void)version;
    return LAV_CURRENT;   /* never 0: the loader would have to take us out again, which it does not do well */
}

PUBLIC unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)cookie;
    if (space != LM_ID_BASE)
        return 0;
    const char *name = base_name(map->l_name);
    if (!strcmp(name, "librankscope.so"))
        recorder = map;
    return strncmp(name, "libmpi", 6) && strncmp(name, "libccl.so", 9) ? 0 : LA_FLG_BINDTO;
}

/* --- the recorder's own symbol of that name --- */

static const void *absolute(const struct link_map *map, ElfW(Addr) pointer)
{
    return (const void *)(pointer < map->l_addr ? map->l_addr + pointer : pointer);
}

static const void *entry_of(const struct link_map *map, ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return absolute(map, entry->d_un.d_ptr);
    return NULL;
}

static const ElfW(Sym) *symbol_of(const struct link_map *map, const char *name)
{
    const ElfW(Sym) *symbols = entry_of(map, DT_SYMTAB);
    const char *strings = entry_of(map, DT_STRTAB);
    const uint32_t *table = entry_of(map, DT_GNU_HASH);
    uint32_t hash = 5381;
    if (!symbols || !strings || !table || !table[0])
        return NULL;
    for (const uint8_t *letter = (const uint8_t *)name; *letter; letter++)
        hash = hash * 33 + *letter;
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + table[2]);
    const uint32_t *chain = bucket + table[0];
    for (uint32_t index = bucket[hash % table[0]]; index >= table[1] && index; index++) {
        uint32_t other = chain[index - table[1]];
        if ((other | 1) == (hash | 1) && symbols[index].st_shndx != SHN_UNDEF
            && !strcmp(strings + symbols[index].st_name, name))
            return &symbols[index];
        if (other & 1)
            return NULL;
    }
    return NULL;
}

static uintptr_t wrapper_of(const char *name)
{
    const ElfW(Sym) *symbol = recorder ? symbol_of(recorder, name) : NULL;
    if (!symbol)
        return 0;
    uintptr_t address = recorder->l_addr + symbol->st_value;
    if (ELF64_ST_TYPE(symbol->st_info) != STT_GNU_IFUNC)
        return address;
    return ((uintptr_t(*)(void))address)();   /* names that only some MPIs have choose when they are asked for */
}

static int is_recorded(const char *name)
{
    return !strncmp(name, "MPI_", 4) || !strncmp(name, "oneccl", 6) || !strncmp(name, "_ZN3ccl", 7);
}

PUBLIC uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                              const char *name)
{
    (void)index, (void)from, (void)to;
    uintptr_t ours = *flags & LA_SYMB_DLSYM && is_recorded(name) ? wrapper_of(name) : 0;
    *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
    return ours ? ours : symbol->st_value;
}
