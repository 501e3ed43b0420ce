"""A profiler plugin that the job brings itself: it gets, behind ours, what it would get alone, and ours records all."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import hatch_build
from native.builds import HERE, SANITIZERS, STRICT, compile_c, place_recorder, recording
from native.nccl.test_nccl import counted, read
from programs import recorded

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

VERSIONS = range(1, 7)
OPERATIONS = 60
COLLECTIVES, SENDS = 2 * 40, 2 * 20  # of two communicators: every third operation is a send
INSPECTOR = 0x42  # what NCCL Inspector asks for: collectives and channels of kernels


@dataclass(frozen=True)
class Scripted:
    """The program that calls plugins as NCCL does, and the folder with the recorder and the plugins."""

    program: Path
    folder: Path

    @property
    def recorder(self) -> Path:
        return self.folder / "librankscope.so"

    def plugin(self, version: int) -> Path:
        return self.folder / f"libforeign_v{version}.so"

    def run(self, *arguments: str | int, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.program), *map(str, arguments)]
        environment = {**recording(Path(), **STRICT), "ASAN_OPTIONS": "detect_leaks=0:exitcode=99"}
        del environment["RANKSCOPE_DIR"]
        return subprocess.run(
            command, env={**environment, **settings}, capture_output=True, text=True, timeout=110, check=False
        )

    def bare(self, out: Path, version: int, newest: int = 6, part: str = "", **settings: str) -> str:
        """What the plugin has counted without us."""
        given = {"NCCL_PROFILER_PLUGIN": str(self.plugin(version)), "FOREIGN_OUT": str(out), **settings}
        done = self.run(newest, OPERATIONS, part, **given)
        assert (done.returncode, done.stderr) == (0, "")
        return out.read_text() if out.exists() else ""

    def both(self, folder: Path, out: Path, version: int, newest: int = 6, part: str = "", **settings: str) -> str:
        """The same with the recorder in front of it, as `rankscope run` has it."""
        done = self.run(newest, OPERATIONS, part, **{**self.environment(folder, out, version), **settings})
        assert (done.returncode, done.stderr) == (0, "")
        return out.read_text() if out.exists() else ""

    def environment(self, folder: Path, out: Path, version: int) -> dict[str, str]:
        folder.mkdir(exist_ok=True)
        return {
            "NCCL_PROFILER_PLUGIN": str(self.recorder),
            "RANKSCOPE_NCCL_PROFILER_PLUGIN": str(self.plugin(version)),
            "RANKSCOPE_DIR": str(folder),
            "LD_PRELOAD": str(self.recorder),
            "FOREIGN_OUT": str(out),
        }


def make(folder: Path, sanitizer: str) -> Scripted:
    flags = SANITIZERS[sanitizer]
    headers = f"-I{hatch_build.NATIVE}/nccl"
    place_recorder(folder, flags)
    for version in (*VERSIONS, 7):
        of_five = ("-DVERSION=5", "-DncclProfiler_v5=ncclProfiler_v7") if version == 7 else (f"-DVERSION={version}",)
        source, target = HERE / "nccl" / "foreign_plugin.c", folder / f"libforeign_v{version}.so"
        compile_c(target, source, "-fPIC", "-shared", headers, *of_five, *flags)
    program = compile_c(folder / "scripted", HERE / "nccl" / "scripted_nccl.c", headers, "-rdynamic", *flags)
    return Scripted(program, folder)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Scripted:
    return make(tmp_path_factory.mktemp("neighbour"), "plain")


@pytest.fixture(scope="module", params=["address", "thread"])
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scripted:
    """With a sanitizer, whose runtime has to be loaded first: the recorder is not preloaded then."""
    from native.builds import compiler_has

    if not compiler_has(request.param):
        pytest.skip(f"the C compiler has no {request.param} sanitizer")
    return make(tmp_path_factory.mktemp(f"neighbour-{request.param}"), request.param)


def calls(folder: Path, layer: str = "nccl", kind: str = "call") -> Counter[str]:
    found = counted(read(folder))
    return Counter(
        {name: number for (of, name, how, what), number in found.items() if (of, how, what) == (layer, kind, "calls")}
    )


def expected(version: int) -> Counter[str]:
    made = Counter({"ncclAllReduce": COLLECTIVES, "ncclSend": SENDS})
    return made + Counter({"ncclAllGather": COLLECTIVES} if version == 6 else {})


@pytest.mark.parametrize("mask", [0x7FFF, INSPECTOR, 0x02, 0x40, 0x18, 0x20])
@pytest.mark.parametrize("version", VERSIONS)
def test_it_gets_the_events_that_it_would_get_alone(
    scripted: Scripted, version: int, mask: int, tmp_path: Path
) -> None:
    alone = scripted.bare(tmp_path / "alone", version, FOREIGN_MASK=str(mask))
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", version, FOREIGN_MASK=str(mask))
    assert alone == beside and f"version {version} inits 2 finals 2" in beside
    assert calls(tmp_path / "run") == expected(version)


@pytest.mark.parametrize(("version", "part"), [(1, ""), (3, ""), (5, ""), (6, ""), (5, "groups")])
def test_sanitizers_find_nothing(checked: Scripted, version: int, part: str, tmp_path: Path) -> None:
    alone = checked.bare(tmp_path / "alone", version, part=part)
    beside = checked.both(tmp_path / "run", tmp_path / "beside", version, part=part, LD_PRELOAD="")
    assert alone == beside
    made = calls(tmp_path / "run")
    assert made.total() == 2 * OPERATIONS if part else made == expected(version)


@pytest.mark.parametrize("mode", ["none", "no_collectives", "same", "no_context"])
@pytest.mark.parametrize("version", [2, 4, 6])
def test_whatever_handles_it_returns(scripted: Scripted, version: int, mode: str, tmp_path: Path) -> None:
    """None at all, none for collectives, one and the same for everything, no context."""
    alone = scripted.bare(tmp_path / "alone", version, FOREIGN_MODE=mode)
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", version, FOREIGN_MODE=mode)
    assert alone == beside
    assert calls(tmp_path / "run") == expected(version)


@pytest.mark.parametrize("mode", ["", "pool", "same"])
@pytest.mark.parametrize("version", [4, 6])
def test_groups_of_operations_whose_handles_come_back(
    scripted: Scripted, version: int, mode: str, tmp_path: Path
) -> None:
    """Started together, stopped in any order, two threads beside each other, and their kernel does them in its own."""
    number = 3000
    given = {"FOREIGN_MODE": mode, "FOREIGN_MASK": str(INSPECTOR)}
    told = {}
    for name in ("alone", "beside"):
        settings = scripted.environment(tmp_path / "run", tmp_path / name, version)
        if name == "alone":
            settings = {"NCCL_PROFILER_PLUGIN": str(scripted.plugin(version)), "FOREIGN_OUT": str(tmp_path / name)}
        done = scripted.run(6, number, "groups", **settings, **given)
        assert (done.returncode, done.stderr) == (0, "")
        told[name] = (tmp_path / name).read_text()
    assert told["alone"] == told["beside"]
    for kind in ("call", "progress"):
        assert sum(calls(tmp_path / "run", kind=kind).values()) == 2 * number


@pytest.mark.parametrize(("newest", "version"), [(6, 4), (4, 4), (5, 2), (3, 1)])
def test_the_version_is_the_one_that_nccl_and_it_have(
    scripted: Scripted, newest: int, version: int, tmp_path: Path
) -> None:
    done = scripted.run(newest, 5, **scripted.environment(tmp_path / "run", tmp_path / "out", version))
    assert done.stdout == f"version {version}\n"


@pytest.mark.parametrize(("version", "number"), [(1, 22304), (2, 22403), (2, 22501)])
def test_older_nccls_tell_by_other_rules(scripted: Scripted, version: int, number: int, tmp_path: Path) -> None:
    settings = {"SCRIPTED_NCCL_VERSION": str(number), "FOREIGN_MASK": "2"}
    alone = scripted.bare(tmp_path / "alone", version, **settings)
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", version, **settings)
    assert alone == beside and "start 2 of" in beside  # sends too, to one that has asked for collectives


@pytest.mark.parametrize("mode", ["raise", "lower"])
def test_a_mask_that_it_changes_later_is_heard(scripted: Scripted, mode: str, tmp_path: Path) -> None:
    first = "2" if mode == "raise" else "127"
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", 5, FOREIGN_MODE=mode, FOREIGN_MASK=first)
    channels = sum(int(line.rpartition(" ")[2]) for line in beside.splitlines() if line.startswith("start 6 of"))
    everything = 2 * 2 * OPERATIONS  # what was enqueued before the mask changed may be told by either
    assert 0 < channels <= everything if mode == "raise" else 0 <= channels < everything
    assert calls(tmp_path / "run") == expected(5)


@pytest.mark.parametrize("mode", ["crash", "exit"])
def test_a_crash_of_it_stays_what_it_was(scripted: Scripted, mode: str, tmp_path: Path) -> None:
    given = {"FOREIGN_MODE": mode, "FOREIGN_OUT": str(tmp_path / "out")}
    alone = scripted.run(6, OPERATIONS, NCCL_PROFILER_PLUGIN=str(scripted.plugin(5)), **given)
    beside = scripted.run(
        6, OPERATIONS, **{**scripted.environment(tmp_path / "run", tmp_path / "out", 5), "FOREIGN_MODE": mode}
    )
    assert alone.returncode == beside.returncode == (-signal.SIGSEGV if mode == "crash" else 7)
    assert (alone.stdout, alone.stderr) == (beside.stdout, beside.stderr)


def test_where_its_init_fails_ours_goes_on(scripted: Scripted, tmp_path: Path) -> None:
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", 5, FOREIGN_MODE="fail")
    assert "inits" in beside and "start" not in beside
    assert calls(tmp_path / "run") == expected(5)
    assert any("its init failed" in note.text for note in read(tmp_path / "run").notes)


def test_where_one_init_fails_the_other_communicator_is_told(scripted: Scripted, tmp_path: Path) -> None:
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", 5, FOREIGN_MODE="fail_second", FOREIGN_MASK="2")
    assert f"start 1 of 9: {COLLECTIVES // 2}\n" in beside
    assert calls(tmp_path / "run") == expected(5)


def test_it_is_closed_after_the_last_communicator_and_opened_again(scripted: Scripted, tmp_path: Path) -> None:
    alone = scripted.bare(tmp_path / "alone", 5, part="twice")
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", 5, part="twice")
    assert alone == beside and beside.count("version 5 inits 2 finals 2") == 2
    assert calls(tmp_path / "run") == expected(5) + expected(5)


def test_one_that_nccl_would_find_by_itself(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "libnccl-profiler.so").symlink_to(scripted.plugin(4))
    settings = {"LD_LIBRARY_PATH": str(tmp_path), "FOREIGN_OUT": str(tmp_path / "alone")}
    assert scripted.run(6, OPERATIONS, **settings).stdout == "version 4\n"
    environment = scripted.environment(tmp_path / "run", tmp_path / "beside", 4) | {"LD_LIBRARY_PATH": str(tmp_path)}
    del environment["RANKSCOPE_NCCL_PROFILER_PLUGIN"]
    assert scripted.run(6, OPERATIONS, **environment).stdout == "version 4\n"
    assert (tmp_path / "alone").read_text() == (tmp_path / "beside").read_text()
    assert calls(tmp_path / "run") == expected(4)


def test_a_short_name_is_completed_as_nccl_does(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "libnccl-profiler-mine.so").symlink_to(scripted.plugin(4))
    environment = scripted.environment(tmp_path / "run", tmp_path / "beside", 4) | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = scripted.run(6, OPERATIONS, **{**environment, "RANKSCOPE_NCCL_PROFILER_PLUGIN": "mine"})
    assert done.stdout == "version 4\n" and "version 4" in (tmp_path / "beside").read_text()


def test_one_that_cannot_be_opened_leaves_ours(scripted: Scripted, tmp_path: Path) -> None:
    environment = scripted.environment(tmp_path / "run", tmp_path / "beside", 4)
    done = scripted.run(6, OPERATIONS, **{**environment, "RANKSCOPE_NCCL_PROFILER_PLUGIN": "/nowhere.so"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "version 6\n", "")
    assert calls(tmp_path / "run") == expected(6)


def test_a_version_that_only_it_has_is_its_alone(scripted: Scripted, tmp_path: Path) -> None:
    """A later NCCL would call it with the structures of that version, which we do not know."""
    environment = scripted.environment(tmp_path / "run", tmp_path / "beside", 7)
    done = scripted.run(7, 5, **environment)
    assert done.stdout == "version 7\n"
    assert any("newer than what rankscope knows" in note.text for note in read(tmp_path / "run").notes)


def test_without_kernels_of_ours_it_still_gets_its_own(scripted: Scripted, tmp_path: Path) -> None:
    alone = scripted.bare(tmp_path / "alone", 5, FOREIGN_MASK=str(INSPECTOR))
    beside = scripted.both(
        tmp_path / "run", tmp_path / "beside", 5, RANKSCOPE_NCCL="calls", FOREIGN_MASK=str(INSPECTOR)
    )
    assert alone == beside and "start 6 of 1" in beside
    assert calls(tmp_path / "run") == expected(5) and not calls(tmp_path / "run", kind="progress")


def test_without_recording_it_is_alone(scripted: Scripted, tmp_path: Path) -> None:
    alone = scripted.bare(tmp_path / "alone", 5)
    beside = scripted.both(tmp_path / "run", tmp_path / "beside", 5, RANKSCOPE_NCCL="none")
    assert alone == beside


def test_the_run_says_who_was_behind(scripted: Scripted, tmp_path: Path) -> None:
    scripted.both(tmp_path / "run", tmp_path / "beside", 5)
    (path,) = recorded.rank_files(tmp_path / "run")
    notes = [note.text for note in recorded.read(path).notes]
    assert any("libforeign_v5.so (version 5): loaded behind rankscope's" in text for text in notes)
