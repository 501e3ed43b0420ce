/* The MPI that is loaded: where its functions are, which kind it is, how its types are read. It may be loaded at any
 * time and privately (mpi4py opens it RTLD_LOCAL), so it is looked for when it is first needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>

#include "mpi_layer.h"

struct rs_mpi rs_mpi = {.status_bytes = 40};

/* --- looking into loaded objects without the dynamic loader's help: an IFUNC resolver may not call dlsym --- */

struct search {
    const char *symbol;
    uint32_t gnu_hash, sysv_hash;
    int found;
    char path[sizeof ((struct rs_header *)0)->mpi_library];
};

struct object {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu, *sysv;
};

static ElfW(Addr) absolute(ElfW(Addr) base, ElfW(Addr) pointer) { return pointer < base ? base + pointer : pointer; }

static struct object read_object(const struct dl_phdr_info *info)
{
    struct object object = {NULL, NULL, NULL, NULL};
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
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
    }
    return object;
}

static int same_symbol(const struct object *object, uint32_t index, const char *symbol)
{
    const ElfW(Sym) *entry = &object->symbols[index];
    return entry->st_shndx != SHN_UNDEF && __builtin_strcmp(object->strings + entry->st_name, symbol) == 0;
}

static int in_gnu_hash(const struct object *object, const struct search *search)
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
            return 1;
        if (hash & 1)
            return 0;
    }
}

static int in_sysv_hash(const struct object *object, const struct search *search)
{
    uint32_t buckets = object->sysv[0];
    const uint32_t *bucket = object->sysv + 2, *chain = bucket + buckets;
    for (uint32_t index = buckets ? bucket[search->sysv_hash % buckets] : 0; index; index = chain[index])
        if (same_symbol(object, index, search->symbol))
            return 1;
    return 0;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct object object = read_object(info);
    (void)size;
    if (!object.symbols || !object.strings)
        return 0;
    search->found = object.gnu ? in_gnu_hash(&object, search) : object.sysv ? in_sysv_hash(&object, search) : 0;
    if (search->found && info->dlpi_name)
        snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
    return search->found;
}

static struct search search_for(const char *symbol)
{
    struct search search = {.symbol = symbol, .gnu_hash = 5381};
    for (const uint8_t *c = (const uint8_t *)symbol; *c; c++) {
        search.gnu_hash = search.gnu_hash * 33 + *c;
        search.sysv_hash = (search.sysv_hash << 4) + *c;
        search.sysv_hash = (search.sysv_hash ^ (search.sysv_hash >> 24 & 0xF0)) & 0x0FFFFFFF;
    }
    dl_iterate_phdr(look_into, &search);
    return search;
}

/* Does any loaded object define it? */
int rs_elf_defines(const char *symbol) { return search_for(symbol).found; }

/* --- every name the loaded MPI exports --- */

static void each_in_gnu_hash(const struct object *object, void (*visit)(const char *))
{
    uint32_t buckets = object->gnu[0], first = object->gnu[1], words = object->gnu[2];
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(object->gnu + 4) + words);
    const uint32_t *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        for (uint32_t index = bucket[i]; index >= first && index; index++) {
            if (object->symbols[index].st_shndx != SHN_UNDEF)
                visit(object->strings + object->symbols[index].st_name);
            if (chain[index - first] & 1)
                break;
        }
}

struct visitor { const char *path; void (*visit)(const char *); };

static int visit_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct visitor *visitor = data;
    (void)size;
    if (!info->dlpi_name || strcmp(info->dlpi_name, visitor->path))
        return 0;
    struct object object = read_object(info);
    if (object.symbols && object.strings && object.gnu)
        each_in_gnu_hash(&object, visitor->visit);
    return 1;
}

void rs_mpi_each_symbol(void (*visit)(const char *))
{
    struct visitor visitor = {rs.file->mpi_library, visit};
    dl_iterate_phdr(visit_object, &visitor);
}

/* --- the library --- */

static void *library;

