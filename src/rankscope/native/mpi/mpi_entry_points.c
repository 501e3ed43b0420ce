/* The entry points of the loaded MPI: which function a wrapper calls, which calls of PMPI_X count, the names that the
 * file has for them, and those that no wrapper stands in front of. */
#include <stdio.h>

#include "mpi_wrappers.h"

#define ENTRY(name) ENTRY_(name)
#define ENTRY_(name) "MPI_" #name,
static const char *const texts[] = {
#include "mpi_every_kind.h"
};
#undef ENTRY
#undef ENTRY_

void *rs_mpi_real[RS_MPI_FUNCTIONS];
uint16_t rs_mpi_name[RS_MPI_FUNCTIONS];

/* The library's own function, and what stands in front of it behind us: another layer's, else the same. */
static struct { void *own, *next; } entry_points[RS_MPI_FUNCTIONS];
static __thread uint8_t straight;   /* called as PMPI_X: the layers behind us are not meant */

static RS_COLD void find(enum rs_mpi_function function)
{
    char symbol[64];
    snprintf(symbol, sizeof symbol, "P%s", texts[function]);
    void *own = rs_mpi_symbol(symbol), *next = rs_mpi_next(symbol + 1, own);
    __atomic_store_n(&entry_points[function].own, own, __ATOMIC_RELAXED);
    __atomic_store_n(&entry_points[function].next, next, __ATOMIC_RELEASE);
    if (own == next && rs_mpi_describe() && !rs_mpi.passive)
        __atomic_store_n(&rs_mpi_real[function], own, __ATOMIC_RELAXED);
}

/* Where there is no other layer and the MPI is of a kind we know, this is asked once. */
RS_COLD void *rs_mpi_resolve(enum rs_mpi_function function)
{
    if (!__atomic_load_n(&entry_points[function].next, __ATOMIC_ACQUIRE))
        find(function);
    int to_own = straight;
    straight = 0;
    return to_own ? entry_points[function].own : entry_points[function].next;
}

#define SITES 1024u
static uint64_t sites[SITES];   /* places that PMPI_X is called from: address << 1 | whether they count */

static int counts(enum rs_mpi_function function, const void *caller)
{
    uint64_t *site = &sites[((uint64_t)caller * 0x9E3779B97F4A7C15u) >> 54];
    uint64_t known = __atomic_load_n(site, __ATOMIC_RELAXED);
    if (known >> 1 != (uint64_t)caller) {
        known = (uint64_t)caller << 1 | (uint64_t)rs_mpi_speaks_for_program(caller, texts[function]);
        __atomic_store_n(site, known, __ATOMIC_RELAXED);
    }
    return known & 1;
}

/* What a call of PMPI_X goes to where it is to be passed on only: from inside an intercepted call, from the MPI itself,
 * from a program that wants it unseen. Else NULL: Fortran bindings make it, or a layer in front of us. */
RS_COLD void *rs_mpi_pass_on(enum rs_mpi_function function, const void *caller)
{
    if (!__atomic_load_n(&entry_points[function].next, __ATOMIC_ACQUIRE))
        find(function);
    void *own = __atomic_load_n(&entry_points[function].own, __ATOMIC_RELAXED);
    if (rs_mpi.passive || (rs_self && rs_self->depth) || rs_mpi_contains(caller) || !counts(function, caller))
        return own;
    straight = !__atomic_load_n(&rs_mpi_real[function], __ATOMIC_RELAXED);
    return NULL;
}

RS_COLD uint16_t rs_mpi_intern(enum rs_mpi_function function)
{
    uint16_t name = rs_intern(texts[function]);
    __atomic_store_n(&rs_mpi_name[function], name, __ATOMIC_RELAXED);
    return name;
}

void rs_mpi_forget(void)
{
    memset(rs_mpi_name, 0, sizeof rs_mpi_name);
    rs_mpi_library_forget();
    rs_groups_forget();
    rs_requests_forget();
}

/* --- entry points of the loaded MPI that have no line in the table --- */

#define TABLE_SLOTS 2048u

static uint32_t slot_of(const char *text) { return rs_hash(text) % TABLE_SLOTS; }

static uint16_t wrapped[TABLE_SLOTS];

static int is_wrapped(const char *name)
{
    for (uint32_t at = slot_of(name); wrapped[at]; at = (at + 1) % TABLE_SLOTS)
        if (!strcmp(texts[wrapped[at] - 1], name))
            return 1;
    return 0;
}

