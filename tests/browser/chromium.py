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


class Chromium:
    """One browser without a window, for as many pages as are asked about."""

    def __init__(self, node: str, folder: Path) -> None:
        command = [node, str(SCRIPT), str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, page: Path | str, *steps: dict[str, Any], quiet: bool = True, **more: Any) -> Told:
        """Does the steps one after the other on a page; one that complains or asks for other files fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"page": str(page), "steps": steps, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser is gone"
        told = Told(**json.loads(line))
        if quiet:
            assert (told.errors, told.console) == ([], [])
            assert isinstance(page, str) or told.requests == [page.as_uri()]
        return told

    def close(self) -> None:
        self._process.communicate(timeout=30)

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
