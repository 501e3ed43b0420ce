/* Names that only some MPIs have.
 *
 * Programs (mpi4py) look for the large-count functions and those new in MPI 4 to decide what to call, so such a name
 * of ours must be there exactly where the loaded MPI has it. That can be known only when somebody asks: the names are
 * IFUNCs that resolve to nothing where the MPI lacks the function. But the dynamic loader complains on stderr when it
 * needs an IFUNC of a library that it has not relocated yet, and at the start of a program it relocates the MPI before
 * us. Whoever asks that early was linked with an MPI that has the function. So the names begin as plain functions and
 * become IFUNCs as soon as we run, by a change to our own symbol table in memory. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mpi_wrappers.h"

#if defined(__GLIBC__)

extern const struct rs_optional __start_rs_optional[] __attribute__((visibility("hidden")));
extern const struct rs_optional __stop_rs_optional[] __attribute__((visibility("hidden")));

/* from, to: the pages in which the symbol table lies. */
struct own { ElfW(Addr) base; ElfW(Sym) *symbols; uint32_t count; int protection; ElfW(Addr) from, to; };

/* The symbol table has no length of its own: the last symbol is at the end of the last hash chain. */
static uint32_t symbol_count(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], last = 0;
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(hash + 4) + hash[2]);
    const uint32_t *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        if (bucket[i] > last)
            last = bucket[i];
    if (last < first)
        return 0;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

/* Of everything in these pages: the larger they are, the sooner the code that runs now is among it. */
static int protection_of(const struct dl_phdr_info *info, ElfW(Addr) from, ElfW(Addr) to)
{
    int protection = PROT_READ;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && begin < to && begin + part->p_memsz > from)
            protection |= (part->p_flags & PF_W ? PROT_WRITE : 0) | (part->p_flags & PF_X ? PROT_EXEC : 0);
    }
    return protection;
}

static int is_ours(const struct dl_phdr_info *info)
{
    ElfW(Addr) here = (ElfW(Addr))&symbol_count;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) from = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && here >= from && here < from + part->p_memsz)
            return 1;
    }
    return 0;
}

static ElfW(Addr) absolute(ElfW(Addr) base, ElfW(Addr) pointer) { return pointer < base ? base + pointer : pointer; }

static int find_own(struct dl_phdr_info *info, size_t size, void *data)
{
    struct own *own = data;
    (void)size;
    if (!is_ours(info))
        return 0;
    own->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB)
                own->symbols = (ElfW(Sym) *)absolute(own->base, entry->d_un.d_ptr);
            else if (entry->d_tag == DT_GNU_HASH)
                own->count = symbol_count((const uint32_t *)absolute(own->base, entry->d_un.d_ptr));
        }
    }
    ElfW(Addr) page = (ElfW(Addr))sysconf(_SC_PAGESIZE);
    own->from = (ElfW(Addr))own->symbols & ~(page - 1);
    own->to = ((ElfW(Addr))(own->symbols + own->count) + page - 1) & ~(page - 1);
    own->protection = protection_of(info, own->from, own->to);
    return 1;
}

/* A function of MPI, or a structure of NCCL's plugins. */
static int may_choose(unsigned type) { return type == STT_FUNC || type == STT_OBJECT; }

static void become_chooser(const struct own *own, ElfW(Sym) *symbol)
{
    for (const struct rs_optional *each = __start_rs_optional; each < __stop_rs_optional; each++)
        if (own->base + symbol->st_value == (ElfW(Addr))each->wrapper) {
            symbol->st_info = ELF64_ST_INFO(ELF64_ST_BIND(symbol->st_info), STT_GNU_IFUNC);
            symbol->st_value = (ElfW(Addr))each->choose - own->base;
            return;
        }
}

__attribute__((constructor(101))) static void make_optional(void)
{
    struct own own = {0};
    if (!gnu_get_libc_version)      /* only glibc knows IFUNCs */
        return;
    dl_iterate_phdr(find_own, &own);
    if (!own.symbols || !own.count)
        return;
    if (mprotect((void *)own.from, own.to - own.from, own.protection | PROT_WRITE) != 0)
        return;
    for (uint32_t i = 0; i < own.count; i++)
        if (own.symbols[i].st_shndx != SHN_UNDEF && may_choose(ELF64_ST_TYPE(own.symbols[i].st_info)))
            become_chooser(&own, &own.symbols[i]);
    mprotect((void *)own.from, own.to - own.from, own.protection);
}

#endif
