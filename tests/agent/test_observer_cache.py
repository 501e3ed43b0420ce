"""A compiled observer is loaded only if it is what was compiled, and nobody else can have changed it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.agent import build


@pytest.fixture
def torch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A torch to look at, and a compiler that writes a library at once."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    fast = tmp_path / "cxx"
    fast.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nhead -c 4096 /dev/urandom > "$2"\n')
    fast.chmod(0o755)
    monkeypatch.setenv("CXX", str(fast))
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))
    return str(folder)


def test_what_was_compiled_is_found(torch_folder: str) -> None:
    path = build.build(torch_folder)
    assert build.find(torch_folder) == path
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def exchange(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    os.chown(path, 12345, -1)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (cut, "damaged"),
        (exchange, "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: path.chmod(0o777), "writable by other users"),
        (lambda path: path.chmod(0o775), "writable by other users"),
        (give_away, "writable by other users"),
        (lambda path: path.parent.chmod(0o777), "writable by other users"),
        (lambda path: give_away(path.parent), "writable by other users"),
        (link, "symbolic links"),
        (lambda path: path.unlink(), "not compiled yet"),
    ],
)
def test_what_may_be_another_s_is_not_loaded(torch_folder: str, spoil: Callable[[Path], None], reason: str) -> None:
    spoil(Path(build.build(torch_folder)))
    with pytest.raises(build.NotBuilt, match=reason):
        build.find(torch_folder)


def test_a_folder_for_all_where_nobody_can_take_another_s_file(torch_folder: str) -> None:
    path = build.build(torch_folder)
    os.chmod(os.path.dirname(path), 0o1777)
    assert build.find(torch_folder) == path


def test_one_that_was_killed_while_it_compiled_is_not_waited_for(torch_folder: str) -> None:
    path = build.library_path(torch_folder)
    os.makedirs(os.path.dirname(path))
    Path(path + ".compiling").write_text(f"{os.uname().nodename}.{2**22 + 1}.1\n")
    assert build.build(torch_folder) == path
    Path(path + ".compiling").write_text("another.host.12.1\n")
    with pytest.raises(build.NotBuilt, match="another process"):
        build.build(torch_folder)


def test_a_failure_is_remembered(torch_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    for _ in range(2):
        with pytest.raises(build.NotBuilt, match="/nowhere/g"):
            build.build(torch_folder)
        with pytest.raises(build.NotBuilt, match="/nowhere/g"):
            build.find(torch_folder)
