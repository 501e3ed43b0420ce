"""Writes every command's --help into its page docs/commands/<command>.md; with --check only says where it differs."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from markers import MissingMarkers, between, fenced, filled
from rankscope.cli import COMMANDS

DOCS = Path(__file__).resolve().parent.parent / "docs" / "commands"
SCRIPT = Path(sysconfig.get_path("scripts")) / "rankscope"
PAGES = {"index": "import_index"}  # index.md would be the front page of the folder
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHON_COLORS": "0", "TERM": "dumb", "LC_ALL": "C.UTF-8"}


@cache
def help_text(command: str) -> str:
    """What the installed command itself prints."""
    done = subprocess.run(
        [SCRIPT, command, "--help"], env={**os.environ, **PLAIN}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not done.stdout.strip():
        raise SystemExit(f"rankscope {command} --help failed: {done.stderr.strip()}")
    return fenced(done.stdout)


def same(written: str, fresh: str) -> bool:
    """Equal up to what differs between versions of Python."""
    return comparable(written) == comparable(fresh)


def comparable(text: str) -> str:
    # From 3.13 on argparse shows `-o, --out DIR` where it showed `-o DIR, --out DIR`, and so breaks lines elsewhere.
    once = re.sub(r"(-\w) (\S+), (--[\w-]+) \2", r"\1, \3 \2", text)
    return " ".join(once.split())


def page_of(command: str) -> Path:
    return DOCS / f"{PAGES.get(command, command)}.md"


def problem(command: str) -> str | None:
    """What is wrong with the page of a command, if anything."""
    page = page_of(command)
    if not page.exists():
        return f"docs/commands/{page.name} is missing"
    try:
        written = between(page.read_text(encoding="utf-8"), "help")
    except MissingMarkers as error:
        return f"docs/commands/{page.name}: {error}"
    return None if same(written, help_text(command)) else f"docs/commands/{page.name} does not show its --help"


def write(command: str) -> None:
    page = page_of(command)
    text = page.read_text(encoding="utf-8") if page.exists() else f"# rankscope {command}\n"
    if "<!-- help -->" not in text:
        text += "\n## Options\n<!-- help -->\n<!-- /help -->\n"
    page.write_text(filled(text, "help", help_text(command)), encoding="utf-8")


def check() -> int:
    with ThreadPoolExecutor(os.cpu_count()) as several:
        list(several.map(help_text, COMMANDS))
    problems = [found for command in COMMANDS if (found := problem(command))]
    for found in problems:
        print(f"{found}: run .venv/bin/python tools/docs_help.py", file=sys.stderr)
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not up to date")
    if parser.parse_args().check:
        return check()
    for command in COMMANDS:
        write(command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
