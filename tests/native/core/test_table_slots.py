"""Slots of tables of virtual functions: written to only where that is safe, with protections as they were."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import hatch_build
from native.builds import HERE, compile_c, place_recorder, recording

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
    objects = str(hatch_build.NATIVE / "core" / "loaded_objects.c")
    program = compile_c(tmp_path / "slots", HERE / "core" / "slot_driver.c", objects, "-std=gnu11", *headers)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == EXPECTED


@pytest.mark.parametrize("called", ["called", ""])
@pytest.mark.parametrize(
    ("linked", "replaced"), [("-Wl,-z,lazy", True), ("-Wl,-z,now,-z,relro", True), ("-Wl,-Bsymbolic", False)]
)
def test_what_a_library_calls_of_its_own_is_replaced(tmp_path: Path, linked: str, replaced: bool, called: str) -> None:
    """Also where the loader has made the table read-only; a library that calls directly stays as it is."""
    flags = ("-fPIC", "-shared", "-O0", "-Wno-missing-prototypes", linked)
    library = compile_c(tmp_path / "library.so", HERE / "core" / "own_calls_library.c", *flags)
    place_recorder(tmp_path, ())
    found = (f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", "-lrankscope", "-ldl")
    program = compile_c(tmp_path / "driver", HERE / "core" / "own_calls_driver.c", *found)
    command = [program, library, called]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=recording(tmp_path))
    before = "2" if called else "0"
    assert done.stdout.split() == [before, *(["1", "1", "102"] if replaced else ["0", "0", "2"]), "0", "0"]
