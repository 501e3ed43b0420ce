/* What XLA does inside jaxlib: programs that are started, and collectives between processes on CPUs. Both are virtual
 * methods; their places in the tables of their classes are found by the symbols of class and method, and are made to
 * point to us. A method whose name or place is not found stays as it is. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdio.h>

#include "executables.h"
#include "fnv.h"
#include "loaded_objects.h"
#include "steps.h"
#include "table_slots.h"
#include "xla.h"

#define STEP_PROGRAMS 1         /* bits of what rankscope_xla_install says */
#define GLOO_COLLECTIVES 2
#define MPI_COLLECTIVES 4

#if defined(__x86_64__) /* elsewhere a result in memory has a register of its own, which C cannot pass on */

#define COMPLETED 0
#define BACKEND_GLOO 1

uint32_t rankscope_collective_begin(const char *name, uint32_t group, uint64_t bytes, int32_t root, uint64_t order,
                                    int backend);
void rankscope_collective_end(uint32_t slot, int how);

typedef uint64_t word;

/* Every argument fills words; what lies on the stack is passed on as it is, with some of what lies behind it. The
 * result is an object in the caller's memory, whose address comes first. */
#define REGISTERS word result, word self, word a, word b, word c, word d
#define STACK                                                                                                          \
    word s0, word s1, word s2, word s3, word s4, word s5, word s6, word s7, word s8, word s9, word s10, word s11,      \
        word s12, word s13
#define PASSED_ON result, self, a, b, c, d, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13
typedef word method(REGISTERS, STACK);

/* --- programs --- */

struct view { size_t length; const char *text; };       /* std::string_view */

static method *execute;
static struct view (*name_of)(word self);
static word (*delete_executable)(word self);

static RS_COLD struct rs_xla_program *meet(word self)
{
    struct view name = name_of(self);
    return name.text && name.length ? rs_xla_program_named(self, name.text, name.length) : NULL;
}

static word executing(REGISTERS, STACK)
{
    uint64_t begin = rs_ticks();
    struct rs_xla_program *program = rs_xla_program_of(self);
    if (RS_UNLIKELY(!program))
        program = meet(self);
    int is_step = program && rs_xla_program_begins(program, begin);
    word back = execute(PASSED_ON);
    if (program)
        rs_xla_program_started(program, is_step, begin, rs_ticks());
    return back;
}

static word deleting(word self)
{
    rs_xla_program_deleted(self);
    return delete_executable(self);
}

/* --- collectives --- */

/* Bits of an element, by XLA's number of its type; 0: another one. */
static const uint8_t bits_of_type[] = {
    [1] = 8, [2] = 8, [3] = 16, [4] = 32, [5] = 64, [6] = 8, [7] = 16, [8] = 32, [9] = 64, [10] = 16, [11] = 32,
    [12] = 64, [15] = 64, [16] = 16, [18] = 128, [19] = 8, [20] = 8, [21] = 4, [22] = 4, [23] = 8, [24] = 8, [25] = 8,
    [28] = 8, [29] = 8};

static uint64_t bytes_of(word type, word count)
{
    uint32_t number = (uint32_t)type;
    return number < sizeof bits_of_type ? count * bits_of_type[number] / 8 : 0;
}

static uint32_t begin(const char *name, word self, uint64_t bytes)
{
    uint32_t group = rs_clique_of(self);
    return group == RS_CLIQUE_OTHER_DEVICE ? 0 : rankscope_collective_begin(name, group, bytes, -1, 0, BACKEND_GLOO);
}

/* Where programs are not run by threads of their own, it is the loop that was blocked. */
static void end(uint32_t slot, uint64_t since)
{
    rankscope_collective_end(slot, COMPLETED);
    if (rs_step_open)
        rs_step_blocked(since, rs_ticks());
}

/* A buffer is an address and a size, and is passed on the stack. */
#define OF_BUFFER s1
/* Vectors of buffers, each of as many elements, are passed by their addresses; twice the length comes first. */
#define OF_BUFFERS (bytes_of(c, d) * (((const word *)a)[0] >> 1))

