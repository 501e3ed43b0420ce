"""Other tools in a process that uses CUDA: injection libraries of the job itself, and those that took our place."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from native.builds import HERE, compile_c, recording
from native.cuda.test_cuda import check_everything, make_driver, only, row_of, rows
from programs import recorded
from rankscope.rank_file import ChunkKind, CudaState

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Programs:
    """The program that plays CUDA, and the libraries of others."""

    driver: Path
    plain: Path  # knows nothing of CUPTI
    client: Path  # of CUPTI
    libcuda: Path  # what a process has loaded that uses CUDA

    def run(self, folder: Path, *arguments: str, code: int = 0, **settings: str) -> str:
        folder.mkdir(exist_ok=True)
        command = [str(self.driver), *arguments]
        environment = recording(folder, **settings)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
        assert (done.returncode, done.stderr) == (code, "")
        return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    folder = tmp_path_factory.mktemp("neighbours")
    driver, source = make_driver(folder, "plain"), HERE / "cuda" / "foreign_injection.c"
    (folder / "empty.c").write_text("int cuInit(unsigned flags) { return flags != 0; }\n")
    cupti = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-l:libcupti.so.13", "-DWITH_CUPTI")
    return Programs(
        driver,
        compile_c(folder / "libplain.so", source, "-fPIC", "-shared"),
        compile_c(folder / "libclient.so", source, "-fPIC", "-shared", *cupti),
        compile_c(folder / "libcuda.so.1", folder / "empty.c", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"),
    )


def notes(folder: Path) -> list[str]:
    return [note.text for note in recorded.read(only(folder)).notes]


def chained(programs: Programs, folder: Path, library: Path, mode: str = "") -> dict[str, str]:
    return {
        "RANKSCOPE_CUDA_INJECTION64_PATH": str(library),
        "RANKSCOPE_NVTX_INJECTION64_PATH": str(library),
        "FOREIGN_OUT": str(folder / "foreign"),
        "FOREIGN_MODE": mode,
    }


def test_one_that_leaves_cupti_alone_and_ours_both_work(programs: Programs, tmp_path: Path) -> None:
    programs.run(tmp_path / "run", **chained(programs, tmp_path, programs.plain))
    assert (tmp_path / "foreign").read_text() == "cuda\n"
    check_everything(only(tmp_path / "run"))
    assert any("libplain.so is loaded behind rankscope's" in text for text in notes(tmp_path / "run"))


@pytest.mark.parametrize("mode", ["", "quiet"])
def test_a_client_of_cupti_has_it_and_we_say_what_is_missing(programs: Programs, mode: str, tmp_path: Path) -> None:
    """Whether it has registered already or only may."""
    programs.run(tmp_path / "run", "nothing", **chained(programs, tmp_path, programs.client, mode))
    assert rows(recorded.read(only(tmp_path / "run")), "gpu") == {}
    assert int(row_of(only(tmp_path / "run"), ChunkKind.CUDA)["state"]) == CudaState.ASIDE
    assert any("uses CUPTI, which has one client: nothing is recorded" in text for text in notes(tmp_path / "run"))


def test_records_go_to_the_client(programs: Programs, tmp_path: Path) -> None:
    programs.run(tmp_path / "run", "killed", code=-signal.SIGKILL, **chained(programs, tmp_path, programs.client))
    assert (tmp_path / "foreign").read_text() == "cuda\nbuffer\n"


def test_a_crash_of_it_is_a_crash(programs: Programs, tmp_path: Path) -> None:
    settings = chained(programs, tmp_path, programs.plain, "crash")
    programs.run(tmp_path / "run", "nothing", code=-signal.SIGSEGV, **settings)


def test_what_it_answers_to_cuda_is_the_answer(programs: Programs, tmp_path: Path) -> None:
    """The program that plays CUDA ends with 2 where it is not 1."""
    programs.run(tmp_path / "run", "nothing", code=2, **chained(programs, tmp_path, programs.plain, "refuse"))


def test_one_that_cannot_be_loaded_leaves_ours(programs: Programs, tmp_path: Path) -> None:
    programs.run(tmp_path / "run", **chained(programs, tmp_path, Path("/nowhere/lib.so")))
    check_everything(only(tmp_path / "run"))
    assert any("could not be loaded" in text for text in notes(tmp_path / "run"))


def test_nvtx_has_one_listener(programs: Programs, tmp_path: Path) -> None:
    """Theirs where it listens, else CUPTI, which takes the first of two."""
    assert programs.run(tmp_path / "a", "nvtx", **chained(programs, tmp_path, programs.plain, "nvtx")) == "1 1\n"
    assert any("has the NVTX ranges: they are not recorded" in text for text in notes(tmp_path / "a"))
    assert programs.run(tmp_path / "b", "nvtx", **chained(programs, tmp_path, programs.plain)) == "1 0\n"
    assert not any("NVTX" in text for text in notes(tmp_path / "b"))


def test_it_is_called_though_nothing_is_recorded_of_the_gpu(programs: Programs, tmp_path: Path) -> None:
    settings = chained(programs, tmp_path, programs.plain)
    programs.run(tmp_path / "run", "nothing", RANKSCOPE_CUDA="0", **settings)
    assert (tmp_path / "foreign").read_text() == "cuda\n"


@pytest.mark.parametrize("loaded", [True, False])
def test_a_tool_in_our_place_is_named_where_cuda_was_used(programs: Programs, loaded: bool, tmp_path: Path) -> None:
    """As under Nsight Systems, which `rankscope run` recognises: CUDA is left to it."""
    settings = {"RANKSCOPE_CUDA": "0", "RANKSCOPE_CUDA_ASIDE": "Nsight Systems"}
    if loaded:
        settings["LD_PRELOAD"] = str(programs.libcuda)
    programs.run(tmp_path, "nothing", **settings)
    if not loaded:
        assert recorded.rank_files(tmp_path) == []
        return
    assert any(text.startswith("Nsight Systems has the GPU: kernels, copies") for text in notes(tmp_path))
