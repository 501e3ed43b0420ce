"""Opens pages in a real Chromium and asks what is on them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT

SCRIPT = Path(__file__).with_name("ask.mjs")


@dataclass
class Told:
    """What a page did while it was asked."""

    answers: list[Any]
    console: list[str]
    errors: list[str]
    requests: list[str]
    paint_ms: float | None


@dataclass
class Chromium:
    """A browser without a window."""

    node: str
    folder: Path

    def ask(self, page: Path, *steps: dict[str, Any], quiet: bool = True, **more: Any) -> Told:
        """Does the steps one after the other on a page; one that complains or asks for other files fails."""
        questions = json.dumps({"page": str(page), "steps": steps, **more})
        done = subprocess.run(
            [self.node, str(SCRIPT), str(self.folder)],
            input=questions,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = Told(**json.loads(done.stdout))
        if quiet:
            assert (told.errors, told.console) == ([], [])
            assert told.requests == [page.as_uri()]
        return told

    def evaluate(self, page: Path, code: str, **more: Any) -> Any:
        return self.ask(page, {"do": "evaluate", "code": code}, **more).answers[0]


def find_chromium() -> Chromium:
    """The one that `make envs` installs, or a skip that says how to get it."""
    folder = Path(os.environ.get("RANKSCOPE_BROWSER_ENV") or ROOT / ".envs" / "browser")
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: the pages of the HTML report are not opened in a browser")
    if not (folder / "node_modules" / "puppeteer-core").exists():
        pytest.skip(f"{folder} is missing: run make envs")
    return Chromium(node, folder)