/* `bytes` of this rank's input. */
#define COLLECTIVE(library, shown, bytes)                                                                              \
    static method *library##_##shown;                                                                                  \
    static uint8_t library##_##shown##_sized;                                                                          \
    static word library##_##shown##_wrapper(REGISTERS, STACK)                                                          \
    {                                                                                                                  \
        uint64_t since = rs_ticks();                                                                                   \
        uint32_t slot = begin(#shown, self, library##_##shown##_sized ? bytes : 0);                                    \
        word back = library##_##shown(PASSED_ON);                                                                      \
        end(slot, since);                                                                                              \
        return back;                                                                                                   \
    }
#define COLLECTIVES(library)                                                                                           \
    COLLECTIVE(library, all_reduce, OF_BUFFER)                                                                         \
    COLLECTIVE(library, reduce_scatter, OF_BUFFER)                                                                     \
    COLLECTIVE(library, all_gather, OF_BUFFER)                                                                         \
    COLLECTIVE(library, broadcast, OF_BUFFER)                                                                          \
    COLLECTIVE(library, collective_permute, OF_BUFFER)                                                                 \
    COLLECTIVE(library, all_to_all, OF_BUFFERS)
COLLECTIVES(gloo)
COLLECTIVES(mpi)

/* --- communicators --- */

static method *create_gloo, *create_mpi;
static void (*describe_clique)(word text, word key);

static void created(word result, word key, word ranks, word ranks_count)
{
    const word *back = (const word *)result;            /* a status, 1: good; then a vector of pointers */
    const word *places = (const word *)ranks;           /* pairs of a device and its rank in the clique */
    word text[4] = {0, 0, 0, 0};                        /* std::string: its address and length come first */
    word in_order[64], communicators[64];
    uint32_t count = ranks_count < 64 ? (uint32_t)ranks_count : 64;
    if (back[0] != 1 || (back[2] - back[1]) / sizeof(word) != ranks_count || !describe_clique)
        return;
    for (uint32_t at = 0; at < count; at++) {
        in_order[at] = places[2 * at + 1];
        communicators[at] = ((const word *)back[1])[at];
    }
    describe_clique((word)text, key);                   /* stays where it is: one for each clique of a process */
    if (text[0])
        rs_clique_created((const char *)text[0], in_order, communicators, count);
}

static word creating_gloo(REGISTERS, STACK)
{
    word back = create_gloo(PASSED_ON);
    created(result, a, c, d);
    return back;
}

static word creating_mpi(REGISTERS, STACK)
{
    word back = create_mpi(PASSED_ON);
    created(result, a, c, d);
    return back;
}

/* --- finding and replacing them --- */

enum {
    PROGRAM_TABLE, PROGRAM_EXECUTE, PROGRAM_NAME, PROGRAM_DELETE,
    CLIQUE_TABLE, CLIQUE_TEXT,
    GLOO_TABLE, GLOO_METHODS, GLOO_CREATOR_TABLE = GLOO_METHODS + 6, GLOO_CREATE,
    MPI_TABLE, MPI_METHODS, MPI_CREATOR_TABLE = MPI_METHODS + 6, MPI_CREATE,
    SYMBOLS
};

#define PROGRAM "N3xla4ifrt20PjRtLoadedExecutable"
#define METHODS(first, class)                                                                                          \
    [first] = {.prefix = class "9AllReduceE"}, [first + 1] = {.prefix = class "13ReduceScatterE"},                     \
    [first + 2] = {.prefix = class "9AllGatherE"}, [first + 3] = {.prefix = class "9BroadcastE"},                      \
    [first + 4] = {.prefix = class "17CollectivePermuteE"}, [first + 5] = {.prefix = class "8AllToAllE"}

static struct rs_symbol symbols[SYMBOLS] = {
    [PROGRAM_TABLE] = {.prefix = "_ZTV" PROGRAM "E"},
    [PROGRAM_EXECUTE] = {.prefix = "_Z" PROGRAM "7ExecuteE"},
    [PROGRAM_NAME] = {.prefix = "_ZNK3xla4ifrt20PjRtLoadedExecutable4nameEv"},
    [PROGRAM_DELETE] = {.prefix = "_Z" PROGRAM "D0Ev"},
    [CLIQUE_TABLE] = {.prefix = "_ZTVN3xla3cpu12CpuCliqueKeyE"},
    [CLIQUE_TEXT] = {.prefix = "_ZNK3xla3cpu12CpuCliqueKey8ToStringB5cxx11Ev"},
    [GLOO_TABLE] = {.prefix = "_ZTVN3xla3cpu16GlooCommunicatorE"},
    METHODS(GLOO_METHODS, "_ZN3xla3cpu16GlooCommunicator"),
    [GLOO_CREATOR_TABLE] = {.prefix = "_ZTVN3xla3cpu15GlooCollectivesE"},
    [GLOO_CREATE] = {.prefix = "_ZN3xla3cpu15GlooCollectives19CreateCommunicatorsERKNS_9CliqueKeyERKSt8optional"
                               "INS_9CliqueIdsEEN4absl"},
    [MPI_TABLE] = {.prefix = "_ZTVN3xla3cpu15MpiCommunicatorE"},
    METHODS(MPI_METHODS, "_ZN3xla3cpu15MpiCommunicator"),
    [MPI_CREATOR_TABLE] = {.prefix = "_ZTVN3xla3cpu14MpiCollectivesE"},
    [MPI_CREATE] = {.prefix = "_ZN3xla3cpu14MpiCollectives19CreateCommunicatorsERKNS_9CliqueKeyERKSt8optional"
                              "INS_9CliqueIdsEEN4absl"},
};

static const struct { void *wrapper, **original; uint8_t *sized; } methods[2][6] = {
#define METHOD(library, shown)                                                                                         \
    {(void *)library##_##shown##_wrapper, (void **)&library##_##shown, &library##_##shown##_sized}
#define ALL_METHODS(library)                                                                                           \
    {METHOD(library, all_reduce), METHOD(library, reduce_scatter), METHOD(library, all_gather),                        \
     METHOD(library, broadcast), METHOD(library, collective_permute), METHOD(library, all_to_all)}
    ALL_METHODS(gloo), ALL_METHODS(mpi)};

static struct rs_xla_library library;
static struct rs_mapping mapping;

static void *address_of(const struct rs_symbol *symbol)
{
    uintptr_t address = library.base + symbol->value;
    int lies_within = address >= library.begin && address < library.end && symbol->size <= library.end - address;
    return symbol->name[0] && lies_within ? (void *)address : NULL;
}

/* The method's place in the table of its class, NULL: it has none. What is found there is what the symbol says. */
static void **place_of(unsigned table, unsigned method_at)
{
    void **places = address_of(&symbols[table]), *wanted = address_of(&symbols[method_at]);
    for (uint64_t at = 2; places && wanted && at < symbols[table].size / sizeof *places; at++)
        if (places[at] == wanted)
            return &places[at];
    return NULL;
}

static void *method_of(unsigned table, unsigned method_at)
{
    void **place = place_of(table, method_at);
    return place ? *place : NULL;
}

/* It points to the wrapper from now on. */
static int replace(unsigned table, unsigned method_at, void *wrapper, void **original)
{
    void **place = place_of(table, method_at);
    if (!place)
        return 0;
    __atomic_store_n(original, *place, __ATOMIC_RELEASE);
    return rs_slot_replace(&mapping, place, *place, wrapper);
}

static int replace_collectives(int which, unsigned table, unsigned first)
{
    int replaced = 0;
    for (unsigned at = 0; at < 6; at++) {
        const struct rs_symbol *symbol = &symbols[first + at];
        *methods[which][at].sized = strstr(symbol->name, "13PrimitiveTypeEm") != NULL;
        replaced += replace(table, first + at, methods[which][at].wrapper, methods[which][at].original);
    }
    return replaced == 6;
}

/* The note that holds the build id, among those of one segment. */
static void find_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) *segment)
{
    const unsigned char *notes = (const unsigned char *)(info->dlpi_addr + segment->p_vaddr);
    for (uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= segment->p_filesz;) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(notes + at);
        uint64_t name = (note->n_namesz + 3u) & ~3ull, size = sizeof *note + name + ((note->n_descsz + 3u) & ~3ull);
        if (size > segment->p_filesz - at)
            return;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(note + 1, "GNU", 4) && note->n_descsz) {
            library.note = notes + at;
            library.note_offset = segment->p_offset + at;
            library.note_size = sizeof *note + name + note->n_descsz;
            return;
        }
        at += size;
    }
}

