"""Slots of tables of virtual functions: written to only where that is safe, with protections as they were."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hatch_build
from native.builds import HERE, compile_c

EXPECTED = """\
read-only: 1 r--p r--p 2
writable: 1 rw-p rw-p 2
executable: 0 r-xp r-xp 1
shared: 0 r--s r--s 1
another pointer: 0 r--p r--p 1
between two words: 0 r--p r--p 1
while it is called: 2000 of 2000, 0 wrong, r--p
"""


def test_only_private_memory_that_holds_what_is_expected(tmp_path: Path) -> None:
    headers = [*hatch_build.quoted_folders(), f"-I{hatch_build.NATIVE / 'core'}"]
    program = compile_c(tmp_path / "slots", HERE / "core" / "slot_driver.c", "-std=gnu11", "-pthread", *headers)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == EXPECTED
