/* Who this process is: what the system says of it, for the head of its rank file (rs_identify, at the end). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"
#include "recorder.h"

struct rs_process_stat rs_process_stat(void)
{
    struct rs_process_stat stat = {0, 0};
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return stat;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return stat;
    text[got] = 0;
    char *field = strrchr(text, ')');  /* the command before it may hold spaces */
    for (int number = 3; field && *field; number++) {
        field = strchr(field, ' ');
        if (!field)
            break;
        field++;
        if (number == 20)
            stat.threads = (uint32_t)strtoul(field, NULL, 10);
        if (number == 22)
            stat.start_jiffies = strtoull(field, NULL, 10);
    }
    return stat;
}

static uint64_t started_realtime_ns(uint64_t start_jiffies)
{
    uint64_t per_second = (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t age_ns = rs_clock_ns(CLOCK_BOOTTIME) - start_jiffies * (1000000000u / per_second);
    return rs_clock_ns(CLOCK_REALTIME) - age_ns;
}

static void read_command(struct rs_header *identity)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, identity->command, sizeof identity->command);
        close(fd);
        if (got == (ssize_t)sizeof identity->command && identity->command[got - 1]) {
            identity->command[got - 1] = 0;
            identity->flags |= RS_COMMAND_CUT;
        }
    }
    ssize_t length = readlink("/proc/self/exe", identity->executable, sizeof identity->executable - 1);
    if (length < 0)
        identity->executable[0] = 0;
}

void rs_read_host(char *host, size_t size)
{
    memset(host, 0, size);
    gethostname(host, size - 1);
    for (char *c = host; *c; c++)
        if (*c == '/')
            *c = '_';
    if (!host[0] || host[0] == '.')
        strcpy(host, "host");
}

uint64_t rs_boot_id(void)
{
    char text[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    uint64_t id = 0;
    for (int i = 0, digits = 0; i < got && digits < 16; i++) {
        int digit = text[i] >= 'a' ? text[i] - 'a' + 10 : text[i] - '0';
        if (text[i] == '-')
            continue;
        id = id << 4 | (uint64_t)(digit & 15);
        digits++;
    }
    return id;
}

uint64_t rs_pid_namespace(void)
{
    struct stat found;
    return rs_stat("/proc/self/ns/pid", &found) == 0 ? (uint64_t)found.st_ino : 0;
}

void rs_identify(struct rs_header *identity)
{
    cpu_set_t cpus;
    struct rs_process_stat stat = rs_process_stat();
    identity->version = RS_VERSION;
    identity->byte_order = RS_BYTE_ORDER;
    identity->header_bytes = sizeof *identity;
    identity->page_bytes = RS_PAGE;
    identity->tick_source = rs_tick_source;
    identity->start_jiffies = stat.start_jiffies;
    identity->started_realtime_ns = started_realtime_ns(stat.start_jiffies);
    identity->boot_id = rs_boot_id();
    identity->pid_namespace = rs_pid_namespace();
    identity->cpus_allowed = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 0;
    strcpy(identity->rankscope_version, RANKSCOPE_VERSION);
    rs_read_host(identity->host, sizeof identity->host);
    read_command(identity);
}
