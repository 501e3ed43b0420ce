#!/bin/bash
# Does the recorder see what happens on a GPU? Known work, a two-rank DDP run beside torch.profiler, kills, the size of
# the file. On a machine with a GPU, torch and a C compiler, about six minutes. Leaves $OUT/gpu_check.tar.gz, which
# scripts/gpu_verify.py reads (that needs numpy). PARTS chooses: "model ddp aside kill size".
set -u
ALL_SECONDS=${ALL_SECONDS:-420}
. "$(dirname "$0")/gpu_parts.sh"
PARTS=${PARTS:-model ddp aside kill size}
SIZE_SECONDS=${SIZE_SECONDS:-90}
has_gpu || [ -n "${WITHOUT_GPU:-}" ] || { echo 'gpu_check: skipped: no GPU that torch can use'; exit 77; }
begin
is_asked() { [[ " $PARTS " == *" $1 "* ]]; }

if is_asked model; then
    for api in sync all none; do
        recorded "model-$api" 60 --cuda-api $api -- "$PYTHON" scripts/gpu_model.py
    done
    recorded model-base 60 -- "$PYTHON" scripts/gpu_model.py base
    recorded matmul 60 -- "$PYTHON" scripts/gpu_matmul.py
fi

if is_asked ddp; then
    # Recorded and profiled in turn, each in processes of its own: CUPTI has one client at a time.
    # NCCL launches by driver calls, which are all recorded from the start only with `all`.
    ddp=("$PYTHON" examples/train_ddp_003.py --one-thread --measured 3 ${DDP_OPTIONS:---batch 256})
    export OMP_NUM_THREADS=2
    for round in 1:all 2:sync; do
        recorded "ddp-2-${round%:*}" 60 --cuda-api "${round#*:}" -- "${ddp[@]}"
        part "ddp-2-profiler-${round%:*}" 60 "${ddp[@]}" --profiler "$WORK/ddp-2-profiler-${round%:*}.json"
    done
    recorded ddp-1-1 60 -- "${ddp[@]}" --ranks 1
    part ddp-1-profiler-1 60 "${ddp[@]}" --ranks 1 --profiler "$WORK/ddp-1-profiler-1.json"
fi

is_asked aside && recorded aside 60 -- "$PYTHON" scripts/gpu_loop.py aside

is_asked kill && part kill 110 "$PYTHON" scripts/gpu_kill.py "$WORK" 5
is_asked size && recorded size $((SIZE_SECONDS + 40)) -- "$PYTHON" scripts/gpu_size.py "$SIZE_SECONDS"
cat "$WORK/parts.txt" "$WORK/.pack"
say "$SECONDS s in all"