static int find_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    const char *name = rs_base_name(info->dlpi_name);
    if ((strcmp(name, "libjax_common.so") && strcmp(name, "xla_extension.so"))
        || strlen(info->dlpi_name) >= sizeof library.path)
        return 0;
    strcpy(library.path, info->dlpi_name);
    library.base = info->dlpi_addr;
    library.segments = info->dlpi_phdr;
    library.segments_count = info->dlpi_phnum;
    rs_object_extent(info, &library.begin, &library.end);
    for (unsigned at = 0; at < info->dlpi_phnum && !library.note_size; at++)
        if (info->dlpi_phdr[at].p_type == PT_NOTE)
            find_build_id(info, &info->dlpi_phdr[at]);
    return 1;
}

static uint64_t hash_of(uint64_t hash, const unsigned char *bytes, uint64_t count)
{
    for (uint64_t at = 0; at < count; at++)
        hash = rs_fnv64_byte(hash, bytes[at]);
    return hash;
}

/* jaxlib has no build id. Where its segments lie, and pieces of the table of where its functions begin, differ between any
 * two builds. */
#define PIECES 16u
#define PIECE_BYTES 1024u

static uint64_t fingerprint(void)
{
    uint64_t hash = hash_of(RS_FNV64, (const unsigned char *)library.segments, library.segments_count * sizeof *library.segments);
    for (unsigned at = 0; at < library.segments_count; at++) {
        const ElfW(Phdr) *segment = &library.segments[at];
        const unsigned char *table = (const unsigned char *)(library.base + segment->p_vaddr);
        uint64_t apart = segment->p_filesz / PIECES;
        if (segment->p_type == PT_GNU_EH_FRAME && apart >= PIECE_BYTES)
            for (unsigned piece = 0; piece < PIECES; piece++)
                hash = hash_of(hash, table + piece * apart, PIECE_BYTES);
        else if (segment->p_type == PT_GNU_EH_FRAME)
            hash = hash_of(hash, table, segment->p_filesz);
    }
    return hash;
}

