/* Paths that were asked for, each with who asked and what came of it: records in the rank file, found by a table of
 * places in private memory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "calls_layer.h"
#include "recorder.h"

#define CHUNK_BYTES (1u << 20)
#define SLOTS (1u << 17)
#define MOST_RECORDS (SLOTS / 4 * 3)

static struct rs_path **places;
static struct rs_chunk *chunk;
static uint32_t records;
static volatile int busy;

int rs_paths_open(void)
{
    if (!places)
        places = rs_memory(SLOTS * sizeof *places);
    if (!chunk)
        chunk = rs_chunk_new(RS_CHUNK_PATHS, 0, 0, CHUNK_BYTES);
    return places && chunk;
}

void rs_paths_forget(void)
{
    if (places)
        memset(places, 0, SLOTS * sizeof *places);
    chunk = NULL;
    records = 0;
    busy = 0;
}

static uint8_t operation_of(const struct rs_call *call)
{
    switch (call->number) {
    case 4: case 6: case 262: case 332:
        return RS_OPERATION_STAT;
    case 2:
        return call->arguments[1] & O_DIRECTORY ? RS_OPERATION_LIST : RS_OPERATION_OPEN;
    case 257:
        return call->arguments[2] & O_DIRECTORY ? RS_OPERATION_LIST : RS_OPERATION_OPEN;
    case 21: case 269: case 439:
        return RS_OPERATION_ACCESS;
    case 89: case 267:
        return RS_OPERATION_READLINK;
    case 59: case 322:
        return RS_OPERATION_EXEC;
    }
    return 0;
}

static uint64_t size_of(const struct rs_call *call)
{
    struct stat status;
    if (call->result < 0 || rankscope_raw(SYS_fstat, call->result, (long)&status, 0, 0, 0, 0) != 0)
        return 0;
    return (uint64_t)status.st_size;
}

static struct rs_path *append(const struct rs_path *row, const char *path)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_PATHS, .chunk_bytes = CHUNK_BYTES};
    if (records >= MOST_RECORDS)
        return NULL;
    struct rs_path *made = rs_row_place(&chunk, like, row->record_bytes);
    if (!made)
        return NULL;
    *made = *row;
    memcpy(made + 1, path, row->path_bytes + 1);
    records++;
    rs_row_publish(chunk, row->record_bytes);
    return made;
}

static int same(const struct rs_path *a, const struct rs_path *b, const char *path)
{
    return a->module == b->module && a->cause == b->cause && a->operation == b->operation && a->result == b->result
        && a->path_bytes == b->path_bytes && !memcmp(a + 1, path, a->path_bytes);
}

static struct rs_path *find_or_append(const struct rs_path *row, const char *path)
{
    uint32_t at = rs_hash(path) ^ row->module * 2654435761u ^ (uint32_t)row->operation << 8 ^ row->cause;
    for (at &= SLOTS - 1; places[at]; at = (at + 1) & (SLOTS - 1))
        if (same(places[at], row, path))
            return places[at];
    return places[at] = append(row, path);
}

static void add(const struct rs_path *asked, const char *path, const struct rs_call *call)
{
    struct rs_path row = *asked, *found = NULL;
    row.path_bytes = (uint32_t)strlen(path);
    row.record_bytes = (uint32_t)(sizeof row + (row.path_bytes + 1 + 7) / 8 * 8);
    if (row.path_bytes < PATH_MAX && rs_calls_try(&busy)) {
        found = find_or_append(&row, path);
        rs_calls_done(&busy);
    }
    if (!found) {
        rs_count(&rs.file->lost_paths, 1);
        return;
    }
    int opened = row.operation == RS_OPERATION_OPEN || row.operation == RS_OPERATION_LIST;
    if (opened && !row.result && !found->size_bytes)
        found->size_bytes = size_of(call);
    rs_count(&found->times, call->taken_back ? (uint64_t)-1 : 1);
}

static void write_link(char *link, int descriptor)
{
    char digits[12], *digit = digits + sizeof digits;
    for (*--digit = 0; digit == digits + sizeof digits - 1 || descriptor > 0; descriptor /= 10)
        *--digit = (char)('0' + descriptor % 10);
    strcpy(link, "/proc/self/fd/");
    strcpy(link + strlen(link), digit);
}

/* A path that is not absolute, put behind the folder it is meant from; as it is where that cannot be done. */
static void add_relative(const struct rs_path *row, const char *path, const struct rs_call *call)
{
    static char whole[PATH_MAX];
    static volatile int whole_busy;
    char link[32] = "/proc/self/cwd";
    int folder = rs_call_about(call) == RS_ABOUT_PATH_AT ? (int)call->arguments[0] : AT_FDCWD;
    if (!rs_calls_try(&whole_busy)) {
        add(row, path, call);
        return;
    }
    if (folder >= 0)
        write_link(link, folder);
    long length = rankscope_raw(SYS_readlinkat, AT_FDCWD, (long)link, (long)whole, sizeof whole - 2, 0, 0);
    if (length > 0 && (size_t)length + strlen(path) + 2 <= sizeof whole) {
        whole[length] = '/';
        strcpy(whole + length + 1, path);
        path = whole;
    }
    add(row, path, call);
    rs_calls_done(&whole_busy);
}

void rs_path_add(uint32_t module, uint8_t cause, const struct rs_call *call)
{
    const char *path = rs_call_path(call);
    struct rs_path row = {.module = module, .cause = cause, .operation = path ? operation_of(call) : 0,
                          .result = call->result < 0 && call->result > -4096 ? (uint16_t)-call->result : 0};
    if (row.operation && path[0] == '/')
        add(&row, path, call);
    else if (row.operation)
        add_relative(&row, path, call);
}
