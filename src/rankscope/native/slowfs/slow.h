/* A read-only view of a folder that answers as slowly as asked, and counts what it was asked.
 * The kernel's FUSE protocol is spoken here directly: no library is needed, only <linux/fuse.h> and /dev/fuse. */
#ifndef RANKSCOPE_SLOW_H
#define RANKSCOPE_SLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* What a client asks a file server; the words are the kernel's. */
#define SLOW_OPERATIONS(X) \
    X(lookup) X(getattr) X(access) X(readlink) X(open) X(opendir) X(readdir) X(statfs) \
    X(read) X(release) X(releasedir) X(ioctl) X(forget) X(other)

enum slow_operation {
#define SLOW_ENUM(name) SLOW_##name,
    SLOW_OPERATIONS(SLOW_ENUM)
#undef SLOW_ENUM
    SLOW_OPERATION_COUNT
};

/* Everything up to statfs is a metadata operation: delayed by the latency and held to the shared rate. */
#define SLOW_LAST_METADATA SLOW_statfs

struct slow_counters {
    _Atomic uint64_t operations[SLOW_OPERATION_COUNT];
    _Atomic uint64_t missing;    /* lookups that found nothing */
    _Atomic uint64_t bytes;      /* returned by reads */
    _Atomic uint64_t delayed_ns; /* by which answers were held back, summed over operations */
    _Atomic uint64_t queued_ns;  /* the part of it spent waiting for the shared rate */
};

/* Lives in a file that all mounts and shims of one "server" map. */
struct slow_server {
    uint64_t magic;
    _Atomic int64_t operations_until_ns; /* CLOCK_MONOTONIC: the server is busy with metadata until then */
    _Atomic int64_t bytes_until_ns;      /* and with data until then */
    struct slow_counters total;
};

struct slow_settings {
    int64_t latency_ns;        /* of a metadata operation */
    int64_t read_latency_ns;   /* of a read */
    int64_t bytes_per_second;  /* shared; 0: unlimited */
    int64_t operations_per_second; /* shared, metadata only; 0: unlimited */
    bool cache_positive, cache_negative, page_cache;
    int64_t cache_ns;          /* how long a client may believe what it was told */
    int threads;               /* at most */
    const char *source, *mount_point, *server_file, *counters_file;
    bool foreground;
};

/* pace.c */
extern struct slow_settings slow_settings;
extern struct slow_server *slow_server;     /* never null once slow_pace_start() has returned 0 */
extern struct slow_counters *slow_counters; /* of this mount; shared with processes forked later */
int slow_pace_start(void);
struct slow_server *slow_map_server(const char *path, bool create);
int64_t slow_now_ns(void);
void slow_count(enum slow_operation operation, bool missing, uint64_t bytes);
void slow_delay(enum slow_operation operation, int64_t begin_ns, uint64_t bytes);

/* counters.c: the counters as text, one `name value` a line; returns the length. */
size_t slow_counters_text(const struct slow_counters *counters, char *text, size_t capacity);

/* nodes.c: what the kernel holds a number of. */
struct slow_node {
    struct slow_node *next;
    dev_t device;
    ino_t inode;
    uint64_t lookups; /* by the kernel, which gives them back with forget */
    uint32_t hash;
    char path[]; /* below the source folder, "." for itself */
};
extern int slow_source; /* descriptor of the source folder; paths are relative to it */
int slow_nodes_start(const char *source);
struct slow_node *slow_node_of(uint64_t id);
uint64_t slow_node_id(const char *path, const struct stat *found); /* one more lookup; 0: no memory */
void slow_node_forget(uint64_t id, uint64_t lookups);

/* session.c */
struct slow_request {
    const struct fuse_in_header *header;
    const void *body;
    size_t body_size;
    char *out; /* where the answer's body goes */
    size_t out_capacity;
    bool missing;      /* set by a handler: nothing of that name */
    bool uncounted;    /* about the counters file, not about the source */
    uint64_t bytes;    /* set by a handler: data read */
};
#define SLOW_COUNTERS_NAME ".rankscope-slowfs"
#define SLOW_COUNTERS_ID 2
#define SLOW_BIGGEST_READ (1 << 20)
void slow_serve(int device); /* returns when the file system is unmounted */

/* metadata.c and data.c: a handler returns the size of its answer's body or a negative errno */
typedef ssize_t slow_handler(struct slow_request *request);
slow_handler slow_do_init, slow_do_lookup, slow_do_getattr, slow_do_access, slow_do_readlink, slow_do_statfs;
slow_handler slow_do_open, slow_do_read, slow_do_release, slow_do_opendir, slow_do_readdir, slow_do_releasedir;
int slow_path_of(uint64_t node, const char *name, char *path, size_t capacity);

/* mounting.c */
int slow_mount(const char *mount_point, const struct stat *root); /* the device's descriptor, or -1 with a line said */
int slow_unmount(const char *mount_point);
int slow_enter_namespace(void); /* 0, or -1 with a line said */
void slow_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* supervise.c: both return an exit code */
int slow_keep_mounted(void);
int slow_run_command(char **command);

#endif
