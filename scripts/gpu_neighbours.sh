#!/bin/bash
# NCCL with a profiler plugin of somebody else: does it count the same behind ours, what does ours add, does torch.profiler
# work inside, and does a plugin that crashes end the job as it does alone? On a machine with a GPU, torch, NCCL 2.27 or
# later and a C compiler, 90 seconds. Leaves $OUT/gpu_neighbours.tar.gz, which scripts/gpu_neighbours_verify.py reads
# (that needs numpy).
set -u
ALL_SECONDS=${ALL_SECONDS:-105}
. "$(dirname "$0")/gpu_parts.sh"
unset RANKSCOPE_CUDA
has_gpu || { echo 'gpu_neighbours: skipped: no GPU that torch can use'; exit 77; }
begin
part neighbours 100 "$PYTHON" scripts/gpu_neighbours.py "$WORK/neighbours" --seconds "${ROUNDS_SECONDS:-48}"
code=$?
cat "$WORK/neighbours.out" "$WORK/.pack"
say "$SECONDS s in all"
exit $code
