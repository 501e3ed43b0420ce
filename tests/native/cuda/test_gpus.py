"""Names and energy of GPUs, on a stand-in for NVML and the driver whose counter is known."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from native.builds import HERE, SANITIZERS, STRICT, compile_c, place_recorder, recording
from programs import recorded
from rankscope.rank_files.read import read_rank_file

WATTS = 250


@pytest.fixture(scope="session")
def program(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, flags = tmp_path_factory.mktemp(f"gpus-{sanitizer}"), SANITIZERS[sanitizer]
    place_recorder(folder, flags)
    for library, source in (("libcupti.so.13", "fake_cupti.c"), ("libnvidia-ml.so.1", "fake_nvml.c")):
        compile_c(folder / library, HERE / "cuda" / source, "-fPIC", "-shared", f"-Wl,-soname,{library}", *flags)
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-rdynamic")
    libraries = ("-lrankscope", "-l:libcupti.so.13")
    return compile_c(folder / "gpus", HERE / "cuda" / "gpus_driver.c", *flags, *found, *libraries)


def tables_of(program: Path, folder: Path, *arguments: str, has_nvml: bool = True, **settings: str) -> Any:
    if has_nvml:
        settings["LD_LIBRARY_PATH"] = str(program.parent)
    command = [str(program), *arguments]
    done = subprocess.run(
        command, env=recording(folder, **{**STRICT, **settings}), capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (path,) = recorded.rank_files(folder)
    return read_rank_file(path).utilisation_columns


def test_gpus_have_their_names_and_the_energy_that_nvml_counts(program: Path, tmp_path: Path) -> None:
    tables = tables_of(program, tmp_path)
    gpus, power = tables["gpus"], tables["gpu_power"]
    assert list(gpus["device"]) == [0, 1]
    assert gpus["name"] == ["NVIDIA H200", "NVIDIA Unheard-of"]
    assert gpus["uuid"][0] == bytes(range(16)).hex()
    assert (list(gpus["multiprocessors"]), gpus["memory_bytes"][0]) == ([132, 7], 150_754_820_096)
    assert gpus["note"][0] == "" and "MIG" in gpus["note"][1]
    assert gpus["samples"][0] >= 3 and gpus["samples"][1] == 0
    seconds = (gpus["last_ns"][0] - gpus["first_ns"][0]) / 1e9
    assert gpus["energy_mj"][0] / 1e3 == pytest.approx(WATTS * seconds, rel=0.02)
    assert gpus["energy_mj"].mask[1]
    assert set(power["device"]) == {0} and len(power["at_ns"]) == gpus["samples"][0]
    assert (power["sm_mhz"][0], power["temperature_c"][0], power["processes"][0]) == (1980, 61, 3)


@pytest.mark.parametrize(("asked", "why"), [("no_counter", "Not Supported"), ("no_init", "NVML: Driver Not Loaded")])
def test_without_a_counter_energy_is_unknown_and_says_why(program: Path, tmp_path: Path, asked: str, why: str) -> None:
    tables = tables_of(program, tmp_path, FAKE_NVML=asked)
    assert "gpu_power" not in tables
    assert tables["gpus"]["note"][0] == why
    assert tables["gpus"]["name"][0] == "NVIDIA H200"


def test_a_short_program_has_names_and_does_not_wait_for_nvml(program: Path, tmp_path: Path) -> None:
    tables = tables_of(program, tmp_path, "short")
    assert tables["gpus"]["name"] == ["NVIDIA H200", "NVIDIA Unheard-of"]
    assert "gpu_power" not in tables
