/* A program that calls every function it can and writes down, at the call site, what it did.
 * PMPI_ is used for whatever must happen but is not to be counted. */
#ifndef EVERY_CALL_H
#define EVERY_CALL_H

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4 && !defined NO_LARGE_COUNTS
#define HAS_LARGE_COUNTS 1
#endif

#define NO_ROOT (-1)
#define ROOM (1 << 20)

extern int rank, size, next, prev;
extern MPI_Comm world;
extern char out[ROOM], in[ROOM];

/* One call of `name` moved `bytes`; one operation started by `name` was completed; `name` is the next collective on `group`. */
void counted(const char *name, long long bytes);
void failed(const char *name);
void completed(const char *name, long long bytes);
void logged(const char *group, const char *name, long long bytes, int root);
void pause_counting(int paused);
void write_counts(const char *folder, const char *mpi);

/* A label that no communicator, window or file had before. */
const char *fresh(const char *stem);
/* Returns when the request could be completed, without completing it. */
void until_complete(MPI_Request request);

#define CALL(function, bytes, ...) (counted("MPI_" #function, bytes), MPI_##function(__VA_ARGS__))
#define COLL(group, root, function, bytes, ...)                                                                        \
    (logged(group, "MPI_" #function, bytes, root), CALL(function, bytes, __VA_ARGS__))
/* Starts a nonblocking operation and waits for it. */
#define ASYNC(function, bytes, ...)                                                                                    \
    do {                                                                                                               \
        MPI_Request request_;                                                                                          \
        CALL(function, bytes, __VA_ARGS__, &request_);                                                                 \
        CALL(Wait, 0, &request_, MPI_STATUS_IGNORE);                                                                   \
        completed("MPI_" #function, bytes);                                                                            \
    } while (0)
#define ASYNC_COLL(group, root, function, bytes, ...)                                                                  \
    do {                                                                                                               \
        logged(group, "MPI_" #function, bytes, root);                                                                  \
        ASYNC(function, bytes, __VA_ARGS__);                                                                           \
    } while (0)
/* Makes a persistent collective, runs it and frees it. Intel MPI 2021.18 fails when some of them are run twice. */
#define PERSISTENT_COLL(group, root, function, bytes, ...) REPEATED_COLL(1, group, root, function, bytes, __VA_ARGS__)
#define REPEATED_COLL(turns, group, root, function, bytes, ...)                                                        \
    do {                                                                                                               \
        MPI_Request request_;                                                                                          \
        CALL(function, 0, __VA_ARGS__, MPI_INFO_NULL, &request_);                                                      \
        for (int turn_ = 0; turn_ < (turns); turn_++) {                                                                \
            logged(group, "MPI_" #function, bytes, root);                                                              \
            CALL(Start, bytes, &request_);                                                                             \
            CALL(Wait, 0, &request_, MPI_STATUS_IGNORE);                                                               \
            completed("MPI_" #function, bytes);                                                                        \
        }                                                                                                              \
        CALL(Request_free, 0, &request_);                                                                              \
    } while (0)

void point_to_point(void);
void large_point_to_point(void);
void requests(void);
void persistent(void);
void partitioned(void);
void probes(void);
void datatypes(void);
void collectives(void);
void vector_collectives(void);
void in_place(void);
void neighbours(void);
void windows(void);
void files(const char *folder);
void communicators(void);
void pausing(void);

#endif
