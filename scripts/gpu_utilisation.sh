#!/bin/bash
# gpu_utilisation.sh FOLDER: on a machine with a GPU, in less than a minute: floating-point operations of recorded steps
# against torch's own counter, its allocator against torch.cuda.memory_stats, energy against NVML read by the program.
#   KINDS="bf16 tf32 …" and SECONDS_EACH=4 choose what is trained; OPTIONS=--cpu tries it without a GPU
# The runs are packed into FOLDER/utilisation.tar.gz.
set -u
folder=$1
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src
export RANKSCOPE_CUDA=exact # unless a mode is given: what is compared with the truth is all that was done
program=$here/scripts/gpu_programs/utilisation.py
PYTHON=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"
"$PYTHON" -m rankscope doctor --prepare --python "$(command -v "$PYTHON")" | grep torch:
for kind in ${KINDS:-bf16 tf32 fp32 checkpointed conv lstm graph compiled}; do
    "$PYTHON" -m rankscope run --quiet --out "$work/$kind" "$PYTHON" "$program" "$kind" --seconds "${SECONDS_EACH:-4}" \
        ${OPTIONS:-} >"$work/$kind.out" 2>"$work/$kind.err" || tail -n 3 "$work/$kind.err"
done
"$PYTHON" "$here/scripts/gpu_utilisation_verify.py" "$work" | tee "$folder/utilisation.txt"
tar -C "$work" -czf "$folder/utilisation.tar.gz" .
