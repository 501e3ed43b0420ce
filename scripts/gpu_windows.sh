#!/bin/bash
# gpu_windows.sh FOLDER [SECONDS]: on a machine with a GPU, programs recorded in windows, with a second of 10 ms and much
# time to spend, so that CUPTI is attached and taken off many times. Each must end as it does bare; exit code 1: one did not.
set -u
folder=$1 limit=${2:-100}
mkdir -p "$folder"
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src RANKSCOPE_CUDA_SECOND_NS=10000000 RANKSCOPE_CUDA_SHARE=10
programs=$here/scripts/gpu_programs
: >"$folder/ends.txt"
one() { # NAME NUMBER COMMAND…
    local name=$1 number=$2
    shift 2
    timeout 90 python3 -m rankscope run --quiet --cuda windows --out "$folder/$name-$number" "$@" \
        >"$folder/$name-$number.out" 2>&1
    echo "$name $number exit $? $(tail -n 1 "$folder/$name-$number.out")" >>"$folder/ends.txt"
}
number=0
begun=$SECONDS
while [ $((SECONDS - begun)) -lt "$limit" ]; do
    number=$((number + 1))
    one launch $number python3 "$programs/problems.py" launch --steps 1000 &
    one again $number python3 "$programs/problems.py" launch --steps 1000 &
    one graph $number python3 "$programs/problems.py" none-launch --steps 5000 &
    one threads $number python3 "$programs/threads.py" 600 &
    RANKSCOPE_CUDA_SHARE=0.05 one infers $number python3 "$programs/infers.py" 20 &
    RANKSCOPE_CUDA_SHARE=0.05 one infers-threads $number python3 "$programs/infers.py" 20 --threads &
    one ddp $number torchrun --standalone --nproc-per-node=2 "$programs/problems.py" ddp --steps 300 &
    one fsdp $number torchrun --standalone --nproc-per-node=2 "$programs/problems.py" fsdp --steps 200 &
    wait
done
cat "$folder/ends.txt"
! grep -qv " exit 0 " "$folder/ends.txt"
