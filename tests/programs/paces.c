/* Steps of known lengths: `paces FILE STEPS:MICROSECONDS ...` computes that long in each step and writes what its own
 * clock says of each, in ns, to FILE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void step(FILE *truth, void (*step_ended)(void), uint64_t length_ns)
{
    static uint64_t before;
    uint64_t began = before ? before : now_ns();
    while (now_ns() - began < length_ns)
        ;
    if (step_ended)
        step_ended();
    before = now_ns();
    fprintf(truth, "%llu\n", (unsigned long long)(before - began));
}

int main(int count, char **words)
{
    void (*step_ended)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "rankscope_step");
    FILE *truth = fopen(words[1], "w");
    if (!truth)
        return 1;
    for (int at = 2; at < count; at++) {
        unsigned long steps, microseconds;
        if (sscanf(words[at], "%lu:%lu", &steps, &microseconds) != 2)
            return 2;
        while (steps--)
            step(truth, step_ended, 1000 * microseconds);
    }
    return fclose(truth) != 0;
}
