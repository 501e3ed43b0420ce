#!/bin/bash
# gpu_problems.sh FOLDER [NAME…]: on a machine with a GPU, trainings with one problem each: recorded as by default, for so
# long that what recording costs is measured in them, and bare by turns with the problem and without it in one process.
# Leaves FOLDER/NAME (the run), NAME.recorded and NAME.turns; gpu_savings.py reads them. About six minutes.
set -u
folder=$1
shift
mkdir -p "$folder"
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src
program=$here/scripts/gpu_programs/problems.py
declare -A recorded=([launch]=1500 [data]=400 [item]=500 [pageable]=700 [compute]=20 [ddp]=1100 [fsdp]=500)
declare -A turns=([launch]=200 [data]=60 [item]=60 [pageable]=100 [compute]=4 [ddp]=150 [fsdp]=60)
[ $# -gt 0 ] || set -- launch data item pageable compute ddp fsdp
for name; do
    start=(python3)
    case $name in ddp | fsdp) start=(torchrun --standalone --nproc-per-node=2) ;; esac
    timeout 70 python3 -m rankscope run --quiet --out "$folder/$name" "${start[@]}" "$program" "$name" \
        --steps "${recorded[$name]}" >"$folder/$name.recorded" 2>"$folder/$name.err"
    echo "$name recorded: exit $?, $(cat "$folder/$name.recorded")"
    timeout 70 "${start[@]}" "$program" "$name" --steps "${turns[$name]}" --turns 3 >"$folder/$name.turns" 2>>"$folder/$name.err"
    echo "$name by turns: exit $?, $(tr '\n' ' ' <"$folder/$name.turns")"
done
