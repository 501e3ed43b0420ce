#!/bin/bash
# gpu_problems.sh FOLDER: on a machine with a GPU, trainings with one problem each, recorded, and without it, bare.
# Leaves FOLDER/NAME (the run) and FOLDER/seconds.txt (NAME, with the problem bare, recorded, and without it bare).
set -u
folder=$1
mkdir -p "$folder"
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src
program=$here/scripts/gpu_programs/problems.py
seconds() { sed -n 's/^seconds \([0-9.]*\) .*/\1/p' | head -n 1; }
: >"$folder/seconds.txt"
for pair in launch:300 data:80 item:150 pageable:60 compute:10; do
    name=${pair%:*} steps=${pair#*:}
    with=$(python3 "$program" "$name" --steps "$steps" | seconds)
    under=$(python3 -m rankscope run --out "$folder/$name" python3 "$program" "$name" --steps "$steps" | seconds)
    without=$(python3 "$program" "none-$name" --steps "$steps" | seconds)
    echo "$name $steps $with $under $without" | tee -a "$folder/seconds.txt"
done
name=ddp steps=80
with=$(torchrun --standalone --nproc-per-node=2 "$program" ddp --steps $steps 2>/dev/null | seconds)
under=$(python3 -m rankscope run --out "$folder/ddp" torchrun --standalone --nproc-per-node=2 "$program" ddp --steps $steps 2>"$folder/ddp.err" | seconds)
echo "$name $steps $with $under -" | tee -a "$folder/seconds.txt"
