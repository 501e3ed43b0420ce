/* Symbols that a library does not export, out of its symbol table; and as text, to be kept for the next process. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Whether the file is what was loaded: it may have been replaced since. The headers of its segments hold every address
 * and size that linking has given it. */
static int is_loaded(const struct image *image, const struct rs_xla_library *library)
{
    const ElfW(Ehdr) *head = within(image, 0, sizeof *head);
    if (!head || head->e_phnum != library->segments_count || head->e_phentsize != sizeof *library->segments)
        return 0;
    const void *segments = within(image, head->e_phoff, head->e_phnum * sizeof *library->segments);
    if (!segments || memcmp(segments, library->segments, head->e_phnum * sizeof *library->segments))
        return 0;
    const void *note = within(image, library->note_offset, library->note_size);
    return !library->note_size || (note && !memcmp(note, library->note, library->note_size));
}

/* Names follow each other in the order of their symbols, so this reads the table once from begin to end. */
unsigned rs_symbols_find(const struct rs_xla_library *library, struct rs_symbol *wanted, unsigned count)
{
    struct image image;
    struct table table;
    unsigned found = 0;
    if (!map_file(library->path, &image))
        return 0;
    int has_table = is_loaded(&image, library) && symbol_table(&image, &table);
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

/* A line for each: its number, place, size and name. */
size_t rs_symbols_write(const struct rs_symbol *symbols, unsigned count, char *text, size_t size)
{
    size_t length = 0;
    for (unsigned at = 0; at < count; at++) {
        int more = snprintf(text + length, size - length, "%u %llx %llx %s\n", at, (unsigned long long)symbols[at].value,
                            (unsigned long long)symbols[at].size, symbols[at].name[0] ? symbols[at].name : "-");
        if (more < 0 || (size_t)more >= size - length)
            return 0;
        length += (size_t)more;
    }
    return length;
}

static int read_symbol(const char *line, unsigned at, struct rs_symbol *symbol)
{
    char *end, *name;
    const char *until = strchr(line, '\n');
    if (!until || strtoul(line, &end, 10) != at || *end != ' ')
        return 0;
    uint64_t value = strtoull(end + 1, &end, 16), size = *end == ' ' ? strtoull(end + 1, &name, 16) : 0;
    if (*end != ' ' || *name++ != ' ' || name >= until || (size_t)(until - name) >= sizeof symbol->name)
        return 0;
    if (until - name == 1 && *name == '-')
        return 1;                               /* the library has none */
    if (strncmp(name, symbol->prefix, strlen(symbol->prefix)))
        return 0;
    memcpy(symbol->name, name, (size_t)(until - name));
    symbol->value = value;
    symbol->size = size;
    return 1;
}

/* 0: it is another text than was written of these symbols. */
unsigned rs_symbols_read(const char *text, struct rs_symbol *symbols, unsigned count)
{
    unsigned found = 0, at = 0;
    for (; text && at < count && read_symbol(text, at, &symbols[at]); at++, text = strchr(text, '\n') + 1)
        found += symbols[at].name[0] != 0;
    if (text && at == count && !*text)
        return found;
    for (at = 0; at < count; at++)
        symbols[at].name[0] = 0;
    return 0;
}
