#!/bin/bash
# gpu_neighbours.sh FOLDER: on a machine with a GPU, torch, NCCL 2.23 or later and a C compiler, about four minutes.
# Two ranks of NCCL with a profiler plugin of somebody else: alone, and behind ours. Leaves in FOLDER
#   counts.*     what the foreign plugin has counted, which must be the same with and without us
#   times.txt    microseconds of the enqueuing call of an all-reduce, by turns: bare, theirs, ours, both
#   runs/*       what we have recorded meanwhile; crash.*, profiler.*: a plugin that crashes, torch.profiler inside
# and ends with a line for each check, and 0 where all hold.
set -u
folder=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH=$here/src NCCL_SOCKET_IFNAME=lo
failed=0
check() { if [ "$2" = "$3" ]; then echo "holds: $1"; else echo "FAILS: $1: '$2' is not '$3'"; failed=1; fi; }
"$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || { echo 'gpu_neighbours: skipped: no GPU that torch can use'; exit 77; }
version=${NCCL_PLUGIN_VERSION:-$("$python" -c 'import torch; v = torch.cuda.nccl.version(); print(6 if v >= (2, 29) else 5 if v >= (2, 28) else 4 if v >= (2, 27) else 3 if v >= (2, 26) else 2)')}
cc -O2 -shared -fPIC -DVERSION="$version" -I"$here/src/rankscope/native/nccl" "$here/tests/native/nccl/foreign_plugin.c" -o "$folder/theirs.so" || exit 2

# reduces.py under torchrun: NAME, then whether theirs and ours are there
reduces() {
    local name=$1 theirs=$2 ours=$3 count=${4:-2000}
    local -a start=(torchrun --standalone --nproc-per-node=2 "$here/scripts/gpu_programs/reduces.py" --count "$count")
    [ "$ours" = 1 ] && start=("$python" -m rankscope run --quiet --cuda off --out "$folder/runs/$name" "${start[@]}")
    rm -f "$folder/counts.$name"
    if [ "$theirs" = 1 ]; then
        NCCL_PROFILER_PLUGIN=$folder/theirs.so FOREIGN_MASK=${FOREIGN_MASK:-66} FOREIGN_OUT=$folder/counts.$name timeout 120 "${start[@]}"
    else
        timeout 120 "${start[@]}"
    fi 2>>"$folder/errors.txt"
}
counted() { sort "$folder/counts.$1" | grep -v '^state'; }     # of both ranks

for round in 1 2 3; do
    for who in bare:0:0 theirs:1:0 ours:0:1 both:1:1; do
        IFS=: read -r name theirs ours <<<"$who"
        echo "$name $round $(reduces "$name-$round" "$theirs" "$ours")" | tee -a "$folder/times.txt"
    done
    check "events of the foreign plugin, round $round" "$(counted "both-$round")" "$(counted "theirs-$round")"
    recorded=$("$python" -m rankscope report "$folder/runs/both-$round" --table nccl --format csv 2>/dev/null | awk -F, '$1 ~ /AllReduce/ || $2 ~ /AllReduce/' | head -1)
    echo "recorded in both-$round: $recorded"
done
best() { awk -v who="$1" '$1 == who && (!m || $4 < m) { m = $4 } END { print m }' "$folder/times.txt"; }
middle() { awk -v who="$1" '$1 == who { print $3 }' "$folder/times.txt" | sort -n | sed -n 2p; }
echo "least us of an enqueuing call: bare $(best bare), theirs $(best theirs), ours $(best ours), both $(best both)"
echo "median of medians: bare $(middle bare), theirs $(middle theirs), ours $(middle ours), both $(middle both)"
awk -v t="$(best theirs)" -v b="$(best both)" 'BEGIN { printf "%s: %.2f us added to an all-reduce with the foreign plugin (0.2 allowed)\n", b - t <= 0.2 ? "holds" : "FAILS", b - t }'

FOREIGN_MODE=crash reduces crash-theirs 1 0 100 >"$folder/crash.theirs"; alone=$?
FOREIGN_MODE=crash reduces crash-both 1 1 100 >"$folder/crash.both"; check 'a plugin that crashes ends the job alike' "$?" "$alone"

NCCL_PROFILER_PLUGIN=$folder/theirs.so timeout 120 "$python" "$here/scripts/gpu_programs/profiler_inside.py" >"$folder/profiler.bare" 2>>"$folder/errors.txt"
NCCL_PROFILER_PLUGIN=$folder/theirs.so timeout 120 "$python" -m rankscope run --quiet --out "$folder/runs/profiler" \
    "$python" "$here/scripts/gpu_programs/profiler_inside.py" >"$folder/profiler.both" 2>>"$folder/errors.txt"
check 'torch.profiler inside counts the same' "$(cat "$folder/profiler.both")" "$(cat "$folder/profiler.bare")"
"$python" -m rankscope report "$folder/runs/profiler" --table coverage 2>/dev/null | grep -i 'cupti\|profiler'
exit $failed
