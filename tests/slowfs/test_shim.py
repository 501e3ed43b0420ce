"""The preloaded second best counts and delays what goes through libc, and says what it cannot see."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.slowfs.mount import Slowness, Unavailable, parsed, shim_environment

PROGRAM = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(5):
    os.stat(sys.argv[1] + "/file"); os.lstat("file"); os.stat("./folder/../file")
    os.path.exists("nothing")
for _ in range(3):
    os.close(os.open("file", os.O_RDONLY))
os.access("file", os.R_OK)
os.readlink("link")
os.listdir("folder")
os.stat("/")
folder = os.open("folder", os.O_RDONLY)
os.stat("../file", dir_fd=folder)
if os.fork() == 0:
    os.stat("file")
    os._exit(0)
os.wait()
"""


def shimmed(folder: Path, *options: str | Path) -> tuple[dict[str, int], str]:
    out = folder.parent / "counts"
    words = ["slowfs", "run", folder, "--method", "shim", "--counters", out, *options]
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, folder]
    done = subprocess.run(
        [sys.executable, "-m", "rankscope", *words, "--", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return parsed(out.read_text()), done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "slow"
    (made / "folder").mkdir(parents=True)
    (made / "file").write_text("x")
    (made / "link").symlink_to("file")
    return made


def test_counts_by_kind(folder: Path) -> None:
    counters, told = shimmed(folder)
    expected = {"getattr": 5 * 4 + 2, "missing": 5, "open": 4, "access": 1, "readlink": 1, "opendir": 1}
    assert {name: counters[name] for name in expected} == expected
    assert counters["metadata"] == 29
    assert "not the dynamic loader's own" in told


def test_delays_each(folder: Path) -> None:
    begin = time.monotonic()
    counters, _ = shimmed(folder, "--latency", "3ms")
    assert time.monotonic() - begin >= 29 * 0.003
    assert counters["delayed_ns"] == 29 * 3_000_000


def test_what_it_cannot_do_is_refused(folder: Path) -> None:
    with pytest.raises(Unavailable, match="knows no caches"):
        shim_environment(folder, Slowness(cache="positive", server=folder / "server"))
