/* The MPI that is loaded: where its functions are, which kind it is, how its types are read. It may be loaded at any
 * time and privately (mpi4py opens it RTLD_LOCAL), so it is looked for when it is first needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#include "mpi_layer.h"

struct rs_mpi rs_mpi = {.status_bytes = 40};

/* --- every name the loaded MPI exports --- */

struct visitor { const char *path; void (*visit)(const char *); };

static void visit_name(const char *name, const ElfW(Sym) *symbol, void *data)
{
    (void)symbol;
    ((struct visitor *)data)->visit(name);
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct visitor *visitor = data;
    (void)size;
    if (!info->dlpi_name || strcmp(info->dlpi_name, visitor->path))
        return 0;
    struct rs_object object = rs_object_read(info);
    rs_object_each_defined(&object, visit_name, visitor);
    return 1;
}

void rs_mpi_each_symbol(void (*visit)(const char *))
{
    struct visitor visitor = {rs.file->mpi_library, visit};
    dl_iterate_phdr(visit_object, &visitor);
}

/* --- the Fortran bindings, which are libraries of their own that call the C functions --- */

static int visit_fortran(struct dl_phdr_info *info, size_t size, void *data)
{
    void (*visit)(const struct rs_object *) = *(void (**)(const struct rs_object *))data;
    struct rs_object object = rs_object_read(info);
    (void)size;
    if (object.symbols && object.strings && rs_object_defines(&object, "mpi_allreduce_"))
        visit(&object);
    return 0;
}

void rs_mpi_each_fortran(void (*visit)(const struct rs_object *)) { dl_iterate_phdr(visit_fortran, &visit); }

struct caller { ElfW(Addr) code; const char *symbol; int speaks; };

static int judge_caller(struct dl_phdr_info *info, size_t size, void *data)
{
    struct caller *caller = data;
    ElfW(Addr) begin = 0, end = 0;
    (void)size;
    rs_object_extent(info, &begin, &end);
    if (caller->code < begin || caller->code >= end)
        return 0;
    struct rs_object object = rs_object_read(info);
    caller->speaks = object.symbols && object.strings
                     && (rs_object_defines(&object, "mpi_allreduce_") || rs_object_defines(&object, "mpi_allreduce_f08_")
                         || rs_object_defines(&object, caller->symbol));
    return 1;
}

/* Whether who calls PMPI_X does so for the program: Fortran bindings, or a layer in front of us that has an MPI_X. */
RS_COLD int rs_mpi_speaks_for_program(const void *code, const char *symbol)
{
    struct caller caller = {(ElfW(Addr))code, symbol, 0};
    dl_iterate_phdr(judge_caller, &caller);
    return caller.speaks;
}

/* --- the library --- */

static void *library;
static ElfW(Addr) library_begin, library_end;

static void *open_library(void)
{
    struct rs_definition init = rs_find_definition("PMPI_Init");
    if (!init.address)
        return NULL;
    void *handle = dlopen(init.path[0] ? init.path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    library_begin = init.begin;
    library_end = init.end;
    if (handle && rs_telling())
        memcpy(rs.file->mpi_library, init.path, sizeof rs.file->mpi_library);
    return handle;
}

void *rs_mpi_symbol(const char *symbol)
{
    if (!library)
        library = open_library();
    return library ? dlsym(library, symbol) : NULL;
}

int rs_mpi_contains(const void *code)
{
    ElfW(Addr) at = (ElfW(Addr))code;
    return at >= library_begin && at < library_end;
}

/* Other layers stand between the program and its MPI too (Darshan, mpiP, a site's own): the definition of MPI_X that
 * comes behind ours, unless it is the library's. */
void *rs_mpi_next(const char *symbol, void *otherwise)
{
    Dl_info next, own;
    void *found = dlsym(RTLD_NEXT, symbol);
    if (!found || rs_mpi_contains(found))
        return otherwise;
    if (!dladdr(found, &next) || !dladdr((const void *)rs_mpi_next, &own) || next.dli_fbase == own.dli_fbase)
        return otherwise;   /* an auditor that hands out our own */
    return found;
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
    [RS_MPI_UNKNOWN] = {.flavour = RS_MPI_UNKNOWN, .passive = 1, .status_bytes = 40},
    [RS_MPI_OPENMPI] = {.flavour = RS_MPI_OPENMPI, .status_bytes = 24, .in_place = 1, .status_ignore = 0, .root = -4,
                        .topology_cart = 1, .topology_graph = 2, .threads_multiple = 3},
    [RS_MPI_MPICH] = {.flavour = RS_MPI_MPICH, .int_handles = 1, .status_bytes = 20, .in_place = -1,
                      .status_ignore = 1, .root = -3, .comm_null = 0x04000000, .comm_world = 0x44000000,
                      .comm_self = 0x44000001, .byte_type = 0x4c00010d, .null_type = 0x0c000000,
                      .topology_cart = 2, .topology_graph = 1, .threads_multiple = 3},
    [RS_MPI_ABI] = {.flavour = RS_MPI_ABI, .status_bytes = 32, .in_place = 1, .status_ignore = 0, .root = -4,
                    .comm_null = 0x100, .comm_world = 0x101, .comm_self = 0x102, .byte_type = 0x247, .null_type = 0x200,
                    .topology_cart = 211, .topology_graph = 212, .threads_multiple = 4096},
};

/* Those that keep the common ABI of MPICH, by what they say of themselves. */
static const char *const mpich_like[] = {"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation MPI"};

/* Both questions may be asked at any time, before MPI_Init too. */
static enum rs_mpi_flavour recognise(void)
{
    static char text[8192];
    int major = -1, minor = -1, length = 0;
    if (ask("PMPI_Abi_get_version", (W)&major, (W)&minor, 0, 0, 0) == 0 && major >= 1)
        return RS_MPI_ABI;
    if (variable("ompi_mpi_comm_world"))
        return RS_MPI_OPENMPI;
    if (ask("PMPI_Get_library_version", (W)text, (W)&length, 0, 0, 0) == 0)
        for (unsigned i = 0; i < sizeof mpich_like / sizeof mpich_like[0]; i++)
            if (strstr(text, mpich_like[i]))
                return RS_MPI_MPICH;
    return RS_MPI_UNKNOWN;
}

static void learn_version(struct rs_header *file)
{
    char text[8192] = "";
    int length = 0;
    if (ask("PMPI_Get_library_version", (W)text, (W)&length, 0, 0, 0) != 0)
        return;
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++)
        if (*c == '\t')
            *c = ' ';
    snprintf(file->mpi_version, sizeof file->mpi_version, "%.250s", text);
}

