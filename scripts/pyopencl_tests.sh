#!/bin/bash
# pyopencl's own tests, bare and recorded, compared test by test: scripts/pyopencl_tests.sh PYTHON FOLDER [FILE...]
# PYTHON has pyopencl, a driver and pytest; FOLDER is `test` of pyopencl's sources; FILEs without .py (default: all).
# The first run of a test compiles its kernels: PoCL keeps them in POCL_CACHE_DIR.
set -u
python=$(realpath -s "$1") folder=$2
shift 2
rankscope=$(realpath "$(dirname "$0")/../.venv/bin/rankscope") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$folder" || exit 2
[ $# -gt 0 ] || set -- $(basename -s .py test_*.py)
export PYOPENCL_CTX=${PYOPENCL_CTX:-0} PYOPENCL_NO_CACHE=1
different=0
for file; do
    for mode in bare recorded; do
        before=()
        [ $mode = recorded ] && before=("$rankscope" run --quiet --out "$work/$file")
        "${before[@]}" "$python" -m pytest -p no:cacheprovider -q -rA "$file.py" 2>&1 \
            | grep -E '^(PASSED|FAILED|ERROR|SKIPPED|XFAIL)' | sed 's/ - .*//' | sort >"$work/$mode"
    done
    if cmp -s "$work/bare" "$work/recorded"; then
        echo "$file: same: $(cut -d' ' -f1 "$work/bare" | sort | uniq -c | tr -s ' \n' ' ')"
    else
        different=1
        echo "$file: different"
        diff "$work/bare" "$work/recorded"
    fi
done
exit $different
