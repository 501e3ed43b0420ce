"""The oneCCL layer in front of a library with oneCCL's names: objects by value, exceptions, structures on the stack."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from native.builds import HERE, SANITIZERS, STRICT, compile_c, compiler_has, place_recorder, recording
from programs import recorded
from programs.jobs import RECORDER
from rankscope.model.records import Reading

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

SOURCES = HERE / "oneccl"
NAMES = "allreduce|reduce|broadcast|allgatherv?|alltoallv?|reduce_scatter|gather|scatter|barrier|send|recv"
COLLECTIVE = re.compile(rf"_ZN3ccl2v1\d+({NAMES})[EI]")
C_COLLECTIVE = re.compile(r"oneccl(All|Reduce|Broadcast|Gather|Scatter|Send$|Recv$)")
EXIT_CODE = 7
CALLS = {
    "ccl::allreduce": (6 + 8 + 2000, 4 * 40 + 84 + 528 + (120 + 124 + 128 + 132 + 68 + 136) + 1800 * 160, 2 + 200),
    "ccl::reduce": (4, 4 * 88, 0),
    "ccl::broadcast": (4, 4 * 12, 0),
    "ccl::allgather": (4, 4 * 28, 0),
    "ccl::allgatherv": (4, 4 * 60, 0),
    "ccl::alltoall": (4, 4 * 16 * 3 * 8, 0),
    "ccl::alltoallv": (5, 4 * 24 + 48, 0),
    "ccl::reduce_scatter": (4, 4 * 18 * 3 * 4, 0),
    "ccl::barrier": (4, 0, 0),
    "ccl::send": (2, 2 * 76, 0),
    "ccl::recv": (2, 2 * 80, 0),
    "ccl::event::wait": (47 + 1800, 0, 1),
    "ccl::event::test": (2, 0, 0),
    "ccl::group_start": (1, 0, 0),
    "ccl::group_end": (1, 0, 0),
    "onecclAllReduce": (1, 200, 0),
    "onecclReduce": (2, 408, 1),
}
COMPLETED = {
    "ccl::allreduce": 6 + 4 + 1800,
    "ccl::reduce": 4,
    "ccl::broadcast": 4,
    "ccl::allgather": 4,
    "ccl::allgatherv": 4,
    "ccl::alltoall": 4,
    "ccl::alltoallv": 5,
    "ccl::reduce_scatter": 4,
    "ccl::barrier": 4,
    "ccl::send": 2,
    "ccl::recv": 2,
    "onecclAllReduce": 1,
}


@dataclass(frozen=True)
class Standin:
    """The program, linked with the library or opening what is linked with it."""

    linked: Path
    opener: Path
    private: Path
    recorder: Path

    def run(self, folder: Path | None, private: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
        command = [self.opener, self.private] if private else [self.linked]
        environment = recording(folder or Path(), **STRICT, **more)
        if folder is None:
            del environment["RANKSCOPE_DIR"]
        else:
            environment["LD_PRELOAD"] = ":".join([*preloaded(self.linked), str(self.recorder)])
        words = [str(word) for word in command]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=110, check=False)


def preloaded(program: Path) -> list[str]:
    """A sanitizer's library wants to be the first."""
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return [line.split()[2] for line in told.splitlines() if "libasan" in line or "libtsan" in line]


@pytest.fixture(scope="session", params=["plain", "address"])
def standin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Standin:
    if not compiler_has(request.param):
        pytest.skip(f"the C compiler has no {request.param} sanitizer")
    return make(tmp_path_factory.mktemp("oneccl"), SANITIZERS[request.param])


