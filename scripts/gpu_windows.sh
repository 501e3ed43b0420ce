#!/bin/bash
# gpu_windows.sh FOLDER [SECONDS]: on a machine with a GPU, programs recorded in windows, with a second of 20 ms so that
# CUPTI is attached and taken off many times, four at a time. Each must end as it does bare; exit code 1: one did not.
set -u
folder=$1 limit=${2:-100}
mkdir -p "$folder"
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src RANKSCOPE_CUDA_SECOND_NS=20000000
program=$here/scripts/gpu_programs/problems.py
: >"$folder/ends.txt"
one() {
    local name=$1 number=$2 steps=$3
    local start=(python3)
    case $name in ddp | fsdp) start=(torchrun --standalone --nproc-per-node=2) ;; esac
    timeout 120 python3 -m rankscope run --quiet --cuda windows --out "$folder/$name-$number" \
        "${start[@]}" "$program" "$name" --steps "$steps" >"$folder/$name-$number.out" 2>&1
    echo "$name $number exit $? $(tail -n 1 "$folder/$name-$number.out")" >>"$folder/ends.txt"
}
number=0
while [ $SECONDS -lt "$limit" ]; do
    number=$((number + 1))
    one launch $number 1000 &
    one none-launch $number 20000 &
    one data $number 100 &
    [ $((number % 2)) = 1 ] && { one ddp $number 200 & } || { one fsdp $number 200 & }
    wait
done
cat "$folder/ends.txt"
! grep -qv " exit 0 " "$folder/ends.txt"
