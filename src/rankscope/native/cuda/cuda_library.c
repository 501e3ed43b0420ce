/* Which libcupti: the one in the process, the one beside its CUDA runtime, the toolkit's, the system's. Two copies
 * in one process do not work, and one of another CUDA than the program's may not either. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_layer.h"

#define PATH_BYTES 1024

struct search {
    char loaded[PATH_BYTES];    /* a libcupti in the process */
    char runtime[PATH_BYTES];   /* the folder of its CUDA runtime */
    int major;                  /* of that runtime */
};

static int note_object(struct dl_phdr_info *info, size_t size, void *memory)
{
    (void)size;
    struct search *found = memory;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    if (!strncmp(name, "libcupti.so", 11))
        snprintf(found->loaded, sizeof found->loaded, "%s", info->dlpi_name);
    if (!strncmp(name, "libcudart.so.", 13) && name != info->dlpi_name) {
        found->major = atoi(name + 13);
        snprintf(found->runtime, sizeof found->runtime, "%.*s", (int)(name - 1 - info->dlpi_name), info->dlpi_name);
    }
    return 0;
}

/* The CUDA version that the driver supports, where the program has no runtime library of its own to go by. */
static int driver_major(void)
{
    int (*version)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "cuDriverGetVersion");
    void *driver = version ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver) {
        version = (int (*)(int *))dlsym(driver, "cuDriverGetVersion");
        dlclose(driver);
    }
    int number = 0;
    return version && version(&number) == 0 ? number / 1000 : 0;
}

static void *try_open(char *path, size_t size, const char *folder, const char *below, int major)
{
    int length = major ? snprintf(path, size, "%s%slibcupti.so.%d", folder, below, major)
                       : snprintf(path, size, "%s%slibcupti.so", folder, below);
    return length < (int)size ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
}

static void *open_anywhere(const struct search *found, char *path, size_t size)
{
    static const char *const beside[] = {"/", "/../../cuda_cupti/lib/", "/../extras/CUPTI/lib64/"};
    int majors[] = {found->major ? found->major : driver_major(), 13, 12};
    void *library = NULL;
    for (unsigned i = 0; !library && found->runtime[0] && i < sizeof beside / sizeof beside[0]; i++)
        library = try_open(path, size, found->runtime, beside[i], found->major);
    const char *homes[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (unsigned i = 0; !library && i < sizeof homes / sizeof homes[0]; i++)
        if (homes[i] && homes[i][0] == '/') {
            library = try_open(path, size, homes[i], "/extras/CUPTI/lib64/", 0);
            if (!library)
                library = try_open(path, size, homes[i], "/lib64/", 0);
        }
    for (unsigned i = 0; !library && i < sizeof majors / sizeof majors[0]; i++)
        if (majors[i])
            library = try_open(path, size, "", "", majors[i]);
    return library ? library : try_open(path, size, "", "", 0);
}

static int take_functions(struct rs_cupti *cupti, void *library)
{
    int complete = 1;
#define X(name, arguments) \
    cupti->name = (int (*) arguments)dlsym(library, #name); \
    complete = complete && cupti->name;
    RS_CUPTI_NEEDED(X)
#undef X
#define X(name, arguments) cupti->name = (int (*) arguments)dlsym(library, #name);
    RS_CUPTI_OPTIONAL(X)
#undef X
    cupti->InitializeInjectionNvtx2 = (int (*)(void *))dlsym(library, "InitializeInjectionNvtx2");
    return complete;
}

/* open_it 0: only one that is in the process already. The library is never closed again. */
enum rs_found rs_cupti_find(struct rs_cupti *cupti, uint32_t *version, char *path, size_t size, int open_it)
{
    struct search found = {"", "", 0};
    const char *asked = getenv("RANKSCOPE_CUPTI");
    void *library = NULL;
    dl_iterate_phdr(note_object, &found);
    if (asked && asked[0]) {
        snprintf(path, size, "%s", asked);
        library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    } else if (found.loaded[0]) {
        snprintf(path, size, "%s", found.loaded);
        library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    } else if (open_it) {
        library = open_anywhere(&found, path, size);
    }
    *version = 0;
    if (!library)
        return RS_FOUND_NONE;
    if (!take_functions(cupti, library) || cupti->cuptiGetVersion(version) != RS_CUPTI_SUCCESS)
        return RS_FOUND_OLD;
    return *version < RS_CUPTI_OLDEST ? RS_FOUND_OLD : RS_FOUND;
}
