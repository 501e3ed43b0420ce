/* Which variables tell a process its rank. The innermost launcher comes first: torchrun inside srun is torchrun's. */
#include <stdlib.h>

#include "process.h"

static const struct {
    enum rs_rank_source source;
    const char *rank, *size, *local_rank, *local_rank_too;
    int size_required;  /* the rank variable alone does not prove a launch: a batch script has SLURM_PROCID=0 */
} launchers[] = {
    {RS_RANK_TORCHRUN, "RANK", "WORLD_SIZE", "LOCAL_RANK", "", 1},
    {RS_RANK_HOROVOD, "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "", 1},
    {RS_RANK_OPENMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "", 0},
    {RS_RANK_PALS, "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", 0},
    {RS_RANK_PMI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", 0},
    {RS_RANK_FLUX, "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", 0},
    {RS_RANK_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", 1},
    {RS_RANK_PMIX, "PMIX_RANK", "", "", "", 0},
};

/* A whole, non-negative number or -1. */
static int32_t number_in(const char *variable)
{
    const char *text = variable[0] ? getenv(variable) : NULL;
    if (!text || !text[0])
        return -1;
    char *end;
    long value = strtol(text, &end, 10);
    return *end || value < 0 || value > INT32_MAX ? -1 : (int32_t)value;
}

/* torchrun counts how often it has started its workers anew. */
static uint32_t attempt(enum rs_rank_source source)
{
    return source == RS_RANK_TORCHRUN ? (uint32_t)(number_in("TORCHELASTIC_RESTART_COUNT") + 1) : 0;
}

void rs_rank_from_environment(struct rs_header *identity)
{
    identity->rank = identity->local_rank = identity->world_size = -1;
    identity->attempt = 0;
    for (unsigned i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        int32_t rank = number_in(launchers[i].rank), size = number_in(launchers[i].size);
        if (rank < 0 || (launchers[i].size_required && size < 0) || (size >= 0 && rank >= size))
            continue;
        identity->rank = rank;
        identity->world_size = size;
        identity->launcher_world_size = size > 0 ? (uint32_t)size : 0;
        identity->local_rank = number_in(launchers[i].local_rank);
        if (identity->local_rank < 0)
            identity->local_rank = number_in(launchers[i].local_rank_too);
        identity->rank_source = launchers[i].source;
        identity->attempt = attempt(launchers[i].source);
        return;
    }
}
