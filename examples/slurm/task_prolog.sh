#!/bin/sh
# TaskProlog of Slurm (slurm.conf: TaskProlog=/etc/slurm/task_prolog.sh), or of one job: srun --task-prolog=task_prolog.sh …
# Records the tasks of those who ask for it, without a change to their scripts: export RANKSCOPE_RECORD=1.
# What it prints as `export NAME=value`, Slurm puts into the task's environment; it must never fail.
[ "${RANKSCOPE_RECORD:-0}" = 1 ] || exit 0
[ -z "${RANKSCOPE_DIR:-}" ] || exit 0                # recorded already
command -v rankscope >/dev/null 2>&1 || exit 0
out=${RANKSCOPE_OUT:-${SLURM_SUBMIT_DIR:-.}/rankscope-runs/job-${SLURM_JOB_ID:-0}.${SLURM_STEP_ID:-0}}
# `env` stands for the task: it is told what the task will be told. A value of several lines cannot be passed on.
rankscope run --quiet --out "$out" env 2>/dev/null |
    sed -n -E 's/^((LD_PRELOAD|LD_AUDIT|PYTHONPATH|NCCL_PROFILER_PLUGIN|CUDA_INJECTION64_PATH|NVTX_INJECTION64_PATH|RANKSCOPE_[A-Z_]+)=)/export \1/p'
exit 0
