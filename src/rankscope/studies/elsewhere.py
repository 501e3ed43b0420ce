"""Begins a study where only its script runs: checks the folder, and writes down what was planned and where it runs.

    python -m rankscope.studies.elsewhere FOLDER < plan.json

Standard library only, as everything that it imports.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rankscope.studies.environment import environment, joined
from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json, write_json
from rankscope.studies.interpreters import Pythons

STUDY = "study.json"


def begin(folder: Path, planned: dict[str, Any]) -> None:
    before = read_json(folder / STUDY) or {}
    if before and before.get("identity") != planned["identity"]:
        raise BadStudy(f"{folder} contains another study: choose another folder, as in OUT=other sh …")
    planned["environment"] = joined(before.get("environment"), environment(Pythons(planned["asked"]["pythons"])))
    write_json(folder / STUDY, planned)


def main() -> int:
    try:
        begin(Path(sys.argv[1]), json.load(sys.stdin))
    except BadStudy as problem:
        print(f"rankscope study: {problem}", file=sys.stderr)
    except OSError as problem:
        print(f"rankscope study: {problem.filename or sys.argv[1]}: {problem.strerror}", file=sys.stderr)
    else:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
