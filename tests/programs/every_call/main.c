/* every_call FOLDER [part…]: runs all parts (or those named) and writes FOLDER/counts.<rank>.json. */
#include "every_call.h"

int rank, size, next, prev;
MPI_Comm world;
char out[ROOM], in[ROOM];
static const char *folder;

static void with_files(void) { files(folder); }

static const struct part { const char *name; void (*run)(void); } parts[] = {
    {"windows", windows}, {"point_to_point", point_to_point}, {"large_point_to_point", large_point_to_point}, {"requests", requests},
    {"persistent", persistent}, {"partitioned", partitioned}, {"probes", probes}, {"datatypes", datatypes},
    {"collectives", collectives}, {"vector_collectives", vector_collectives}, {"in_place", in_place},
    {"neighbours", neighbours}, {"files", with_files}, {"communicators", communicators}, {"pausing", pausing},
};

static int wanted(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], name)) return 1;
    return argc <= 2;
}

/* MPI calls made from inside another MPI call: only the outer one counts. */
static int call_inside(MPI_Comm comm, int key, void *value, void *state)
{
    int ignored;
    (void)key, (void)value, (void)state;
    return MPI_Comm_size(comm, &ignored);
}

static void hang_on_finalize(void)
{
    int key;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_inside, &key, NULL);
    PMPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (argc < 2) return fprintf(stderr, "usage: every_call FOLDER [part...]\n"), 2;
    folder = argv[1];
    CALL(Init, 0, &argc, &argv);
    world = MPI_COMM_WORLD;
    CALL(Comm_rank, 0, world, &rank);
    CALL(Comm_size, 0, world, &size);
    next = (rank + 1) % size, prev = (rank + size - 1) % size;
    hang_on_finalize();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (wanted(parts[i].name, argc, argv)) {
            if (getenv("EVERY_CALL_VERBOSE")) fprintf(stderr, "%d: %s\n", rank, parts[i].name);
            parts[i].run();
            PMPI_Barrier(world);
        }
    PMPI_Get_library_version(version, &length);
    version[strcspn(version, "\n\"")] = 0;
    CALL(Finalize, 0);
    write_counts(folder, version);
    printf("rank %d of %d done\n", rank, size);
    return 0;
}
