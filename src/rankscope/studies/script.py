"""The cells of a study as a shell script, for machines where rankscope's analysis is not installed.

There it needs this package's folder, a Python with the standard library and what the cells themselves need; what it
leaves is the study's folder, from which `rankscope study NAME --out DIR --collect` makes the document.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

from rankscope.studies.asked import Asked
from rankscope.studies.launchers import Start, launched
from rankscope.studies.plan import Cell, Job, Missing
from rankscope.studies.programs import HERE
from rankscope.studies.running import guarded, recorded

SOURCE = os.path.dirname(os.path.dirname(HERE))
ATTEMPT, PYTHON = "/rankscope-attempt-folder", "/rankscope-python"  # stand for what is known only there
VARIABLES = {ATTEMPT: '"$attempt"', PYTHON: '"$PYTHON"', SOURCE: '"$SOURCE"'}
HEAD = """\
#!/bin/sh
# The {count} cells of the study {name}: {title}
# Run it where the cells are to run; run it again to go on: cells that have ended are skipped (RETRY=1: those that
# ended well). Then, where rankscope is installed: rankscope study {name} --out {out} --collect
# It needs a Python >= 3.10 and the folder of rankscope's sources: PYTHON=… SOURCE=… OUT=… sh {script}
set -u
OUT=${{OUT:-{out}}}
PYTHON=${{PYTHON:-{python}}}
SOURCE=${{SOURCE:-{source}}}
RETRY=${{RETRY:-}}
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

# Makes the folder of a new attempt, unless the cell has ended.
begin() {{
    place=$1 cell=$2 number=1
    attempts=$OUT/cells/$cell/attempt-
    if grep -qs '"state": "done"' "$OUT/cells/$cell/cell.json"; then return 1; fi
    while [ -e "$attempts$number" ]; do
        code=$(sed -n 's/.*"exit_code": \\([-0-9a-z]*\\).*/\\1/p' "$attempts$number/ended.json" 2>/dev/null)
        if [ "$code" = 0 ]; then return 1; fi
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


def script_of(asked: Asked, out: str, path: str, python: str = "python3") -> str:
    """The whole script."""
    there = replace(asked.wanted, elsewhere=PYTHON)
    missing: dict[str, str] = {}
    parts = []
    planned = asked.cells()
    for place, cell in enumerate(planned, 1):
        job = asked.study.job(cell, asked.settings, asked.pythons, ATTEMPT)
        if isinstance(job, Missing):
            missing[cell.name] = job.reason
            parts.append(f"# {one_line(cell.label)}: not there: {one_line(job.reason)}\n")
        else:
            start = Start(recorded((PYTHON, "-m", "rankscope"), job, ATTEMPT), cell.ranks, there, job, ATTEMPT)
            parts.append(cell_lines(place, cell, job, start, asked.timeout_s))
    plan = json.dumps({**asked.described(), "missing": missing}, indent=1)
    head = HEAD.format(
        count=len(planned),
        name=asked.study.name,
        title=one_line(asked.study.title),
        script=shlex.quote(os.path.basename(path)),
        out=shlex.quote(out),
        python=shlex.quote(python),
        source=shlex.quote(from_here(SOURCE)),
        plan=plan,
    )
    return "\n".join([head, *parts, TAIL])


def cell_lines(place: int, cell: Cell, job: Job, start: Start, timeout_s: float) -> str:
    command, variables = launched(start)
    set_to = [f"{name}={word(value)}" for name, value in {**job.environment, **variables}.items()]
    guard = [PYTHON, *guarded(job, ATTEMPT, timeout_s)]
    words = [*set_to, *map(word, guard), "--parent", "$$", "--", *map(word, command)]
    return f"if begin {place} {shlex.quote(cell.name)}; then\n    {' '.join(words)}\n    ended\nfi\n"


def word(text: str) -> str:
    """As the shell reads it, with what is known only there as variables."""
    pieces = re.split("(" + "|".join(map(re.escape, VARIABLES)) + ")", text)
    return "".join(VARIABLES.get(piece) or (shlex.quote(piece) if piece else "") for piece in pieces) or "''"


def one_line(text: str) -> str:
    return " ".join(text.split())


def from_here(path: str) -> str:
    """Relative where it is below the current folder, which is then copied as a whole."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
