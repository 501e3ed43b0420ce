/* What the program did, kept apart from the recorder: one row per function, kind and size class, and the collectives in order. */
#include "every_call.h"
#include <unistd.h>

enum { ROWS = 4096, RECORDS = 16384 };
struct row { const char *name; int kind, size_class; long long calls, bytes, errors; };
struct record { const char *group, *name; long long bytes; int root; };

static struct row rows[ROWS];
static struct record records[RECORDS];
static int row_count, record_count, paused;

static int size_class(long long bytes)
{
    int k = 0;
    if (bytes == 0) return 0;
    while ((1LL << k) < bytes) k++;
    return k + 1;
}

static struct row *row_of(const char *name, int kind, long long bytes)
{
    int class = size_class(bytes);
    for (int i = 0; i < row_count; i++)
        if (rows[i].kind == kind && rows[i].size_class == class && !strcmp(rows[i].name, name)) return &rows[i];
    rows[row_count] = (struct row){name, kind, class, 0, 0, 0};
    return &rows[row_count++];
}

static void add(const char *name, int kind, long long bytes)
{
    if (paused) return;
    struct row *row = row_of(name, kind, bytes);
    row->calls++;
    row->bytes += bytes;
}

void counted(const char *name, long long bytes) { add(name, 0, bytes); }
void completed(const char *name, long long bytes) { add(name, 1, bytes); }
void failed(const char *name) { row_of(name, 0, 0)->errors++; }
void pause_counting(int now) { paused = now; }

void logged(const char *group, const char *name, long long bytes, int root)
{
    if (group && !paused) records[record_count++] = (struct record){group, name, bytes, root};
}

const char *fresh(const char *stem)
{
    static int number;
    char label[64];
    snprintf(label, sizeof label, "%s.%d", stem, ++number);
    return strdup(label);
}

void until_complete(MPI_Request request)
{
    for (int done = 0; !done;) PMPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
}

static void write_rows(FILE *file)
{
    for (int i = 0; i < row_count; i++)
        fprintf(file, "%s\n  [\"%s\", %d, %d, %lld, %lld, %lld]", i ? "," : "", rows[i].name, rows[i].kind,
                rows[i].size_class, rows[i].calls, rows[i].bytes, rows[i].errors);
}

static void write_records(FILE *file)
{
    for (int i = 0; i < record_count; i++)
        fprintf(file, "%s\n  [\"%s\", \"%s\", %lld, %d]", i ? "," : "", records[i].group, records[i].name,
                records[i].bytes, records[i].root);
}

void write_counts(const char *folder, const char *mpi)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/counts.%d.json", folder, rank);
    FILE *file = fopen(path, "w");
    if (!file) { perror(path); exit(1); }
    fprintf(file, "{\"rank\": %d, \"size\": %d, \"pid\": %d, \"mpi\": \"%.60s\",\n \"rows\": [", rank, size, (int)getpid(), mpi);
    write_rows(file);
    fprintf(file, "],\n \"log\": [");
    write_records(file);
    fprintf(file, "]}\n");
    fclose(file);
}
