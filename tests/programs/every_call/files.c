/* MPI-IO: every rank has its own stretch of one file. */
#include "every_call.h"

enum { COUNT = 50, BYTES = COUNT * 4 };

#define ALONE(large)                                                                                                   \
    do {                                                                                                               \
        CALL(File_write_at##large, BYTES, file, at, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);                           \
        CALL(File_read_at##large, BYTES, file, at, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);                             \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        CALL(File_write##large, BYTES, file, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);                                  \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        CALL(File_read##large, BYTES, file, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);                                    \
        ASYNC(File_iwrite_at##large, BYTES, file, at, out, COUNT, MPI_INT);                                            \
        ASYNC(File_iread_at##large, BYTES, file, at, in, COUNT, MPI_INT);                                              \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        ASYNC(File_iwrite##large, BYTES, file, out, COUNT, MPI_INT);                                                   \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        ASYNC(File_iread##large, BYTES, file, in, COUNT, MPI_INT);                                                     \
    } while (0)

#define TOGETHER(large)                                                                                                \
    do {                                                                                                               \
        COLL(label, NO_ROOT, File_write_at_all##large, BYTES, file, at, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);       \
        COLL(label, NO_ROOT, File_read_at_all##large, BYTES, file, at, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);         \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        COLL(label, NO_ROOT, File_write_all##large, BYTES, file, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);              \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        COLL(label, NO_ROOT, File_read_all##large, BYTES, file, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);                \
        ASYNC_COLL(label, NO_ROOT, File_iwrite_at_all##large, BYTES, file, at, out, COUNT, MPI_INT);                   \
        ASYNC_COLL(label, NO_ROOT, File_iread_at_all##large, BYTES, file, at, in, COUNT, MPI_INT);                     \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        ASYNC_COLL(label, NO_ROOT, File_iwrite_all##large, BYTES, file, out, COUNT, MPI_INT);                          \
        CALL(File_seek, 0, file, at, MPI_SEEK_SET);                                                                    \
        ASYNC_COLL(label, NO_ROOT, File_iread_all##large, BYTES, file, in, COUNT, MPI_INT);                            \
    } while (0)

static void alone(MPI_File file, MPI_Offset at)
{
    ALONE();
#ifdef HAS_LARGE_COUNTS
    ALONE(_c);
#endif
}

static void together(MPI_File file, const char *label, MPI_Offset at)
{
    TOGETHER();
#ifdef HAS_LARGE_COUNTS
    TOGETHER(_c);
#endif
}

static void in_two_steps(MPI_File file, const char *label, MPI_Offset at)
{
    COLL(label, NO_ROOT, File_write_at_all_begin, BYTES, file, at, out, COUNT, MPI_INT);
    COLL(label, NO_ROOT, File_write_at_all_end, 0, file, out, MPI_STATUS_IGNORE);
    COLL(label, NO_ROOT, File_read_at_all_begin, BYTES, file, at, in, COUNT, MPI_INT);
    COLL(label, NO_ROOT, File_read_at_all_end, 0, file, in, MPI_STATUS_IGNORE);
    CALL(File_seek, 0, file, at, MPI_SEEK_SET);
    COLL(label, NO_ROOT, File_write_all_begin, BYTES, file, out, COUNT, MPI_INT);
    COLL(label, NO_ROOT, File_write_all_end, 0, file, out, MPI_STATUS_IGNORE);
    CALL(File_seek, 0, file, at, MPI_SEEK_SET);
    COLL(label, NO_ROOT, File_read_all_begin, BYTES, file, in, COUNT, MPI_INT);
    COLL(label, NO_ROOT, File_read_all_end, 0, file, in, MPI_STATUS_IGNORE);
}

static void shared_pointer(MPI_File file, const char *label)
{
    CALL(File_write_shared, BYTES, file, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    COLL(label, NO_ROOT, File_write_ordered, BYTES, file, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    COLL(label, NO_ROOT, File_seek_shared, 0, file, 0, MPI_SEEK_SET);
    CALL(File_read_shared, BYTES, file, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    COLL(label, NO_ROOT, File_read_ordered, BYTES, file, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);
}

void files(const char *folder)
{
    char path[4096];
    const char *label = fresh("file");
    MPI_Offset at = (MPI_Offset)rank * COUNT;
    MPI_File file;
    snprintf(path, sizeof path, "%s/every_call.data", folder);
    COLL("world", NO_ROOT, File_open, 0, world, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    COLL(label, NO_ROOT, File_set_size, 0, file, 4096);
    COLL(label, NO_ROOT, File_set_view, 0, file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    alone(file, at);
    together(file, label, at);
    in_two_steps(file, label, at);
    shared_pointer(file, label);
    COLL(label, NO_ROOT, File_sync, 0, file);
    CALL(File_set_info, 0, file, MPI_INFO_ENV);
    CALL(File_set_atomicity, 0, file, 1);
    COLL(label, NO_ROOT, File_close, 0, &file);
    PMPI_Barrier(world);
    if (rank == 0) CALL(File_delete, 0, path, MPI_INFO_NULL);
}