static rs_lock start_lock;

/* What the loaded MPI is, once and for all; a library of unknown kind is left alone. 0: not now. */
RS_COLD int rs_mpi_describe(void)
{
    if (__atomic_load_n(&rs_mpi.described, __ATOMIC_ACQUIRE))
        return 1;
    if (!rs_mpi_symbol("PMPI_Init") || !rs_lock_take(&start_lock))
        return 0;
    if (!rs_mpi.described) {
        struct rs_mpi described = flavours[recognise()];
        described.type_epoch = rs_mpi.type_epoch;
        described.group_epoch = rs_mpi.group_epoch;
        if (described.flavour == RS_MPI_OPENMPI) {
            described.comm_world = variable("ompi_mpi_comm_world");
            described.comm_self = variable("ompi_mpi_comm_self");
            described.comm_null = variable("ompi_mpi_comm_null");
            described.byte_type = variable("ompi_mpi_byte");
            described.null_type = variable("ompi_mpi_datatype_null");
        }
        rs_mpi = described;
        if (described.passive && rs_telling()) {
            learn_version(rs.file);
            rs_set_flag(RS_MPI_UNKNOWN_KIND);
        }
        __atomic_store_n(&rs_mpi.described, 1, __ATOMIC_RELEASE);
    }
    rs_lock_give(&start_lock);
    return 1;
}

/* --- sizes --- */

#define MPICH_OWN_TYPE 0x13u     /* a type that carries its size in its handle */

static uint64_t ask_type_bytes(W type)
{
    if (rs_handle(type) == rs_handle(rs_mpi.null_type) || !rs_plausible(type, RS_MPICH_TYPE))
        return 0;
    if (rs_mpi.flavour == RS_MPI_MPICH && (uint32_t)type >> 26 == MPICH_OWN_TYPE)
        return (uint32_t)type >> 8 & 0xFF;
    static void *found, *found_x;       /* looked up by whoever comes first, or by several at once */
    int64_t bytes = 0;
    int small = 0;
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
    return (uint64_t)bytes;
}

/* A type other than the one used last. unsure: it is set, and nobody asked, where the type is not known. */
RS_COLD uint64_t rs_type_bytes_slow(struct rs_thread *thread, W type, int *unsure)
{
    uint64_t epoch = rs_epoch(&rs_mpi.type_epoch), key = rs_handle(type);
    uint32_t at = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 60) % RS_TYPES;
    if (thread->types[at].type != (uint64_t)type || thread->types[at].epoch != epoch) {
        if (unsure || !rs_mpi.ready) {
            if (unsure)
                *unsure = 1;
            return 0;
        }
        thread->types[at].bytes = ask_type_bytes(type);
        thread->types[at].type = (uint64_t)type;
        thread->types[at].epoch = epoch;
    }
    thread->last_type_epoch = epoch;
    thread->last_type = (uint64_t)type;
    thread->last_type_bytes = thread->types[at].bytes;
    return thread->last_type_bytes;
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

