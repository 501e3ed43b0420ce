"""Writes the files that are made of others; with --check only says which are not up to date (exit code 1).

python tools/generated.py [--check]
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "rankscope"
KERNELS_H = PACKAGE / "native" / "gpu" / "communication_kernels.h"
KERNELS_PY = PACKAGE / "questions" / "gpu" / "communication_kernels.py"
WORD = re.compile(r'^RS_COMMUNICATES\("(\w+)"\)', re.MULTILINE)
KERNELS = '''\
"""Which kernels move data between ranks, by their names. Made by tools/generated.py; edit its source, not this."""

from __future__ import annotations

import re

WORDS = (
{words}
)
# at the beginning of a word: in a mangled name that is after the word's length
_ANY = re.compile("(?i)(?<![a-z])(?:" + "|".join(WORDS) + ")")
# the same in SQL, of a column `name`; copies and memsets have their names in brackets
SQL = "regexp_matches(name, '(?i)(^|[^a-z])(" + "|".join(WORDS) + ")') AND NOT starts_with(name, '[')"


def communicates(name: str) -> bool:
    """Whether a kernel of this name, mangled or not, moves data between ranks."""
    return _ANY.search(name) is not None
'''


def kernels() -> str:
    words = WORD.findall(KERNELS_H.read_text(encoding="utf-8"))
    return KERNELS.replace("{words}", "\n".join(f'    "{word}",' for word in words))


MADE = {KERNELS_PY: kernels}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = [path for path, make in MADE.items() if not path.exists() or path.read_text(encoding="utf-8") != make()]
    for path in stale:
        if not is_check:
            path.write_text(MADE[path](), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'is not up to date: run tools/generated.py' if is_check else 'written'}")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
