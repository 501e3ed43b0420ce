/* Symbol tables of loaded objects, read in memory. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdio.h>

#include "loaded_objects.h"
#include "recorder.h"

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

struct search {
    const char *symbol;
    uint32_t gnu_hash, sysv_hash;
    struct rs_definition found;
    int wants_calls;
    void **own_calls;
};

static ElfW(Addr) absolute(ElfW(Addr) base, ElfW(Addr) pointer) { return pointer < base ? base + pointer : pointer; }

struct rs_object rs_object_read(const struct dl_phdr_info *info)
{
    struct rs_object object = {0};
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (entry == _DYNAMIC)
        return object;      /* our own names are not what is looked for */
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)absolute(info->dlpi_addr, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            object.symbols = at;
        else if (entry->d_tag == DT_STRTAB)
            object.strings = at;
        else if (entry->d_tag == DT_GNU_HASH)
            object.gnu = at;
        else if (entry->d_tag == DT_HASH)
            object.sysv = at;
        else if (entry->d_tag == DT_JMPREL)
            object.calls = at;
        else if (entry->d_tag == DT_PLTRELSZ)
            object.calls_count = entry->d_un.d_val / sizeof *object.calls;
    }
    return object;
}

static int same_symbol(const struct rs_object *object, uint32_t index, const char *symbol)
{
    const ElfW(Sym) *entry = &object->symbols[index];
    return entry->st_shndx != SHN_UNDEF && __builtin_strcmp(object->strings + entry->st_name, symbol) == 0;
}

static uint32_t in_gnu_hash(const struct rs_object *object, const struct search *search)
{
    uint32_t buckets = object->gnu[0], first = object->gnu[1], words = object->gnu[2];
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(object->gnu + 4) + words);
    const uint32_t *chain = bucket + buckets;
    uint32_t index = buckets ? bucket[search->gnu_hash % buckets] : 0;
    if (index < first || index == 0)
        return 0;
    for (;; index++) {
        uint32_t hash = chain[index - first];
        if ((hash | 1) == (search->gnu_hash | 1) && same_symbol(object, index, search->symbol))
            return index;
        if (hash & 1)
            return 0;
    }
}

static uint32_t in_sysv_hash(const struct rs_object *object, const struct search *search)
{
    uint32_t buckets = object->sysv[0];
    const uint32_t *bucket = object->sysv + 2, *chain = bucket + buckets;
    for (uint32_t index = buckets ? bucket[search->sysv_hash % buckets] : 0; index; index = chain[index])
        if (same_symbol(object, index, search->symbol))
            return index;
    return 0;
}

/* Its number in the symbol table, 0 where it is not there. */
static uint32_t symbol_number(const struct rs_object *object, const struct search *search)
{
    if (!object->symbols || !object->strings)
        return 0;
    return object->gnu ? in_gnu_hash(object, search) : object->sysv ? in_sysv_hash(object, search) : 0;
}

void rs_object_extent(const struct dl_phdr_info *info, ElfW(Addr) *begin, ElfW(Addr) *end)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        if (!*end || from < *begin)
            *begin = from;
        if (from + part->p_memsz > *end)
            *end = from + part->p_memsz;
    }
}

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct rs_object object = rs_object_read(info);
    (void)size;
    uint32_t number = symbol_number(&object, search);
    if (!number)
        return 0;
    search->found.address = (void *)(info->dlpi_addr + object.symbols[number].st_value);
    for (size_t i = 0; search->wants_calls && object.calls && i < object.calls_count; i++)
        if (ELF64_R_SYM(object.calls[i].r_info) == number)
            search->own_calls = (void **)(info->dlpi_addr + object.calls[i].r_offset);
    rs_object_extent(info, &search->found.begin, &search->found.end);
    if (info->dlpi_name)
        snprintf(search->found.path, sizeof search->found.path, "%s", info->dlpi_name);
    return 1;
}

static struct search search_named(const char *symbol)
{
    struct search search = {.symbol = symbol, .gnu_hash = 5381};
    for (const uint8_t *c = (const uint8_t *)symbol; *c; c++) {
        search.gnu_hash = search.gnu_hash * 33 + *c;
        search.sysv_hash = (search.sysv_hash << 4) + *c;
        search.sysv_hash = (search.sysv_hash ^ (search.sysv_hash >> 24 & 0xF0)) & 0x0FFFFFFF;
    }
    return search;
}

struct rs_definition rs_find_definition(const char *symbol)
{
    struct search search = search_named(symbol);
    dl_iterate_phdr(look_into, &search);
    return search.found;
}

void **rs_find_own_calls(const char *symbol, struct rs_definition *definition)
{
    struct search search = search_named(symbol);
    search.wants_calls = 1;
    dl_iterate_phdr(look_into, &search);
    *definition = search.found;
    return search.own_calls;
}

int rs_object_defines(const struct rs_object *object, const char *symbol)
{
    struct search search = search_named(symbol);
    return symbol_number(object, &search) != 0;
}

void rs_object_each_defined(const struct rs_object *object, rs_symbol_visitor *visit, void *data)
{
    if (!object->symbols || !object->strings || !object->gnu)
        return;
    uint32_t buckets = object->gnu[0], first = object->gnu[1], words = object->gnu[2];
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(object->gnu + 4) + words);
    const uint32_t *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        for (uint32_t index = bucket[i]; index >= first && index; index++) {
            if (object->symbols[index].st_shndx != SHN_UNDEF)
                visit(object->strings + object->symbols[index].st_name, &object->symbols[index], data);
            if (chain[index - first] & 1)
                break;
        }
}

/* What an object needs of others stands in front of what it defines. */
void rs_object_each_needed(const struct rs_object *object, void (*visit)(const char *))
{
    uint32_t end = object->gnu ? object->gnu[1] : object->sysv ? object->sysv[1] : 0;
    for (uint32_t index = 1; index < end; index++)
        if (object->symbols[index].st_shndx == SHN_UNDEF)
            visit(object->strings + object->symbols[index].st_name);
}