def make(folder: Path, flags: tuple[str, ...]) -> Standin:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    first = ["g++", "-std=c++17", "-O1", "-g1", "-Wall", "-fPIC", *(flag for flag in flags if flag.startswith("-fs"))]

    def build(target: str, source: str, *more: str) -> Path:
        command = [*first, str(SOURCES / source), "-o", str(folder / target), *more, "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / target

    build("libccl.so.1", "standin_ccl.cpp", "-shared", "-Wl,-soname,libccl.so.1")
    found = (f"-L{folder}", "-l:libccl.so.1", f"-Wl,-rpath,{folder}")
    return Standin(
        build("linked", "program.cpp", "-DAS_PROGRAM", *found),
        compile_c(folder / "opener", SOURCES / "opener.c", *(flag for flag in flags if flag.startswith("-fs")), "-ldl"),
        build("private.so", "program.cpp", "-shared", *found),
        place_recorder(folder, flags),
    )


def counted(reading: Reading, kind: int) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (name, of_kind, _), values in recorded.counts_of(reading).items():
        if of_kind == kind:
            sums[name] = [one + other for one, other in zip(sums[name], values, strict=True)]
    return {name: (calls, size, errors) for name, (calls, size, errors) in sums.items()}


@pytest.fixture(scope="session", params=[False, True], ids=["linked", "private"])
def reading(standin: Standin, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """What the recorder saw of a program that has noticed nothing of it."""
    folder = tmp_path_factory.mktemp("run")
    bare, watched = standin.run(None, request.param), standin.run(folder, request.param)
    assert bare.returncode == EXIT_CODE and "checksum" in bare.stdout, bare.stderr
    assert "call: thirteen, unwound 1" in bare.stdout and "wait: wait of seventeen, unwound 1" in bare.stdout
    assert (watched.returncode, watched.stdout, watched.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    (path,) = recorded.rank_files(folder)
    return recorded.read(path)


def test_every_call_is_counted(reading: Reading) -> None:
    assert counted(reading, 0) == CALLS


def test_completions(reading: Reading) -> None:
    assert {name: calls for name, (calls, _, _) in counted(reading, 1).items()} == COMPLETED


def test_layer(reading: Reading) -> None:
    layers = reading.tally_columns["layer"]
    assert {layers.values[code] for code in layers.codes} == {"oneccl"}


def test_the_log_has_every_collective(reading: Reading) -> None:
    log = recorded.log_of(reading)
    assert len(log) == 39 + 8 + 2000 + 3
    by_group: dict[int, list[int]] = defaultdict(list)
    for record in log:
        by_group[record.group].append(record.sequence)
    assert {group: sorted(found) == list(range(1, len(found) + 1)) for group, found in by_group.items()} == {
        1: True,
        2: True,
        3: True,
        4: True,
    }
    assert [len(by_group[group]) for group in (1, 2, 3, 4)] == [2039, 8, 2, 1]
    rooted = {record.name: record.root for record in log if record.root >= 0}
    assert rooted == {"ccl::reduce": 2, "ccl::broadcast": 1, "onecclReduce": 2}
    # forgotten in a group of calls; a completion that only a stream knows
    assert [record.name for record in log if not record.ended] == ["ccl::allreduce", "onecclReduce"]


def test_communicators(reading: Reading) -> None:
    assert [(group.name.split(" ")[0], group.kind, group.size, group.my_rank) for group in reading.groups] == [
        ("oneCCL", "oneccl", 3, 1),
        ("oneCCL#2", "oneccl", 2, 1),
        ("oneCCL#3", "oneccl", 3, 1),
        ("oneCCL#4", "oneccl", 2, 1),
    ]
    assert len({group.identity for group in reading.groups}) == 4


def test_messages(reading: Reading) -> None:
    columns = reading.message_columns
    words: Any = columns["kind"]
    kinds = [words.values[code] for code in words.codes] if hasattr(words, "codes") else list(words)
    assert sorted(kinds) == ["receive", "receive", "send", "send"]
    assert sorted(columns["bytes"].tolist()) == [76, 76, 80, 80]


def test_the_rank_is_known_where_no_launcher_tells_it(reading: Reading) -> None:
    assert (reading.facts.rank, reading.facts.world_size, reading.facts.rank_source) == (1, 3, "oneCCL")


def test_identities_are_the_same_in_every_process(standin: Standin, tmp_path: Path) -> None:
    found = []
    for turn in ("one", "two"):
        (tmp_path / turn).mkdir()
        assert standin.run(tmp_path / turn, RANK="1", WORLD_SIZE="3").returncode == EXIT_CODE
        (path,) = recorded.rank_files(tmp_path / turn)
        found.append([group.identity for group in recorded.read(path).groups])
    assert found[0] == found[1]


def test_the_c_names_are_there_only_with_the_library(standin: Standin, tmp_path: Path) -> None:
    """Headers declare them weak: a program asks whether it has them."""
    source = tmp_path / "asks.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n"
        'int main(void) { printf("%d\\n", dlsym(RTLD_DEFAULT, "onecclAllReduce") != NULL); return 0; }\n'
    )
    program = compile_c(tmp_path / "asks", source, "-D_GNU_SOURCE", "-ldl")
    environment = recording(tmp_path, LD_PRELOAD=str(standin.recorder))
    if preloaded(standin.linked):
        pytest.skip("a recorder with a sanitizer cannot be loaded into a program without")
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_every_collective_of_the_real_library_has_a_wrapper() -> None:
    """All but those of sycl::buffer, of which `coverage` tells."""
    found = sorted((ROOT / ".envs" / "oneccl").glob("lib/**/libccl.so.1.0"))
    if not found:
        pytest.skip(".envs/oneccl is missing: run make env-oneccl")
    if not shutil.which("nm"):
        pytest.skip("nm is not installed (binutils)")
    wrapped = exported(RECORDER)
    for library, pattern in ((found[0], COLLECTIVE), (found[0].parent / "libccl.so.2", C_COLLECTIVE)):
        wanted = {name for name in exported(library) if pattern.match(name) and "4sycl" not in name}
        assert wanted
        assert wanted - wrapped == set()


def exported(library: Path) -> set[str]:
    told = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in told.splitlines()}
