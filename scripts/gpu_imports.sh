#!/bin/bash
# Are system calls counted in a process that uses a GPU without changing what it does? A program and a two-rank DDP run
# over NCCL, bare and with --imports calls and paths: output and exit code must be equal. About a minute. Leaves
# $OUT/gpu_imports.tar.gz: the runs, and same.txt, which says what was equal.
set -u
ALL_SECONDS=${ALL_SECONDS:-200}
. "$(dirname "$0")/gpu_parts.sh"
has_gpu || [ -n "${WITHOUT_GPU:-}" ] || { echo 'gpu_imports: skipped: no GPU that torch can use'; exit 77; }
begin
program='import torch; d = "cuda" if torch.cuda.is_available() else "cpu"; x = torch.ones(1000, 1000, device=d); print(float((x @ x).sum()))'
ddp=("$PYTHON" examples/train_ddp_003.py --one-thread --batches 4)

part program-bare 60 "$PYTHON" -c "$program"
part ddp-bare 60 "${ddp[@]}"
for mode in calls paths; do
    recorded "program-$mode" 60 --imports $mode -- "$PYTHON" -c "$program"
    recorded "ddp-$mode" 60 --imports $mode -- "${ddp[@]}"
    for what in program ddp; do
        # losses and counts are printed by the program; times of its own differ from run to run
        if cmp -s <(sed -E 's/[0-9.]+(e-?[0-9]+)?/N/g' "$WORK/$what-bare.out") <(sed -E 's/[0-9.]+(e-?[0-9]+)?/N/g' "$WORK/$what-$mode.out"); then
            echo "$what $mode: output of the same shape" >> "$WORK/same.txt"
        else
            echo "$what $mode: output DIFFERS" >> "$WORK/same.txt"
        fi
        cmp -s "$WORK/$what-bare.err" "$WORK/$what-$mode.err" || echo "$what $mode: stderr differs" >> "$WORK/same.txt"
    done
done
pack
cat "$WORK/same.txt" "$WORK/parts.txt" "$WORK/.pack"
say "$SECONDS s in all"
