"""`rankscope doctor`: check what can be recorded here, and why not."""

import sys
from pathlib import Path

from rankscope.record.doctor import diagnose, prepare

HELP = """\
usage: rankscope doctor [--python PYTHON] [--out DIR] [--prepare]

Checks what recording depends on, and says what to do where something is
missing: the recorder library, the machine, its clock, the C library, containers
and system call filters, the Python of the job with its MPI and torch, CUDA,
CUPTI and NCCL, and the folder of the run.

options:
  --python PYTHON  the Python of the job (default: the first python3 on PATH)
  --out DIR        the folder where runs will be stored (default:
                   rankscope-runs)
  --prepare        only compile the observer for that Python's torch, ready for
                   the first job
  --help           show this text

Each line begins with ok, note (worth knowing: something will not be recorded)
or bad (prevents recording). Exit code: 0 a job can be recorded here (--prepare:
the observer is there), 1 something prevents it, 2 wrong usage.
"""


def run(arguments: list[str]) -> int:
    """Print the findings; 1 if one of them rules out recording."""
    given = {"--python": "python3", "--out": "rankscope-runs"}
    only_prepare = False
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("--help", "-h"):
            print(HELP, end="")
            return 0
        if name == "--prepare" and not equals:
            only_prepare = True
            continue
        value = value if equals else (rest.pop(0) if rest else "")
        if name not in given or not value:
            print(f"rankscope doctor: cannot use {name}; see rankscope doctor --help", file=sys.stderr)
            return 2
        given[name] = value
    python, folder = given["--python"], Path(given["--out"])
    findings = [prepare(python)] if only_prepare else diagnose(python, folder)
    for finding in findings:
        print(f"{finding.verdict:4} {finding.subject}: {finding.text}")
    return int(any(finding.verdict == "bad" for finding in findings))