/* What only looks at or changes local objects, and never waits: nothing is lost by not seeing it. */
static const char *const local_prefixes[] = {
    "Abi_", "Add_error_", "Address", "Aint_", "Alloc_mem", "Attr_", "Buffer_attach", "Buffer_iflush", "Cart_coords",
    "Cart_get", "Cart_map", "Cart_rank", "Cart_shift", "Cartdim_get", "Comm_attach_buffer", "Comm_c2f",
    "Comm_call_errhandler", "Comm_compare", "Comm_create_errhandler", "Comm_create_keyval", "Comm_delete_attr",
    "Comm_f2c", "Comm_free_keyval", "Comm_fromint", "Comm_get_", "Comm_group", "Comm_iflush_buffer",
    "Comm_remote_group", "Comm_remote_size", "Comm_set_attr", "Comm_set_errhandler", "Comm_set_name", "Comm_test_inter",
    "Comm_toint", "Conversion_fn_null", "Dims_create", "Dist_graph_neighbors", "Errhandler_", "Error_", "F_sync_reg",
    "File_c2f", "File_call_errhandler", "File_create_errhandler", "File_f2c", "File_fromint", "File_get_",
    "File_set_errhandler", "File_toint", "Finalized", "Free_mem", "Get_", "Graph_get", "Graph_map", "Graph_neighbors",
    "Graphdims_get", "Grequest_", "Group_", "Info_", "Initialized", "Is_thread_main", "Keyval_", "Message_c2f",
    "Message_f2c", "Message_fromint", "Message_toint", "Op_", "Pack", "Pcontrol", "Query_thread", "Reduce_local",
    "Register_datarep", "Remove_error_", "Request_c2f", "Request_f2c", "Request_fromint", "Request_toint",
    "Session_attach_buffer", "Session_c2f", "Session_call_errhandler", "Session_create_errhandler", "Session_f2c",
    "Session_fromint", "Session_get_", "Session_iflush_buffer", "Session_set_", "Session_toint", "Sizeof", "Status_",
    "T_", "Test_cancelled", "Topo_test", "Type_", "Unpack", "Win_c2f", "Win_call_errhandler", "Win_create_errhandler",
    "Win_create_keyval", "Win_delete_attr", "Win_f2c", "Win_free_keyval", "Win_fromint", "Win_get_", "Win_set_attr",
    "Win_set_errhandler", "Win_set_name", "Win_shared_query", "Win_toint", "Wtick", "Wtime",
};

static int is_local(const char *rest)
{
    if (rest[0] < 'A' || rest[0] > 'Z' || rest[1] < 'a' || rest[1] > 'z')
        return 1;   /* variables, constants and callbacks such as MPI_COMM_DUP_FN */
    for (unsigned i = 0; i < sizeof local_prefixes / sizeof local_prefixes[0]; i++)
        if (!strncmp(rest, local_prefixes[i], strlen(local_prefixes[i])))
            return 1;
    return 0;
}

static void note_unwrapped(const char *name)
{
    if (!strncmp(name, "MPI_", 4) && !is_local(name + 4) && !is_wrapped(name))
        rs_unwrapped_add(name);
}

/* A binding is seen where its library calls the C function of that name; one that does not is told of. */
static uint8_t needed[RS_MPI_FUNCTIONS];

static void note_needed(const char *name)
{
    name += name[0] == 'P';
    for (uint32_t at = slot_of(name); wrapped[at]; at = (at + 1) % TABLE_SLOTS)
        if (!strcmp(texts[wrapped[at] - 1], name))
            needed[wrapped[at] - 1] = 1;
}

static void note_fortran(const struct rs_object *bindings)
{
    memset(needed, 0, sizeof needed);
    rs_object_each_needed(bindings, note_needed);
    for (uint32_t i = 0; i < RS_MPI_FUNCTIONS; i++) {
        char name[64];
        uint32_t length = 0;
        for (const char *c = texts[i]; *c && length < sizeof name - 2; c++)
            name[length++] = (char)(*c >= 'A' && *c <= 'Z' ? *c + 'a' - 'A' : *c);
        memcpy(name + length, "_", 2);
        if (!needed[i] && rs_object_defines(bindings, name))
            rs_unwrapped_add(name);
    }
}

void rs_mpi_list_unwrapped(void)
{
    for (uint16_t i = 0; i < RS_MPI_FUNCTIONS; i++) {
        uint32_t at = slot_of(texts[i]);
        while (wrapped[at] && wrapped[at] != i + 1)
            at = (at + 1) % TABLE_SLOTS;
        wrapped[at] = (uint16_t)(i + 1);
    }
    rs_mpi_each_symbol(note_unwrapped);
    rs_mpi_each_fortran(note_fortran);
}
