#!/bin/bash
# On a machine with a GPU and torch: AlexNet for 1, 2, 4 ranks x batch 8, 16, 32, 128 and the two-pass DDP run, all
# recorded. Leaves $OUT/gpu_matrix.tar.gz: run folders, what the programs printed, facts about the machine.
#
#   OUT=/some/folder [MATRIX_SECONDS=280] [PYTHON=python3] scripts/gpu_matrix.sh
#
# Runs for which no time is left are skipped and named. Without a GPU the programs run on the CPU, over Gloo.
set -uo pipefail
export RANKSCOPE_CUDA=exact # unless a mode is given
cd "$(dirname "$0")/.."
: "${OUT:?where to leave the results}"
PYTHON=${PYTHON:-python3}
MATRIX_SECONDS=${MATRIX_SECONDS:-280}
RUN_SECONDS=${RUN_SECONDS:-60}          # a run that takes longer has hung
ITERATIONS=${ITERATIONS:-16}
BATCHES=${BATCHES:-8 128 16 32}
RANKS=${RANKS:-1 2 4}
PARALLEL_BATCHES=${PARALLEL_BATCHES:-32 128 8 16}  # DataParallel style
PARALLEL_RANKS=${PARALLEL_RANKS:-2 4}
PASS_BATCHES=${PASS_BATCHES:-16}
PARTS=${PARTS:-ddp slow alexnet parallel}
export PYTHONPATH="$PWD/src" OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/runs" "$work/printed" "$OUT"
results="$work/results.jsonl"

say() { echo "[gpu_matrix] $*"; }

left() { echo $((MATRIX_SECONDS - SECONDS)); }

# attempt NAME COMMAND...: bounded in time; lines of JSON go to the results with the name and how it ended.
attempt() {
    local name=$1 allowed begun=$SECONDS code
    shift
    allowed=$(left)
    if ((allowed < 5)); then
        say "$name: skipped, no time left"
        echo "{\"run\": \"$name\", \"skipped\": true}" >> "$results"
        return
    fi
    ((allowed > RUN_SECONDS)) && allowed=$RUN_SECONDS
    timeout -k 5 "$allowed" "$@" > "$work/printed/$name.out" 2> "$work/printed/$name.err"
    code=$?
    say "$name: exit $code, $((SECONDS - begun)) s"
    "$PYTHON" - "$name" "$code" "$work/printed/$name.out" >> "$results" <<'PY'
import json, sys
name, code, path = sys.argv[1:]
lines = [line for line in open(path, errors="replace") if line.startswith("{")]
for line in lines or ["{}"]:
    print(json.dumps({"run": name, "exit": int(code), **json.loads(line)}))
PY
}

recorded() {
    local name=$1
    shift
    attempt "$name" "$PYTHON" -m rankscope run --out "$work/runs/$name" "$@"
}

say "building the recorder"
"$PYTHON" hatch_build.py || exit 1
{
    date -u
    uname -r
    nvidia-smi 2>&1 | head -n 15
    "$PYTHON" -c 'import torch; print("torch", torch.__version__, "cuda", torch.version.cuda); print("nccl",
        torch.cuda.nccl.version() if torch.cuda.is_available() else None); print("gpus", torch.cuda.device_count())'
} > "$work/machine.txt" 2>&1
cat "$work/machine.txt"

is_asked() { [[ " $PARTS " == *" $1 "* ]]; }

ddp=("$PYTHON" examples/train_ddp_003.py --batches "$PASS_BATCHES")
if is_asked ddp; then
    attempt ddp-bare "${ddp[@]}"
    recorded ddp "${ddp[@]}"
    recorded ddp-profiler "${ddp[@]}" --profiler "$work/printed/profiler.json"
    attempt ddp-profiler-bare "${ddp[@]}" --profiler "$work/printed/profiler-bare.json"
    RANKSCOPE_NCCL=calls recorded ddp-calls "${ddp[@]}"
fi

# One rank sleeps in each forward pass: the others wait for it inside their collectives.
if is_asked slow; then
    recorded ddp-nobody-slow "${ddp[@]}" --measured 2
    recorded ddp-slow-1 "${ddp[@]}" --measured 2 --slow-rank 1 --slow-ms 20
    recorded ddp-slow-0 "${ddp[@]}" --measured 2 --slow-rank 0 --slow-ms 50
fi

if is_asked alexnet; then
    for batch in $BATCHES; do
        for ranks in $RANKS; do
            recorded "alexnet-$ranks-$batch" "$PYTHON" examples/train_alexnet.py --ranks "$ranks" --batch "$batch" \
                --iterations "$ITERATIONS"
        done
    done
fi
if is_asked parallel; then
    for batch in $PARALLEL_BATCHES; do
        for ranks in $PARALLEL_RANKS; do
            recorded "alexnet-data-parallel-$ranks-$batch" "$PYTHON" examples/train_alexnet.py --ranks "$ranks" \
                --batch "$batch" --style data-parallel --iterations "$ITERATIONS"
        done
    done
fi

"$PYTHON" scripts/pack_runs.py "$work" "$OUT/gpu_matrix.tar.gz"
cat "$results"
say "$SECONDS s in all"