static void *open_library(void)
{
    struct search search = search_for("PMPI_Init");
    if (!search.found)
        return NULL;
    void *handle = dlopen(search.path[0] ? search.path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (handle && rs.file)
        memcpy(rs.file->mpi_library, search.path, sizeof rs.file->mpi_library);
    return handle;
}

void *rs_mpi_symbol(const char *symbol)
{
    if (!library)
        library = open_library();
    return library ? dlsym(library, symbol) : NULL;
}

/* A variable that a program was linked against may have been copied into the program: that copy is the one in use. */
static W variable(const char *symbol)
{
    void *found = dlsym(RTLD_DEFAULT, symbol);
    return (W)(found ? found : rs_mpi_symbol(symbol));
}

/* Local questions to the MPI: none of them communicates. */
static int ask(const char *symbol, W a, W b, W c, W d, W e)
{
    int (*function)(W, W, W, W, W) = (int (*)(W, W, W, W, W))rs_mpi_symbol(symbol);
    return function ? function(a, b, c, d, e) : -1;
}

static const struct rs_mpi flavours[] = {
    [RS_MPI_OPENMPI] = {.flavour = RS_MPI_OPENMPI, .status_bytes = 24, .in_place = 1, .status_ignore = 0,
                        .topology_cart = 1, .topology_graph = 2, .threads_multiple = 3},
    [RS_MPI_MPICH] = {.flavour = RS_MPI_MPICH, .int_handles = 1, .status_bytes = 20, .in_place = -1,
                      .status_ignore = 1, .comm_null = 0x04000000, .comm_world = 0x44000000, .comm_self = 0x44000001,
                      .byte_type = 0x4c00010d, .topology_cart = 2, .topology_graph = 1, .threads_multiple = 3},
    [RS_MPI_ABI] = {.flavour = RS_MPI_ABI, .status_bytes = 32, .in_place = 1, .status_ignore = 0,
                    .comm_null = 0x100, .comm_world = 0x101, .comm_self = 0x102, .byte_type = 0x247,
                    .topology_cart = 211, .topology_graph = 212, .threads_multiple = 4096},
};

static void choose_flavour(void)
{
    W world = variable("ompi_mpi_comm_world");
    const char *path = rs.file ? rs.file->mpi_library : "";
    struct rs_mpi before = rs_mpi;
    rs_mpi = flavours[world ? RS_MPI_OPENMPI : strstr(path, "libmpi_abi") ? RS_MPI_ABI : RS_MPI_MPICH];
    rs_mpi.type_epoch = before.type_epoch;
    rs_mpi.group_epoch = before.group_epoch;
    if (world) {
        rs_mpi.comm_world = world;
        rs_mpi.comm_self = variable("ompi_mpi_comm_self");
        rs_mpi.comm_null = variable("ompi_mpi_comm_null");
        rs_mpi.byte_type = variable("ompi_mpi_byte");
    }
}

/* --- sizes --- */

RS_COLD uint64_t rs_type_bytes_slow(struct rs_thread *thread, W type)
{
    static void *found, *found_x;       /* looked up by whoever comes first, or by several at once */
    int64_t bytes = 0;
    int small = 0;
    if (rs_mpi.finalized)
        return 0;
    if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&found_x, rs_mpi_symbol("PMPI_Type_size_x"), __ATOMIC_RELAXED);
        __atomic_store_n(&found, rs_mpi_symbol("PMPI_Type_size"), __ATOMIC_RELEASE);
    }
    int (*type_size)(W, int *) = (int (*)(W, int *))__atomic_load_n(&found, __ATOMIC_ACQUIRE);
    int (*type_size_x)(W, int64_t *) = (int (*)(W, int64_t *))__atomic_load_n(&found_x, __ATOMIC_RELAXED);
    if (type_size && type_size(type, &small) == 0)
        bytes = small;
    if (bytes < 0 && (!type_size_x || type_size_x(type, &bytes) != 0 || bytes < 0))
        bytes = 0;
    thread->last_type_epoch = rs_epoch(&rs_mpi.type_epoch);
    thread->last_type = (uint64_t)type;
    thread->last_type_bytes = (uint64_t)bytes;
    return (uint64_t)bytes;
}

