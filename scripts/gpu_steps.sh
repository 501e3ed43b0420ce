#!/bin/bash
# gpu_steps.sh FOLDER: on a machine with a GPU, what must be shown of steps on it, in about eight minutes.
#   truth/      30 random schedules of known truth, recorded; gpu_truth_verify.py compares
#   profiler/   trainings recorded, and again under torch.profiler; gpu_profiler_parts.py compares
#   windows/    recorded in windows: a launch-bound training of a minute, and with a second of 50 ms many windows
# The runs and traces are packed into FOLDER/steps.tar.gz; all is analysed elsewhere.
set -u
folder=$1
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src:$here/scripts
export RANKSCOPE_CUDA=exact # unless a mode is given: what is compared with the truth is all that was done
program=$here/scripts/gpu_programs/problems.py
work=$(mktemp -d)
mkdir -p "$folder" "$work/truth" "$work/profiler" "$work/windows"
record() { python3 -m rankscope run --quiet "$@"; }
said() { echo "$(date +%H:%M:%S) $*"; }

said truth
timeout 120 python3 -m rankscope run --quiet --out "$work/truth/run" python3 "$here/scripts/gpu_truth.py" 30 40 \
    >"$work/truth/truth.txt" 2>"$work/truth/err"
said "truth: exit $?, $(wc -l <"$work/truth/truth.txt") lines"

for pair in launch:100 compute:20 data:40; do
    name=${pair%:*} steps=${pair#*:}
    record --out "$work/profiler/$name" python3 "$program" "$name" --steps "$steps" >"$work/profiler/$name.recorded" 2>&1
    said "$name recorded: exit $?"
    python3 "$program" "$name" --steps "$steps" --profiler "$work/profiler/$name" >"$work/profiler/$name.profiled" 2>&1
    said "$name under torch.profiler: exit $?"
done
for name in ddp fsdp; do
    record --out "$work/profiler/$name" torchrun --standalone --nproc-per-node=2 "$program" $name --steps 40 \
        >"$work/profiler/$name.recorded" 2>&1
    said "$name recorded: exit $?"
    torchrun --standalone --nproc-per-node=2 "$program" $name --steps 40 --profiler "$work/profiler/$name" \
        >"$work/profiler/$name.profiled" 2>&1
    said "$name under torch.profiler: exit $?"
done

record --cuda windows --out "$work/windows/launch" python3 "$program" launch --steps 6000 >"$work/windows/launch.out" 2>&1
said "windows, launch: exit $?, $(cat "$work/windows/launch.out")"
for name in launch none-launch item; do     # none-launch replays a CUDA graph
    RANKSCOPE_CUDA_SECOND_NS=50000000 record --cuda windows --out "$work/windows/fast-$name" \
        python3 "$program" "$name" --steps 1500 >"$work/windows/fast-$name.out" 2>&1
    said "windows of a twentieth, $name: exit $?, $(cat "$work/windows/fast-$name.out")"
done
RANKSCOPE_CUDA_SECOND_NS=50000000 record --cuda windows --out "$work/windows/fast-ddp" \
    torchrun --standalone --nproc-per-node=2 "$program" ddp --steps 400 >"$work/windows/fast-ddp.out" 2>&1
said "windows of a twentieth, ddp: exit $?"
tar -C "$work" -czf "$folder/steps.tar.gz" .
said "$(du -k "$folder/steps.tar.gz" | cut -f1) KiB"
