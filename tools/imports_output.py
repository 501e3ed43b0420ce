"""Puts real output of `rankscope imports` into docs/commands/imports.md: of the Python and modules that are named."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from markers import fenced, filled
from rankscope.api.import_saving import STARTER

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands" / "imports.md"
PLAIN = {"COLUMNS": "130", "NO_COLOR": "1", "TERM": "dumb"}


def output(python: str, *words: str) -> str:
    """What the command prints, with the environment's folder under a name that says nothing of this machine."""
    starter = STARTER.format(folder=str(ROOT / "src"))
    command = [sys.executable, "-c", starter, "imports", "--python", python, *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | PLAIN
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd="/")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "\n".join(neutral(line, python) for line in lines)


def neutral(line: str, python: str) -> str:
    """Shorter names in the same room, so that columns stay where they are."""
    folders = {str(Path(python).parents[1]): "/opt/env", str(Path(python).resolve().parents[1]): "/opt/python"}
    for folder, name in folders.items():
        room = " " * max(0, len(folder) - len(name))
        line = re.sub(rf"{re.escape(folder)}(\S*)", rf"{name}\1{room}", line)
    return line.rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="a Python that has the modules")
    parser.add_argument("modules", nargs="+", help="the first is shown in detail")
    parser.add_argument("--only", help="fill in only this part: one-module, several, saving or cost")
    options = parser.parse_args()
    first = options.modules[0]
    shown = {
        "one-module": ([first, "--depth", "3"], f"$ rankscope imports {first} --depth 3"),
        "several": (options.modules, f"$ rankscope imports {' '.join(options.modules)}"),
        "saving": (
            [first, "--without", "realpath", "--without", "search", "--table", "imports"],
            f"$ rankscope imports {first} --without realpath --without search",
        ),
        "cost": ([first, "--cost", "--table", "imports"], f"$ rankscope imports {first} --cost"),
    }
    page = PAGE.read_text(encoding="utf-8")
    for name, (words, line) in shown.items():
        if options.only not in (None, name):
            continue
        text = output(os.path.abspath(options.python), *words)
        if name == "saving":
            text = text.partition("\n\nImports\n")[0]
        if name == "several":
            text = text.partition(f"\n\n{first}: ")[0]
        if name == "cost":
            text = "Cost of metering" + text.partition("Cost of metering")[2]
        page = filled(page, name, fenced(f"{line}\n{text}"))
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
