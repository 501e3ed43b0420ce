"""RPATH and RUNPATH of real shared objects, beside what the linker was told."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rankscope.formats.library_paths import LibraryPath, library_path, told_directories


def linked(folder: Path, name: str, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    made = folder / name
    command = [compiler, "-x", "c", "-", "-shared", "-fPIC", "-o", str(made), *flags]
    subprocess.run(command, input="int idle;", text=True, check=True)
    return made


def test_both_kinds_and_the_place_of_the_object(tmp_path: Path) -> None:
    new = linked(tmp_path, "new.so", "-Wl,--enable-new-dtags,-rpath,/opt/a:$ORIGIN/../b")
    assert library_path(new) == LibraryPath("RUNPATH", ("/opt/a", f"{tmp_path}/../b"))
    old = linked(tmp_path, "old.so", "-Wl,--disable-new-dtags,-rpath,/opt/c")
    assert library_path(old) == LibraryPath("RPATH", ("/opt/c",))
    told = told_directories([str(new), str(old), str(tmp_path / "gone.so")])
    assert told == {
        "/opt/a": "RUNPATH of new.so",
        str(tmp_path.parent / "b"): "RUNPATH of new.so",
        "/opt/c": "RPATH of old.so",
    }


def test_files_that_say_nothing(tmp_path: Path) -> None:
    assert library_path(linked(tmp_path, "plain.so")) is None
    whole = linked(tmp_path, "cut.so", "-Wl,-rpath,/opt/a")
    content = whole.read_bytes()
    for size in (0, 3, 20, 64, 200, 1000, len(content) // 2):
        whole.write_bytes(content[:size])
        assert library_path(whole) is None or size > 500
    assert library_path(tmp_path) is None
