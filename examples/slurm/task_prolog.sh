#!/bin/sh
# TaskProlog for Slurm (slurm.conf: TaskProlog=/etc/slurm/task_prolog.sh), or for one job: srun --task-prolog=task_prolog.sh …
# Records the tasks of users who set `export RANKSCOPE_RECORD=1`, without changes to their scripts.
# Slurm puts every `export NAME=value` it prints into the task's environment; it must never fail.
[ "${RANKSCOPE_RECORD:-0}" = 1 ] || exit 0
[ -z "${RANKSCOPE_DIR:-}" ] || exit 0                # recorded already
command -v rankscope >/dev/null 2>&1 || exit 0
out=${RANKSCOPE_OUT:-${SLURM_SUBMIT_DIR:-.}/rankscope-runs/job-${SLURM_JOB_ID:-0}.${SLURM_STEP_ID:-0}}
# `env` stands in for the task and prints the environment the task would get. Multi-line values cannot be passed on.
rankscope run --quiet --out "$out" env 2>/dev/null |
    sed -n -E 's/^((LD_PRELOAD|LD_AUDIT|PYTHONPATH|NCCL_PROFILER_PLUGIN|CUDA_INJECTION64_PATH|NVTX_INJECTION64_PATH|RANKSCOPE_[A-Z_]+)=)/export \1/p'
exit 0
