# For gpu_check.sh and gpu_cost.sh, read by `.`: parts that are bounded in time, and an archive that is written anew
# after each of them, so that what was done is kept whatever comes.
cd "$(dirname "$0")/.." || exit 1
OUT=${OUT:-.}
PYTHON=${PYTHON:-python3}
export PYTHONPATH=$PWD/src PYTHONUNBUFFERED=1
export RANKSCOPE_CUDA=exact # unless a mode is given: what is compared with the truth is all that was done
name=$(basename "$0" .sh)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$OUT"

say() { echo "[$name] $*"; }

left() { echo $((ALL_SECONDS - SECONDS)); }

pack() {
    "$PYTHON" scripts/pack_runs.py "$WORK" "$OUT/$name.new" > "$WORK/.pack" && mv "$OUT/$name.new" "$OUT/$name.tar.gz"
}

# part NAME SECONDS COMMAND...: output to NAME.out and NAME.err, how it ended to parts.txt.
part() {
    local part=$1 allowed=$2 begun=$SECONDS code
    shift 2
    (($(left) < allowed)) && allowed=$(left)
    if ((allowed < 5)); then
        echo "$part skipped: no time left" | tee -a "$WORK/parts.txt"
        return 1
    fi
    timeout -k 5 "$allowed" "$@" > "$WORK/$part.out" 2> "$WORK/$part.err"
    code=$?
    say "$(echo "$part exit $code after $((SECONDS - begun)) s" | tee -a "$WORK/parts.txt")"
    ((code == 0)) || tail -n 3 "$WORK/$part.err"
    pack
    return $code
}

# recorded NAME SECONDS [option of rankscope run...] -- COMMAND...: the run is $WORK/NAME.
recorded() {
    local run=$1 allowed=$2 options=()
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    part "$run" "$allowed" "$PYTHON" -m rankscope run --quiet --out "$WORK/$run" "${options[@]}" "$@"
}

begin() {
    "$PYTHON" hatch_build.py > "$WORK/build.txt" 2>&1 || { cat "$WORK/build.txt"; exit 1; }
    {
        date -u
        nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader
        "$PYTHON" -c 'import os, torch; print("torch", torch.__version__, "cuda", torch.version.cuda, "cores", os.cpu_count())'
        git rev-parse HEAD 2> /dev/null
    } > "$WORK/machine.txt" 2>&1
    cat "$WORK/machine.txt"
}

has_gpu() { "$PYTHON" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; }
