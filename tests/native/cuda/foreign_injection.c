/* An injection library of somebody else, for CUDA and NVTX: leaves a line in $FOREIGN_OUT for each call. With
 * -DWITH_CUPTI it is a client of CUPTI. $FOREIGN_MODE: crash, refuse, nvtx. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int mode_is(const char *mode) { return getenv("FOREIGN_MODE") && !strcmp(getenv("FOREIGN_MODE"), mode); }

static void say(const char *what)
{
    FILE *out = getenv("FOREIGN_OUT") ? fopen(getenv("FOREIGN_OUT"), "a") : NULL;
    if (out) {
        fprintf(out, "%s\n", what);
        fclose(out);
    }
}

#ifdef WITH_CUPTI
int cuptiGetVersion(uint32_t *version);
int cuptiActivityRegisterCallbacks(void (*give)(uint8_t **, size_t *, size_t *),
                                   void (*take)(void *, uint32_t, uint8_t *, size_t, size_t));

static void give(uint8_t **buffer, size_t *size, size_t *most) { *buffer = malloc(*size = 4096), *most = 0; }
static void take(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    say("buffer");
    free(buffer);
}
#endif

EXPORT int InitializeInjection(void)
{
    say("cuda");
    if (mode_is("crash"))
        raise(SIGSEGV);
#ifdef WITH_CUPTI
    uint32_t version;
    cuptiGetVersion(&version);
    if (!mode_is("quiet"))
        cuptiActivityRegisterCallbacks(give, take);
#endif
    return !mode_is("refuse");
}

EXPORT int InitializeInjectionNvtx2(void *get_export_table)
{
    (void)get_export_table;
    say("nvtx");
    return mode_is("nvtx");
}
