"""The recorder on aarch64, cross-compiled and run by qemu: with small and with large pages, and with MPI calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build
from native.builds import HERE
from programs import recorded
from rankscope.rank_files.read import read_rank_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
LIBC = Path("/usr/aarch64-linux-gnu")
# qemu rounds what it protects to 4 KiB whatever the page; a kernel rounds to its pages.
PROTECTS_WHOLE_PAGES = """
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <stdio.h>
int mprotect(void *from, size_t bytes, int protection)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (int)syscall(SYS_mprotect, from, (bytes + page - 1) / page * page, protection);
}
int main(void)
{
    printf("%ld\\n", sysconf(_SC_PAGESIZE));
    return 3;
}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for program in (COMPILER, EMULATOR):
        if not shutil.which(program):
            pytest.skip(f"no {program} (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user)")
    out = tmp_path_factory.mktemp("aarch64")
    done = subprocess.run(
        [sys.executable, hatch_build.__file__, "--out", str(out), "--only", "librankscope.so"],
        env={**os.environ, "CC": COMPILER},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out / "librankscope.so"


def compiled(target: Path, source: str, *flags: str) -> Path:
    command = [COMPILER, "-x", "c", "-", "-o", str(target), *flags]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def emulate(program: Path, *arguments: str, page: int = 4096, **variables: str) -> subprocess.CompletedProcess[str]:
    inside = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
    command = [EMULATOR, "-p", str(page), "-L", str(LIBC), *inside, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", [4096, 65536])
def test_loads_whatever_the_page(library: Path, tmp_path: Path, page: int) -> None:
    program = compiled(tmp_path / "program", PROTECTS_WHOLE_PAGES, "-rdynamic")
    done = emulate(program, page=page, LD_PRELOAD=str(library), RANKSCOPE_DIR=str(tmp_path), RANK="0", WORLD_SIZE="1")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{page}\n", "")
    (path,) = recorded.rank_files(tmp_path)
    facts = read_rank_file(path).facts
    assert (facts.exit_code, facts.executable.endswith("/program")) == (3, True)


@pytest.mark.parametrize("page", [4096, 65536])
def test_mpi_calls_are_counted(library: Path, tmp_path: Path, page: int) -> None:
    compiled(
        tmp_path / "libfakempi.so", (HERE / "mpi" / "fake_mpi.c").read_text(), f"-I{HERE / 'mpi'}", "-fPIC", "-shared"
    )
    linked = (
        f"-I{HERE / 'mpi'}",
        f"-L{tmp_path}",
        f"-L{library.parent}",
        "-Wl,--no-as-needed",
        "-lrankscope",
        "-lfakempi",
        "-pthread",
    )
    driver = compiled(tmp_path / "driver", (HERE / "mpi" / "driver.c").read_text(), *linked)
    searched = f"{tmp_path}:{library.parent}"
    done = emulate(driver, "requests", "500", page=page, LD_LIBRARY_PATH=searched, RANKSCOPE_DIR=str(tmp_path))
    assert done.returncode == 0, done
    (path,) = recorded.rank_files(tmp_path)
    found = recorded.calls_by_name(recorded.read(path))
    expected = {name: int(calls) for name, calls in (line.split() for line in done.stdout.splitlines())}
    assert expected and {name: found.get(name) for name in expected} == expected
