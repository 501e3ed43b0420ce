/* Other tools in a process that uses CUDA: injection libraries that the job brings itself, loaded behind ours, and those
 * that have taken our place, as Nsight's do. CUPTI has one client: where one of them may be it, we are not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_layer.h"

#define OUR_FILE "librankscope.so"

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int count_cupti(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    *(int *)count += !strncmp(file_of(info->dlpi_name), "libcupti.so", 11);
    return 0;
}

static int loaded_cuptis(void)
{
    int count = 0;
    dl_iterate_phdr(count_cupti, &count);
    return count;
}

static void *open_theirs(const char *variable, const char **path)
{
    *path = getenv(variable);
    if (!*path || !(*path)[0] || !strcmp(file_of(*path), OUR_FILE))
        return NULL;
    return dlopen(*path, RTLD_NOW | RTLD_LOCAL);
}

/* Linked with CUPTI, or opens it as it begins; NVBit's tools patch what CUPTI would measure. */
static int wants_cupti(void *library, int cuptis_before)
{
    return dlsym(library, "cuptiGetVersion") || dlsym(library, "nvbit_at_init") || loaded_cuptis() > cuptis_before;
}

/* Calls theirs first, as CUDA would have. The note says what becomes of ours: "" where there is none of theirs. */
enum rs_chained rs_cuda_chain(int *result, char *note, size_t size)
{
    const char *path;
    int before = loaded_cuptis(), saved = errno;
    void *library = open_theirs("RANKSCOPE_CUDA_INJECTION64_PATH", &path);
    int (*theirs)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    *result = 1;
    note[0] = 0;
    errno = saved;
    if (!theirs) {
        if (path && path[0] && strcmp(file_of(path), OUR_FILE))
            snprintf(note, size, "the job's own CUDA injection library %.200s could not be loaded, or has no InitializeInjection", path);
        return RS_CHAINED_NONE;
    }
    *result = theirs();
    if (wants_cupti(library, before)) {
        snprintf(note, size, "the job's own CUDA injection library %.200s uses CUPTI, which has one client: nothing is recorded of the GPU", path);
        return RS_CHAINED_CLIENT;
    }
    snprintf(note, size, "the job's own CUDA injection library %.200s is loaded behind rankscope's", path);
    return RS_CHAINED_BESIDE;
}

/* A copy of NVTX has one listener. 1: theirs took it. */
int rs_nvtx_chain(void *get_export_table)
{
    const char *path;
    char note[512];
    static int is_told;
    int saved = errno, taken = 0;
    void *library = open_theirs("RANKSCOPE_NVTX_INJECTION64_PATH", &path);
    int (*theirs)(void *) = library ? (int (*)(void *))dlsym(library, "InitializeInjectionNvtx2") : NULL;
    errno = saved;
    if (theirs)
        taken = theirs(get_export_table);
    if (taken && !__atomic_exchange_n(&is_told, 1, __ATOMIC_RELAXED)) {
        snprintf(note, sizeof note, "the job's own NVTX injection library %.200s has the NVTX ranges: they are not recorded", path);
        rs_remark(note, 1);
    }
    return taken;
}

static int is_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    return !strncmp(file_of(info->dlpi_name), "libcuda.so", 10);
}

/* At the end: CUDA was used and has never called us, because another tool was named in our place. */
void rs_cuda_neighbour_note(int was_called)
{
    const char *path = getenv("CUDA_INJECTION64_PATH"), *aside = getenv("RANKSCOPE_CUDA_ASIDE");
    char note[512];
    static int is_told;
    int is_theirs = path && path[0] && strcmp(file_of(path), OUR_FILE);
    if ((!aside || !aside[0]) && (was_called || !is_theirs))
        return;
    if (!dl_iterate_phdr(is_driver, NULL) || __atomic_exchange_n(&is_told, 1, __ATOMIC_RELAXED))
        return;
    snprintf(note, sizeof note, "%.200s has the GPU: kernels, copies, CUDA calls and NVTX ranges are not recorded here",
             aside && aside[0] ? aside : path);
    rs_remark(note, 1);
}
