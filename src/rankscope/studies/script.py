"""The cells of a study as a shell script, for machines where rankscope's analysis is not installed.

There it needs this package's folder, a Python with the standard library and what the cells themselves need; what it
leaves is the study's folder, from which `rankscope study NAME --out DIR --collect` makes the document.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.studies.launchers import JobStart, allowed_s, launched
from rankscope.studies.plan import Cell, Missing
from rankscope.studies.programs import HERE
from rankscope.studies.request import StudyRequest
from rankscope.studies.run_study import guarded, recorded

SOURCE = os.path.dirname(os.path.dirname(HERE))
ATTEMPT, PYTHON = "/rankscope-attempt-folder", "/rankscope-python"  # stand for what is known only there
VARIABLES = {ATTEMPT: '"$attempt"', PYTHON: '"$PYTHON"', SOURCE: '"$SOURCE"'}
HEAD = """\
#!/bin/sh
# The {count} cells of the study {name}: {title}
# Run it where the cells are to run; run it again to go on: cells that have ended are skipped (RETRY=1: only
# those that ended well). Then, where rankscope is installed: rankscope study {name} --out {out} --collect
# It needs a Python >= 3.10 and the folder of rankscope's sources: PYTHON=… SOURCE=… OUT=… sh {script}
set -u
OUT=${{OUT:-{out}}}
PYTHON=${{PYTHON:-{python}}}
SOURCE=${{SOURCE:-{source}}}
RETRY=${{RETRY:-}}
if [ ! -f "$SOURCE/rankscope/studies/guard.py" ]; then
    echo "rankscope study: $SOURCE: no sources of rankscope there; name their folder, as in SOURCE=/path/src sh $0" >&2
    exit 2
fi
SOURCE=$(cd "$SOURCE" && pwd) && mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 2
export PYTHONPATH="$SOURCE${{PYTHONPATH:+:$PYTHONPATH}}"
if command -v flock >/dev/null; then
    exec 9>>"$OUT/.lock"
    flock -n 9 || {{ echo "rankscope study: $OUT: another process is running this study" >&2; exit 2; }}
fi
"$PYTHON" -m rankscope.studies.elsewhere "$OUT" <<'END' || exit 2
{plan}
END
failed=0

# Makes the folder of a new attempt, unless the cell has ended (well, or with cell.json: as it was judged).
begin() {{
    place=$1 cell=$2 number=1
    attempts=$OUT/cells/$cell/attempt-
    if grep -qs '"state": "done"' "$OUT/cells/$cell/cell.json"; then return 1; fi
    while [ -e "$attempts$number" ]; do
        code=$(sed -n 's/.*"exit_code": \\([-0-9a-z]*\\).*/\\1/p' "$attempts$number/ended.json" 2>/dev/null)
        if [ "$code" = 0 ] && {{ [ -z "$RETRY" ] || [ ! -e "$OUT/cells/$cell/cell.json" ]; }}; then return 1; fi
        if [ -n "$code" ] && [ -z "$RETRY" ]; then failed=1; return 1; fi
        number=$((number + 1))
    done
    attempt=$attempts$number
    mkdir -p "$attempt/results" || exit 2
}}

# Says how it ended.
ended() {{
    code=$?
    [ "$code" = 125 ] && exit 2
    [ "$code" = 0 ] || failed=1
    echo "[$place/{count}] $cell: exit code $code" >&2
}}
"""
TAIL = """
echo "rankscope study: the cells are in $OUT" >&2
exit $failed
"""


def script_of(request: StudyRequest, out: str, path: str, python: str = "python3") -> str:
    """The whole script."""
    there = replace(request.wanted, elsewhere=PYTHON)
    missing: dict[str, str] = {}
    parts = []
    planned = request.cells()
    for place, cell in enumerate(planned, 1):
        job = request.study.job(cell, request.settings, request.pythons, ATTEMPT)
        if isinstance(job, Missing):
            missing[cell.name] = job.reason
            parts.append(f"# {one_line(cell.label)}: not there: {one_line(job.reason)}\n")
        else:
            rank = recorded((PYTHON, "-m", "rankscope"), job, ATTEMPT)
            start = JobStart(rank, cell.ranks, there, job, ATTEMPT, request.timeout_s)
            parts.append(cell_lines(place, cell, start))
    plan = json.dumps({**request.described(), "missing": missing}, indent=1)
    head = HEAD.format(
        count=len(planned),
        name=request.study.name,
        title=one_line(request.study.title),
        script=shlex.quote(os.path.basename(path)),
        out=shlex.quote(out),
        python=shlex.quote(python),
        source=shlex.quote(from_here(SOURCE)),
        plan=plan,
    )
    return "\n".join([head, *parts, TAIL])


def cell_lines(place: int, cell: Cell, start: JobStart) -> str:
    command, variables = launched(start)
    job = start.job
    guard = guarded(ATTEMPT, allowed_s(start), job.results)
    line = under_guard(guard, command, {**job.environment, **variables})
    return f"if begin {place} {shlex.quote(cell.name)}; then\n{before(start)}    {line}\n    ended\nfi\n"


def before(start: JobStart) -> str:
    """What is to be done once before the job, unless it is done already."""
    job = start.job
    if not job.before:
        return ""
    target = word(job.makes)
    line = under_guard(guarded(f"{ATTEMPT}/before", start.timeout_s, False), job.before, job.environment)
    folders = f'mkdir -p "$attempt"/before "$(dirname {target})"'
    return f"    if [ ! -e {target} ]; then\n        {folders}\n        {line}\n    fi\n"


def under_guard(guard: Sequence[str], command: Sequence[str], variables: Mapping[str, str]) -> str:
    set_to = [f"{name}={word(value)}" for name, value in variables.items()]
    return " ".join([*set_to, *map(word, [PYTHON, *guard]), "--parent", "$$", "--", *map(word, command)])


def word(text: str) -> str:
    """As the shell reads it, with what is known only there as variables."""
    pieces = re.split("(" + "|".join(map(re.escape, VARIABLES)) + ")", text)
    return "".join(VARIABLES.get(piece) or (shlex.quote(piece) if piece else "") for piece in pieces) or "''"


def one_line(text: str) -> str:
    return " ".join(text.split())


def from_here(path: str) -> str:
    """Relative where it is below the current folder, which is then copied as a whole."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