/* For Python: which build of XLA is loaded, and which symbols are looked for in it; "": none is. */
RS_EXPORT const char *rankscope_xla_build(void)
{
    static char text[200];
    uint64_t wanted = RS_FNV64;
    if (!library.path[0])
        dl_iterate_phdr(find_library, NULL);
    if (!library.path[0] || text[0])
        return text;
    for (unsigned at = 0; at < SYMBOLS; at++)
        wanted = rs_fnv64(wanted, symbols[at].prefix);
    int used = snprintf(text, sizeof text, "%016llx-%016llx", (unsigned long long)fingerprint(), (unsigned long long)wanted);
    for (unsigned at = sizeof(ElfW(Nhdr)) + 4; at < library.note_size && used < 160; at++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%02x", library.note[at]);
    return text;
}

/* For Python: what was found, to be given to rankscope_xla_install by the next process; its length, 0: no room. */
RS_EXPORT size_t rankscope_xla_symbols(char *text, size_t size) { return rs_symbols_write(symbols, SYMBOLS, text, size); }

/* For Python, once jaxlib is loaded: what of it is recorded from now on. `known`: symbols of this build, else it is read. */
RS_EXPORT int rankscope_xla_install(const char *known)
{
    static int installed = -1;
    if (installed >= 0 || !rs_recording())
        return installed >= 0 ? installed : 0;
    installed = 0;
    rankscope_xla_build();
    if (!library.path[0] || !(rs_symbols_read(known, symbols, SYMBOLS) || rs_symbols_find(&library, symbols, SYMBOLS)))
        return installed;
    name_of = (struct view(*)(word))method_of(PROGRAM_TABLE, PROGRAM_NAME);
    describe_clique = (void (*)(word, word))method_of(CLIQUE_TABLE, CLIQUE_TEXT);
    if (name_of && replace(PROGRAM_TABLE, PROGRAM_DELETE, (void *)deleting, (void **)&delete_executable)
        && replace(PROGRAM_TABLE, PROGRAM_EXECUTE, (void *)executing, (void **)&execute))
        installed |= STEP_PROGRAMS;
    if (replace(GLOO_CREATOR_TABLE, GLOO_CREATE, (void *)creating_gloo, (void **)&create_gloo)
        && replace_collectives(0, GLOO_TABLE, GLOO_METHODS))
        installed |= GLOO_COLLECTIVES;
    if (replace(MPI_CREATOR_TABLE, MPI_CREATE, (void *)creating_mpi, (void **)&create_mpi)
        && replace_collectives(1, MPI_TABLE, MPI_METHODS))
        installed |= MPI_COLLECTIVES;
    return installed;
}

#else

RS_EXPORT const char *rankscope_xla_build(void) { return ""; }

RS_EXPORT size_t rankscope_xla_symbols(char *text, size_t size)
{
    (void)text;
    (void)size;
    return 0;
}

RS_EXPORT int rankscope_xla_install(const char *known)
{
    (void)known;
    return 0;
}

#endif
