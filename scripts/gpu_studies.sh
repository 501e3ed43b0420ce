#!/bin/bash
# The GPU halves of the studies, on a machine that has a GPU and torch but not what rankscope's analysis needs.
#   scripts/gpu_studies.sh prepare FOLDER    where rankscope is installed: writes the cells of each study as a script
#   scripts/gpu_studies.sh run FOLDER        there, in the repository's root: runs them (SECONDS_LEFT bounds it), packs $OUT
#   scripts/gpu_studies.sh collect FOLDER    here again: judges what came back in FOLDER, writes the documents
set -u
STUDIES="allreduce startup ddp training"
RANKSCOPE=${RANKSCOPE:-.venv/bin/rankscope}
folder=${2:?gpu_studies.sh prepare|run|collect FOLDER}
there=(--python python3 --assume torch,numpy --timeout 60)

options() {
    case $1 in
        allreduce) echo --backends nccl --sizes 4..256M --iterations 10 --scale 1,2,4 ;;
        startup) echo --backends nccl --scale 1,2,4 ;;
        ddp) echo --backends nccl --hooks allreduce,hybrid --servers 0,1 --scale 2,4 ;;
        training) echo --device cuda --models alexnet,resnet50 --styles ddp --batches 8,128 --steps 8 --scale 1,2,4 ;;
    esac
}

case $1 in
    prepare)
        mkdir -p "$folder"
        for study in $STUDIES; do
            # shellcheck disable=SC2046
            "$RANKSCOPE" study "$study" $(options "$study") "${there[@]}" --out "$folder/$study" --script "$folder/$study.sh"
        done
        ;;
    run)
        work=${OUT:-$folder}/studies
        mkdir -p "$work"
        python3 hatch_build.py > "$work/build.txt" 2>&1 || { cat "$work/build.txt"; exit 1; }
        for study in $STUDIES; do
            timeout -k 10 "$((${SECONDS_LEFT:-240} - SECONDS))" env OUT="$work/$study" SOURCE=src sh "$folder/$study.sh"
            echo "$study: $SECONDS s so far"
            tar -C "$work" -czf "${OUT:-$folder}/gpu_$study.tar.gz" "$study"
        done
        rm -rf "$work"
        ;;
    collect)
        for study in $STUDIES; do
            [ -f "$folder/gpu_$study.tar.gz" ] || continue
            tar -C "$folder" -xzf "$folder/gpu_$study.tar.gz"
            "$RANKSCOPE" study "$study" --out "$folder/$study" --collect > /dev/null
        done
        ;;
esac
