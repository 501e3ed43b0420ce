/* rankscope-slowfs: what `rankscope slowfs` starts. Times are in nanoseconds here; units are read by the caller. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slow.h"

enum { LATENCY = 256, READ_LATENCY, BANDWIDTH, RATE, CACHE, CACHE_NS, PAGE_CACHE, THREADS, SERVER, COUNTERS, FOREGROUND };

static const struct option options[] = {
    {"latency-ns", required_argument, NULL, LATENCY},
    {"read-latency-ns", required_argument, NULL, READ_LATENCY},
    {"bytes-per-second", required_argument, NULL, BANDWIDTH},
    {"ops-per-second", required_argument, NULL, RATE},
    {"cache", required_argument, NULL, CACHE},
    {"cache-ns", required_argument, NULL, CACHE_NS},
    {"page-cache", required_argument, NULL, PAGE_CACHE},
    {"threads", required_argument, NULL, THREADS},
    {"server", required_argument, NULL, SERVER},
    {"counters", required_argument, NULL, COUNTERS},
    {"foreground", no_argument, NULL, FOREGROUND},
    {NULL, 0, NULL, 0},
};

static int64_t number(const char *text) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || end == text || value < 0) {
        slow_complain("%s: give a whole number from 0 on", text);
        exit(2);
    }
    return value;
}

static bool one_of(const char *text, const char *yes, const char *no) {
    if (strcmp(text, yes) != 0 && strcmp(text, no) != 0) {
        slow_complain("%s: give %s or %s", text, yes, no);
        exit(2);
    }
    return strcmp(text, yes) == 0;
}

static void set_cache(const char *word) {
    slow_settings.cache_negative = strcmp(word, "negative") == 0;
    slow_settings.cache_positive = slow_settings.cache_negative || one_of(word, "positive", "none");
    slow_settings.page_cache = slow_settings.cache_positive;
}

static void set_option(int option, const char *text) {
    switch (option) {
    case LATENCY: slow_settings.latency_ns = number(text); break;
    case READ_LATENCY: slow_settings.read_latency_ns = number(text); break;
    case BANDWIDTH: slow_settings.bytes_per_second = number(text); break;
    case RATE: slow_settings.operations_per_second = number(text); break;
    case CACHE: set_cache(text); break;
    case CACHE_NS: slow_settings.cache_ns = number(text); break;
    case PAGE_CACHE: slow_settings.page_cache = one_of(text, "on", "off"); break;
    case THREADS: slow_settings.threads = (int)number(text); break;
    case SERVER: slow_settings.server_file = text; break;
    case COUNTERS: slow_settings.counters_file = text; break;
    case FOREGROUND: slow_settings.foreground = true; break;
    default: exit(2);
    }
}

/* The counters of everything that shares a server file. */
static int print_server(const char *path) {
    char text[4096];
    const struct slow_server *server = slow_map_server(path, false);
    if (!server) {
        slow_complain("%s: no server file: %s", path, strerror(errno));
        return 1;
    }
    fwrite(text, 1, slow_counters_text(&server->total, text, sizeof text), stdout);
    return 0;
}

static int usage(void) {
    slow_complain("use it through `rankscope slowfs`: mount|run [options] FOLDER MOUNTPOINT [-- command], stats FILE, unmount MOUNTPOINT");
    return 2;
}

int main(int count, char **words) {
    if (count < 3) return usage();
    const char *verb = words[1];
    int option;
    optind = 2;
    while ((option = getopt_long(count, words, "+", options, NULL)) != -1) set_option(option, optarg);
    if (strcmp(verb, "stats") == 0 && count - optind == 1) return print_server(words[optind]);
    if (strcmp(verb, "unmount") == 0 && count - optind == 1) return slow_unmount(words[optind]) == 0 ? 0 : 1;
    if (count - optind < 2) return usage();
    slow_settings.source = words[optind];
    slow_settings.mount_point = words[optind + 1];
    char **command = words + optind + 2;
    if (*command && strcmp(*command, "--") == 0) command++;
    if (strcmp(verb, "mount") == 0 && !*command) return slow_keep_mounted();
    return strcmp(verb, "run") == 0 && *command ? slow_run_command(command) : usage();
}
