"""`rankscope doctor`: say what can be recorded here, and why not."""

import sys
from pathlib import Path

from rankscope.record.diagnosis import diagnose

HELP = """\
usage: rankscope doctor [--python PYTHON] [--out DIR]

Looks at the recorder library, the machine, its clock, the Python and MPI of the job, and the folder of the run, and
says of each whether it allows recording.

options:
  --python PYTHON  the Python of the job (default: the first python3 on PATH)
  --out DIR        the folder where the run will be kept (default: rankscope-runs)
  --help           this text

Exit code: 0 a job can be recorded here, 1 something is in the way, 2 wrong usage.
"""


def run(arguments: list[str]) -> int:
    """Print the findings; 1 if one of them rules out recording."""
    given = {"--python": "python3", "--out": "rankscope-runs"}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("--help", "-h"):
            print(HELP, end="")
            return 0
        value = value if equals else (rest.pop(0) if rest else "")
        if name not in given or not value:
            print(f"rankscope doctor: cannot use {name}; see rankscope doctor --help", file=sys.stderr)
            return 2
        given[name] = value
    findings = diagnose(given["--python"], Path(given["--out"]))
    for finding in findings:
        print(f"{finding.verdict:4} {finding.subject}: {finding.text}")
    return int(any(finding.verdict == "bad" for finding in findings))