/* The layout is not guessed: a status is made to hold a known size and read back. */
static void learn_status_layout(void)
{
    const int64_t probe = ((int64_t)5 << 32) | 0x1AB1E;
    uint64_t status[8] = {0};
    rs_mpi.status_layout = RS_STATUS_UNKNOWN;
    if (ask("PMPI_Status_set_elements_x", (W)status, rs_mpi.byte_type, (W)probe, 0, 0) != 0)
        return;
    for (uint32_t layout = RS_STATUS_WORD_AT_16; layout <= RS_STATUS_SPLIT_AT_12; layout++)
        if (rs_status_decode(layout, status) == (uint64_t)probe)
            rs_mpi.status_layout = layout;
}

RS_COLD uint64_t rs_status_bytes_slow(const void *status)
{
    int64_t bytes = 0;
    if (ask("PMPI_Get_elements_x", (W)status, rs_mpi.byte_type, (W)&bytes, 0, 0) != 0 || bytes < 0)
        return 0;
    return (uint64_t)bytes;
}

/* --- after initialisation --- */

static void learn_rank(struct rs_header *file)
{
    int rank = -1, size = -1;
    if (ask("PMPI_Comm_rank", rs_mpi.comm_world, (W)&rank, 0, 0, 0)
        || ask("PMPI_Comm_size", rs_mpi.comm_world, (W)&size, 0, 0, 0))
        return;
    int mpi_launched = file->rank_source != RS_RANK_TORCHRUN && file->rank_source != RS_RANK_HOROVOD;
    if (size == 1 && file->launcher_world_size > 1) {
        if (mpi_launched)
            rs_set_flag(RS_SINGLETON);
        return;     /* the launcher's rank tells the processes apart, MPI's 0 of 1 does not */
    }
    file->rank = rank;
    file->world_size = size;
    file->rank_source = RS_RANK_MPI;
}

static void learn_version(struct rs_header *file)
{
    char text[8192] = "";
    int length = 0, level = 0;
    if (ask("PMPI_Get_library_version", (W)text, (W)&length, 0, 0, 0) == 0) {
        text[strcspn(text, "\n")] = 0;
        for (char *c = text; *c; c++)
            if (*c == '\t')
                *c = ' ';
        snprintf(file->mpi_version, sizeof file->mpi_version, "%.250s", text);
    }
    if (ask("PMPI_Query_thread", (W)&level, 0, 0, 0, 0) == 0)
        file->mpi_threads_level = (uint32_t)level;
    if (level >= rs_mpi.threads_multiple)
        rs_set_flag(RS_MPI_MULTIPLE);
}

/* Once MPI can be asked: from MPI_Init's return, or from the first call where we did not see it. */
void rs_mpi_started(void)
{
    int initialized = 0, finalized = 0;
    if (rs_mpi.ready || rs_mpi.finalized || !rs.file || !rs_mpi_symbol("PMPI_Init"))
        return;
    ask("PMPI_Initialized", (W)&initialized, 0, 0, 0, 0);
    ask("PMPI_Finalized", (W)&finalized, 0, 0, 0, 0);
    choose_flavour();
    if (!initialized || finalized)
        return;
    rs_mpi.ready = 1;
    rs_mpi.group_epoch++;
    rs_mpi.type_epoch++;
    learn_status_layout();
    learn_rank(rs.file);
    learn_version(rs.file);
    rs_log_open();
    rs_file_reserve(rs.file->used_bytes + 32 * RS_PAGE);
    rs_calibrate();
    rs_mpi_list_unwrapped();
    rs.file->mpi_started_ticks = rs_ticks();
    rs_set_flag(RS_MPI_STARTED);
    rs_set_phase(RS_PHASE_FIRST_COLLECTIVE);
}
