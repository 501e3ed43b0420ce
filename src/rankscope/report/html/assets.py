"""The scripts and styles of a page, each in one piece, and the policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
# each after what it imports
MODULES = (
    "elements",
    "numbers",
    "data",
    "csv",
    "colours",
    "hover",
    "table",
    "bars",
    "heat",
    "sizes",
    "top",
    "icicle",
    "charts",
    "theme",
    "main",
)
IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


@cache
def style() -> str:
    return _text("vendor/uPlot.min.css") + _text("page.css")


@cache
def scripts() -> tuple[tuple[str, str], ...]:
    """Type and text of each script element, in the order in which they run."""
    own = "".join(_module(name) for name in MODULES)
    return ("", _text("scripts/language.js")), ("", _text("vendor/uPlot.iife.min.js")), ("module", own)


def _module(name: str) -> str:
    """A module as a part of one script, because a page opened from a disk can import no file.

    What it exports is there for those after it; all else stays its own.
    """
    text = IMPORT.sub("", _text(f"scripts/{name}.js"))
    exported = ", ".join(EXPORT.findall(text))
    return f"const {{ {exported} }} = (() => {{\n{EXPORT.sub('', text)}return {{ {exported} }};\n}})();\n"


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def policy() -> str:
    """Only these very scripts and styles; no image, font, frame, form or connection from anywhere."""
    allowed = " ".join(_hash(text) for _, text in scripts())
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style())}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
