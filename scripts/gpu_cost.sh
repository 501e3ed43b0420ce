#!/bin/bash
# What does recording a GPU cost? Launch loops and training steps bare, recorded and under torch.profiler, turn by turn,
# and the end of a process after ten million records. About six minutes. Leaves $OUT/gpu_cost.tar.gz, which
# scripts/gpu_cost_report.py reads. PARTS chooses: "launches resnet exit", and "floor": what CUPTI alone costs a launch.
set -u
ALL_SECONDS=${ALL_SECONDS:-420}
. "$(dirname "$0")/gpu_parts.sh"
PARTS=${PARTS:-launches exit resnet}
SETS=${SETS:-3}
TURN_SECONDS=${TURN_SECONDS:-25}
has_gpu || [ -n "${WITHOUT_GPU:-}" ] || { echo 'gpu_cost: skipped: no GPU that torch can use'; exit 77; }
begin
is_asked() { [[ " $PARTS " == *" $1 "* ]]; }

# turns NAME SET SECONDS ROUNDS WORKER MODE...
turns() {
    local what=$1 set=$2 seconds=$3 rounds=$4 worker=$5
    shift 5
    part "$what-$set" $((seconds + 110)) "$PYTHON" scripts/gpu_turns.py --worker "scripts/$worker" --modes "$@" \
        --seconds "$seconds" --rounds "$rounds" --set "$set" --runs "$WORK/runs-$what-$set" --out "$WORK/$what.jsonl"
}

if is_asked launches; then
    for set in $(seq "$SETS"); do
        turns launches "$set" "$TURN_SECONDS" 150 gpu_loop.py bare bare-again none sync all profiler
    done
fi
if is_asked floor; then
    for set in $(seq "$SETS"); do
        turns floor "$set" "$TURN_SECONDS" 150 gpu_floor.py bare bare-again none early-nothing early-kernels early-kinds \
            late-nothing late-kernels late-kinds
    done
fi
is_asked exit && part exit 130 "$PYTHON" scripts/gpu_exit.py measure "$WORK/exit.jsonl" "$WORK"
is_asked resnet && turns resnet 1 $((2 * TURN_SECONDS)) 1000 gpu_resnet.py bare bare-again sync profiler
rm -rf "$WORK"/runs-launches-[2-9] "$WORK"/runs-floor-*
pack
cat "$WORK/parts.txt" "$WORK/.pack"
say "$SECONDS s in all"
