#!/bin/bash
# gpu_problems.sh FOLDER [NAME…]: on a machine with a GPU, trainings with one problem each. A process first takes turns with
# the problem and without it, of which nothing is recorded, and then has it, recorded as by default, for so long that what
# recording costs is measured in it. Leaves FOLDER/NAME (the run) and NAME.turns; gpu_savings.py reads them. Seven minutes.
set -u
folder=$1
shift
mkdir -p "$folder"
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src
export RANKSCOPE_CUDA_WARM_STEPS=3  # as by default, and not before: the turns are no steps
program=$here/scripts/gpu_programs/problems.py
declare -A steps=([launch]=1500 [data]=400 [resnet]=220 [item]=600 [pageable]=700 [compute]=12 [ddp]=1100 [fsdp]=400)
declare -A turn_steps=([launch]=150 [data]=50 [resnet]=40 [item]=60 [pageable]=80 [ddp]=120 [fsdp]=50)
[ $# -gt 0 ] || set -- launch data resnet item pageable compute ddp fsdp
for name; do
    start=(python3)
    case $name in ddp | fsdp) start=(torchrun --standalone --nproc-per-node=2) ;; esac
    turns=${TURNS:-4}
    [ "$name" != compute ] || turns=0   # there is nothing to remove
    timeout 120 python3 -m rankscope run --quiet --out "$folder/$name" "${start[@]}" "$program" "$name" \
        --steps "${steps[$name]}" --turns "$turns" --turn-steps "${turn_steps[$name]:-1}" >"$folder/$name.turns" 2>"$folder/$name.err"
    echo "$name: exit $?, $(tr '\n' ' ' <"$folder/$name.turns")"
done
