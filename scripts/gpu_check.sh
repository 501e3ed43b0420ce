#!/bin/bash
# Everything that needs a GPU, on a machine with torch and a C compiler: known work, cost, a kill. Leaves one archive
# of rank files and outputs in ${OUT:-.}. Reading them needs numpy and duckdb and is done elsewhere.
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-.}
WORK=$(mktemp -d)
PYTHON=${PYTHON:-python3}
export PYTHONPATH=$PWD/src
"$PYTHON" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || {
    echo 'gpu_check: skipped: no GPU that torch can use'; exit 77; }
run() { "$PYTHON" -m rankscope run --quiet "$@"; }

"$PYTHON" hatch_build.py || exit 1
{ nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; "$PYTHON" -c 'import torch; print(torch.__version__, torch.version.cuda)'; } > "$WORK/machine.txt" 2>&1

echo '[gpu] known work'
for api in sync all none; do
    run --out "$WORK/model-$api" --cuda-api $api "$PYTHON" scripts/gpu_model.py > "$WORK/model-$api.json" 2> "$WORK/model-$api.err"
    echo "model $api: exit $?"
done

echo '[gpu] cost: bare, recorded and profiled in turn'
for round in 1 2 3; do
    "$PYTHON" scripts/gpu_loop.py bare
    run --out "$WORK/loop-none-$round" --cuda-api none "$PYTHON" scripts/gpu_loop.py none
    run --out "$WORK/loop-sync-$round" "$PYTHON" scripts/gpu_loop.py sync
    run --out "$WORK/loop-all-$round" --cuda-api all "$PYTHON" scripts/gpu_loop.py all
    "$PYTHON" scripts/gpu_loop.py profiler
done > "$WORK/cost.jsonl" 2> "$WORK/cost.err"
cat "$WORK/cost.jsonl"

echo '[gpu] recorded and torch.profiler in one process'
run --out "$WORK/aside" "$PYTHON" scripts/gpu_loop.py profiler > "$WORK/aside.json" 2> "$WORK/aside.err"
echo "aside: exit $?"

echo '[gpu] kill -9'
( exec "$PYTHON" -m rankscope run --quiet --out "$WORK/killed" "$PYTHON" scripts/gpu_loop.py forever ) \
    > "$WORK/killed.txt" 2> "$WORK/killed.err" &
job=$!
sleep 25
kill -9 $job
wait $job 2>/dev/null
tail -n 1 "$WORK/killed.txt"

# A rank file is as long as its bound, but only its used bytes say anything.
"$PYTHON" - "$WORK" <<'EOF'
import pathlib, struct, sys
for path in pathlib.Path(sys.argv[1]).glob("*/ranks/*/*.rank"):
    with open(path, "r+b") as file:
        used = struct.unpack_from("=Q", file.read(64), 32)[0]
        file.truncate(used)
EOF
tar -C "$WORK" -czf "$OUT/gpu_check.tar.gz" . && ls -l "$OUT/gpu_check.tar.gz"
rm -rf "$WORK"
