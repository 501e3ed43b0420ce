"""HIP on a stand-in of rocprofiler-sdk: calls, kernels, copies, bytes and ranges of random programs in both layouts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from native.builds import compiler_has
from native.rocm.hip_runs import VERSIONS, Recorded, differences, make_program, run
from programs import recorded
from rankscope.rank_file import RuntimeState

pytestmark = pytest.mark.timeout(600)
SEQUENCES = 60  # of each version; tests/native/rocm/sequences.py does 10,000
ENDS = ("return", "kill", "quick", "sdk")


@pytest.fixture(scope="module", params=VERSIONS)
def starter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_program(tmp_path_factory.mktemp("hip"), VERSIONS[request.param])


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_program(tmp_path_factory.mktemp("hip"), VERSIONS["1.1"])


def test_random_programs(starter: Path, tmp_path: Path) -> None:
    wrong = []
    for seed in range(SEQUENCES):
        end = ENDS[seed % len(ENDS)]
        told = run(starter, tmp_path / str(seed), seed, 40, 1 + seed % 3, end)
        assert told.rest["registered"] == "0"
        wrong += [f"{seed}: {text}" for text in differences(told, Recorded(tmp_path / str(seed)), end)]
    assert not wrong


def test_memory_is_followed_until_it_is_freed(newest: Path, tmp_path: Path) -> None:
    told = run(newest, tmp_path, 5, 400, 1)
    assert any(live for live, _ in told.memory.values())
    assert Recorded(tmp_path).memory() == told.memory


def test_an_sdk_that_tells_nothing_of_memory_is_named(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run(make_program(tmp_path_factory.mktemp("hip"), VERSIONS["0.5"]), tmp_path, 1, 20, 1)
    found = Recorded(tmp_path)
    assert "does not tell of allocated memory" in recorded_note(found)
    assert found.runtime()["state"] == RuntimeState.RECORDING


def test_devices_are_those_that_hip_sees(newest: Path, tmp_path: Path) -> None:
    run(newest, tmp_path, 3, 200, 1)
    found = Recorded(tmp_path)
    assert found.gpu_names() == ["AMD Instinct MI300X"] * 2
    assert {device.device for device in found.reading.devices} == {0, 1}
    assert all(device.communication_ns for device in found.reading.devices)  # RCCL's kernels are called like NCCL's


def test_all_calls_are_recorded_where_asked_for(newest: Path, tmp_path: Path) -> None:
    told = run(newest, tmp_path, 7, 300, 2, RANKSCOPE_CUDA_API="all")
    assert Recorded(tmp_path).calls == told.calls


def test_no_calls_where_not_asked_for(newest: Path, tmp_path: Path) -> None:
    told = run(newest, tmp_path, 7, 100, 1, RANKSCOPE_CUDA_API="none")
    found = Recorded(tmp_path)
    assert (found.calls, found.works_on) == ({}, told.works)


def test_a_child_of_a_fork_is_left_alone(newest: Path, tmp_path: Path) -> None:
    told = run(newest, tmp_path, 9, 100, 1, "fork")
    assert told.rest["child"] == "7"
    assert not differences(told, Recorded(tmp_path))


def test_without_the_sdk_the_program_runs_and_the_run_says_so(newest: Path, tmp_path: Path) -> None:
    told = run(newest, tmp_path, 1, 20, 1, RANKSCOPE_ROCPROFILER="/nowhere/librocprofiler-sdk.so")
    found = Recorded(tmp_path)
    assert told.rest["registered"] == "1"  # as bare: nobody wants to know
    assert (found.calls, found.works_on) == ({}, {})
    assert "no librocprofiler-sdk found" in recorded_note(found)


def test_an_sdk_that_refuses(newest: Path, tmp_path: Path) -> None:
    run(newest, tmp_path, 1, 20, 1, FAKE_REFUSES="1")
    found = Recorded(tmp_path)
    assert "refused to start" in recorded_note(found)
    assert found.runtime()["state"] == RuntimeState.REFUSED


def test_it_can_be_switched_off(newest: Path, tmp_path: Path) -> None:
    told = run(newest, tmp_path, 1, 20, 1, RANKSCOPE_ROCM="0")
    assert told.rest["registered"] == "1"
    assert not recorded.rank_files(tmp_path)  # it had nothing to tell


def test_unrecorded_processes_register_as_ever(newest: Path) -> None:
    """With the recorder loaded and idle, and without it."""
    library, seen = newest.parent / "librankscope.so", []
    for variables in ({}, {"LD_PRELOAD": str(library)}):
        command = [str(newest), str(newest.parent / "libamdhip64.so.6"), "1", "20", "1"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}
        done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=True)
        seen.append((done.stdout, done.stderr))
    assert seen[0] == seen[1]
    assert seen[0][0].startswith("registered 1\n")


def test_with_the_real_rocprofiler_register(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where there is one: ROCM_PATH, or ROCPROFILER_REGISTER names it. The SDK behind it is the stand-in."""
    home = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    library = Path(os.environ.get("ROCPROFILER_REGISTER") or home / "lib" / "librocprofiler-register.so.0")
    if not library.exists():
        pytest.skip(f"no {library}: set ROCPROFILER_REGISTER")
    found = {"LD_LIBRARY_PATH": str(library.parent)}
    starter = make_program(tmp_path_factory.mktemp("hip"), VERSIONS["1.1"], register=library)
    told = run(starter, tmp_path, 1, 100, 2, **found)
    assert told.rest["registered"] == "0"
    assert not differences(told, Recorded(tmp_path))
    without = run(starter, tmp_path / "without", 1, 20, 1, RANKSCOPE_ROCPROFILER="/nowhere.so", **found)
    assert without.rest["registered"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers_find_nothing(sanitizer: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not compiler_has(sanitizer):
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    starter = make_program(tmp_path_factory.mktemp(f"hip-{sanitizer}"), VERSIONS["1.1"], sanitizer)
    runtime = subprocess.run(
        ["cc", f"-print-file-name=lib{'a' if sanitizer == 'address' else 't'}san.so"], capture_output=True, text=True
    )
    preload = f"{runtime.stdout.strip()}:{starter.parent / 'librankscope.so'}"
    for seed in range(4):
        told = run(starter, tmp_path / str(seed), seed, 60, 3, LD_PRELOAD=preload)
        assert not differences(told, Recorded(tmp_path / str(seed)))


def recorded_note(found: Recorded) -> str:
    return " ".join(note.text for note in found.reading.notes) + found.file.strings()[int(found.runtime()["note"])]
