/* Symbols that a library does not export, out of its symbol table. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "xla.h"

struct image { const char *bytes; uint64_t size; };

struct table { const ElfW(Sym) *symbols; uint64_t count; const char *strings; uint64_t strings_size; };

static int map_file(const char *path, struct image *image)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;  /* fstat is another one in every glibc */
    void *mapped = MAP_FAILED;
    if (size > (off_t)sizeof(ElfW(Ehdr)))
        mapped = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (mapped == MAP_FAILED)
        return 0;
    *image = (struct image){mapped, (uint64_t)size};
    return 1;
}

static const void *within(const struct image *image, uint64_t offset, uint64_t size)
{
    return offset <= image->size && size <= image->size - offset ? image->bytes + offset : NULL;
}

static int symbol_table(const struct image *image, struct table *table)
{
    const ElfW(Ehdr) *head = within(image, 0, sizeof *head);
    if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_shentsize != sizeof(ElfW(Shdr)))
        return 0;
    const ElfW(Shdr) *sections = within(image, head->e_shoff, (uint64_t)head->e_shnum * sizeof *sections);
    for (unsigned at = 0; sections && at < head->e_shnum; at++) {
        const ElfW(Shdr) *one = &sections[at];
        if (one->sh_type != SHT_SYMTAB || one->sh_link >= head->e_shnum || one->sh_entsize != sizeof(ElfW(Sym)))
            continue;
        const ElfW(Shdr) *strings = &sections[one->sh_link];
        table->symbols = within(image, one->sh_offset, one->sh_size);
        table->count = one->sh_size / sizeof(ElfW(Sym));
        table->strings = within(image, strings->sh_offset, strings->sh_size);
        table->strings_size = strings->sh_size;
        return table->symbols && table->strings && strings->sh_size && !table->strings[strings->sh_size - 1];
    }
    return 0;
}

static int is_of_xla(const char *name)
{
    return name[0] == '_' && name[1] == 'Z'
           && (!strncmp(name + 2, "N3xla", 5) || !strncmp(name + 2, "NK3xla", 6) || !strncmp(name + 2, "TVN3xla", 7));
}

static void compare(const char *name, const ElfW(Sym) *symbol, struct rs_symbol *wanted, unsigned count)
{
    for (unsigned at = 0; at < count; at++) {
        struct rs_symbol *one = &wanted[at];
        if (one->name[0] || strncmp(name, one->prefix, strlen(one->prefix)))
            continue;
        strncpy(one->name, name, sizeof one->name - 1);
        one->value = symbol->st_value;
        one->size = symbol->st_size;
    }
}

/* Names follow each other in the order of their symbols, so this reads the table once from begin to end. */
unsigned rs_symbols_find(const char *path, struct rs_symbol *wanted, unsigned count)
{
    struct image image;
    struct table table;
    unsigned found = 0;
    if (!map_file(path, &image))
        return 0;
    int has_table = symbol_table(&image, &table);
    for (uint64_t at = 0; has_table && at < table.count; at++) {
        const ElfW(Sym) *symbol = &table.symbols[at];
        unsigned char type = symbol->st_info & 0xF;
        if ((type != STT_FUNC && type != STT_OBJECT) || symbol->st_shndx == SHN_UNDEF
            || symbol->st_name >= table.strings_size)
            continue;
        const char *name = table.strings + symbol->st_name;
        if (is_of_xla(name))
            compare(name, symbol, wanted, count);
    }
    munmap((void *)(uintptr_t)image.bytes, image.size);
    for (unsigned at = 0; at < count; at++)
        found += wanted[at].name[0] != 0;
    return found;
}
