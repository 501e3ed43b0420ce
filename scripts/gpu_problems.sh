#!/bin/bash
# gpu_problems.sh FOLDER: on a machine with a GPU, trainings with one problem each: recorded, and bare by turns with it
# and without it in one process. Leaves FOLDER/NAME (the run), NAME.recorded and NAME.turns; gpu_savings.py reads them.
set -u
folder=$1
mkdir -p "$folder"
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src
program=$here/scripts/gpu_programs/problems.py
for pair in launch:200 data:60 item:100 pageable:60 compute:6 ddp:60 fsdp:40; do
    name=${pair%:*} steps=${pair#*:}
    start=(python3)
    case $name in ddp | fsdp) start=(torchrun --standalone --nproc-per-node=2) ;; esac
    python3 -m rankscope run --quiet --out "$folder/$name" "${start[@]}" "$program" "$name" --steps "$steps" \
        >"$folder/$name.recorded" 2>"$folder/$name.err"
    echo "$name recorded: exit $?, $(cat "$folder/$name.recorded")"
    "${start[@]}" "$program" "$name" --steps "$steps" --turns 3 >"$folder/$name.turns" 2>>"$folder/$name.err"
    echo "$name by turns: exit $?, $(tr '\n' ' ' <"$folder/$name.turns")"
done