static int rank_in_world(int *rank, int *size)
{
    W members = 0;
    if (rs_mpi.world)
        return ask("PMPI_Comm_rank", rs_mpi.comm_world, (W)rank, 0, 0, 0) == 0
               && ask("PMPI_Comm_size", rs_mpi.comm_world, (W)size, 0, 0, 0) == 0;
    if (!rs_mpi.sessions
        || ask("PMPI_Group_from_session_pset", rs_mpi.session, (W)"mpi://WORLD", (W)&members, 0, 0) != 0)
        return 0;
    ask("PMPI_Group_rank", members, (W)rank, 0, 0, 0);
    ask("PMPI_Group_size", members, (W)size, 0, 0, 0);
    ask("PMPI_Group_free", (W)&members, 0, 0, 0, 0);
    return *rank >= 0;
}

static void learn_rank(struct rs_header *file)
{
    int rank = -1, size = -1;
    if (!rank_in_world(&rank, &size))
        return;
    int mpi_launched = file->rank_source != RS_RANK_TORCHRUN && file->rank_source != RS_RANK_HOROVOD;
    if (size == 1 && file->launcher_world_size > 1) {
        if (mpi_launched)
            rs_set_flag(RS_SINGLETON);
        return;     /* the launcher's rank tells the processes apart, MPI's 0 of 1 does not */
    }
    if (size == 1 && file->rank_source == RS_RANK_TORCH && file->world_size > 1)
        return;     /* nor is it that of init_process_group: a library has imported mpi4py */
    file->rank = rank;
    file->world_size = size;
    file->rank_source = RS_RANK_MPI;
}

/* No question of the sessions model: it has no level for the whole process. */
static void learn_threads(struct rs_header *file)
{
    int level = 0;
    if (!rs_mpi.world || ask("PMPI_Query_thread", (W)&level, 0, 0, 0, 0) != 0)
        return;
    file->mpi_threads_level = (uint32_t)level;
    if (level >= rs_mpi.threads_multiple)
        rs_set_flag(RS_MPI_MULTIPLE);
}

static void start_recording(void)
{
    rs_mpi.group_epoch++;
    rs_mpi.type_epoch++;
    learn_status_layout();
    learn_rank(rs.file);
    learn_threads(rs.file);
    if (!(rs.file->flags & RS_MPI_STARTED)) {
        learn_version(rs.file);
        rs_log_open();
        rs_file_reserve(rs.file->used_bytes + 32 * RS_PAGE);
        rs_calibrate();
        rs_mpi_list_unwrapped();
        rs.file->mpi_started_ticks = rs_ticks();
        rs_set_flag(RS_MPI_STARTED);
    }
    __atomic_fetch_and(&rs.file->flags, ~(uint32_t)RS_MPI_FINALIZED, __ATOMIC_RELAXED);
    rs_set_phase(RS_PHASE_FIRST_COLLECTIVE);
    __atomic_store_n(&rs_mpi.ready, 1, __ATOMIC_RELEASE);
}

/* Intel's MPI calls itself initialised by a session, and yet MPI_COMM_WORLD is for who called MPI_Init. */
enum { BY_SESSION = 2 };

/* Once MPI can be asked: from MPI_Init's return, or from the first call where we did not see it. proven: a call has
 * succeeded that no MPI takes before it is started, so where it was not by MPI_Init there are sessions. */
RS_COLD void rs_mpi_started(int proven)
{
    int initialized = 0, finalized = 0;
    if (!rs_telling() || !rs_mpi_describe() || rs_mpi.passive || (rs_mpi.ready && rs_mpi.world) || !rs_lock_take(&start_lock))
        return;
    if (!rs_mpi.ready || !rs_mpi.world) {
        ask("PMPI_Initialized", (W)&initialized, 0, 0, 0, 0);
        ask("PMPI_Finalized", (W)&finalized, 0, 0, 0, 0);
        rs_mpi.world = initialized && !finalized && proven != BY_SESSION;
        if (rs_mpi.world || (proven && !rs_mpi.ready))
            start_recording();
    }
    rs_lock_give(&start_lock);
}

void rs_mpi_library_forget(void) { memset(&start_lock, 0, sizeof start_lock); }

void rs_mpi_session_opened(W session)
{
    if (!rs_lock_take(&start_lock))
        return;
    rs_mpi.session = session;
    __atomic_fetch_add(&rs_mpi.sessions, 1, __ATOMIC_RELAXED);
    rs_lock_give(&start_lock);
    if (!rs_mpi.ready)
        rs_mpi_started(BY_SESSION);
}

void rs_mpi_session_closed(void)
{
    if (rs_mpi.sessions)
        __atomic_fetch_sub(&rs_mpi.sessions, 1, __ATOMIC_RELAXED);
    if (!rs_mpi.sessions && !rs_mpi.world)
        __atomic_store_n(&rs_mpi.ready, 0, __ATOMIC_RELEASE);
}

void rs_mpi_finalized(void)
{
    rs_mpi.world = 0;
    if (!rs_mpi.sessions)
        __atomic_store_n(&rs_mpi.ready, 0, __ATOMIC_RELEASE);
}
