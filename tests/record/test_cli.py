"""The dispatcher, what the run path imports, and `rankscope doctor`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from installed import ROOT, Mpi, Run, compile_c
from rankscope import __version__
from rankscope.cli import COMMANDS, main

NOT_ON_THE_RUN_PATH = {
    "argparse",
    "json",
    "re",
    "pathlib",
    "typing",
    "subprocess",
    "shutil",
    "datetime",
    "signal",
    "dataclasses",
    "enum",
    "collections",
    "functools",
    "rankscope.model",
    "rankscope.agent",  # whole packages of ours that only some options need
    "rankscope.record.import_index",
}


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(f"  {name} " in output for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"rankscope {__version__}\n"


def test_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "nonsense" in error and "--help" in error


@pytest.mark.parametrize("name", ["run", "gather", "doctor"])
def test_help_of_commands_is_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out in (ROOT / "docs" / "commands" / f"{name}.md").read_text()


def test_as_a_module(run: Run) -> None:
    done = run(
        sys.executable,
        "-m",
        "rankscope",
        "run",
        "--quiet",
        "sh",
        "-c",
        "exit 4",
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 4


def test_run_imports_only_what_it_needs(rankscope: str, work: Path) -> None:
    """-S and -I leave out what the site's own .pth files import."""
    command = [sys.executable, "-I", "-S", "-X", "importtime", rankscope, "run", "true"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert "rankscope.record.start" in imported
    assert not imported & NOT_ON_THE_RUN_PATH


@pytest.mark.parametrize("words", [["stage", "--help"], ["stage", "--status"], ["gather", "--help"]])
def test_commands_that_run_on_every_node_load_nothing_of_the_analysis(words: list[str], work: Path) -> None:
    """`rankscope stage` starts every rank: its tables are for the one that asks for them."""
    command = [sys.executable, "-X", "importtime", "-m", "rankscope", *words]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(work)}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert f"rankscope.cli.{words[0]}" in imported
    assert not imported & {"rankscope.model", "rankscope.api", "duckdb", "numpy", "pyarrow", "rich"}


def test_doctor_says_yes(rankscope: str, run: Run) -> None:
    done = run(rankscope, "doctor", "--python", sys.executable)
    assert done.returncode == 0 and b"ok   recorder" in done.stdout and b"ok   python" in done.stdout, done


def test_doctor_says_no(rankscope: str, run: Run) -> None:
    done = run(rankscope, "doctor", "--python", "no-such-python", "--out", "/proc/x")
    assert done.returncode == 1 and done.stdout.count(b"\nbad ") == 2, done


def test_doctor_usage(rankscope: str, run: Run) -> None:
    assert run(rankscope, "doctor", "--bogus", "x").returncode == 2


def test_doctor_names_the_mpi(rankscope: str, run: Run, mpi: Mpi) -> None:
    done = run(rankscope, "doctor", "--python", str(mpi.bin / "python"))
    assert done.returncode == 0 and b"ok   MPI: " in done.stdout, done


def test_doctor_looks_at_the_machine_and_the_folder(rankscope: str, run: Run) -> None:
    lines = run(rankscope, "doctor", "--python", sys.executable).stdout.decode().splitlines()
    subjects = [line[5:].partition(":")[0] for line in lines]
    expected = ["recorder", "machine", "clock", "libc", "container", "system calls", "ptrace", "python", "MPI", "torch"]
    assert (
        subjects == [*expected, "CUDA", "OpenCL", "ROCm", "folder", "file system", "mapped files", "/dev/shm"]
        or "CUPTI" in subjects
    )
    assert all(line[:5] in ("ok   ", "note ") for line in lines)


FAKE_GPU = """\
int cuDriverGetVersion(int *version) {{ *version = 13000; return 0; }}
int cuptiGetVersion(unsigned *version) {{ *version = {cupti}; return 0; }}
int ncclGetVersion(int *version) {{ *version = {nccl}; return 0; }}
"""


@pytest.mark.parametrize(
    ("cupti", "nccl", "variables", "told"),
    [
        (26, 22809, {}, ["ok   CUDA: driver for CUDA 13.0", "ok   CUPTI: version 26", "ok   NCCL: 2.28.9"]),
        (12, 22205, {}, ["note CUPTI: ", "older than CUDA 12", "note NCCL: 2.22.5 has no plugins"]),
        (26, 22809, {"NCCL_PROFILER_PLUGIN": "none"}, ["note NCCL: NCCL_PROFILER_PLUGIN=none stays"]),
        (26, 22809, {"CUDA_INJECTION64_PATH": "/t.so"}, ["ok   CUDA_INJECTION64_PATH: /t.so is loaded behind the"]),
        (
            26,
            22809,
            {"CUDA_INJECTION64_PATH": "/n/libToolsInjection64.so"},
            ["note CUDA_INJECTION64_PATH: Nsight Systems has the GPU"],
        ),
        (26, 22809, {"LD_PRELOAD": "/no/such.so"}, ["note LD_PRELOAD: /no/such.so does not exist"]),
    ],
)
def test_doctor_looks_at_cuda(
    rankscope: str, run: Run, tmp_path: Path, cupti: int, nccl: int, variables: dict[str, str], told: list[str]
) -> None:
    """Libraries that only know their versions stand for those of a GPU."""
    for name in ("libcuda.so.1", "libcupti.so.13", "libnccl.so.2"):
        compile_c(FAKE_GPU.format(cupti=cupti, nccl=nccl), tmp_path / name, "-shared", "-fPIC")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "RANKSCOPE_CUPTI": str(tmp_path / "libcupti.so.13")}
    done = run(rankscope, "doctor", "--python", sys.executable, env={**environment, **variables})
    assert done.returncode == 0 and all(text in done.stdout.decode() for text in told), done.stdout.decode()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('const char *variable = "OPENCL_LAYERS";', "ok   OpenCL: {} takes layers; 0 drivers"),
        ("int nothing;", "note OpenCL: {} takes no layers: OpenCL is not recorded"),
    ],
)
def test_doctor_looks_at_opencl(rankscope: str, run: Run, tmp_path: Path, source: str, told: str) -> None:
    loader = compile_c(source, tmp_path / "libOpenCL.so.1", "-shared", "-fPIC") or tmp_path / "libOpenCL.so.1"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "OCL_ICD_VENDORS": str(tmp_path)}
    done = run(rankscope, "doctor", "--python", sys.executable, env=environment)
    assert told.format(loader) in done.stdout.decode(), done.stdout.decode()


def test_doctor_looks_at_rocm(rankscope: str, run: Run, tmp_path: Path) -> None:
    library = tmp_path / "lib" / "librocprofiler-sdk.so.1"
    library.parent.mkdir()
    library.touch()
    for variables, told in (
        ({"ROCM_PATH": str(tmp_path)}, f"ok   ROCm: {library}: HIP is recorded"),
        ({"RANKSCOPE_ROCPROFILER": "/no/such.so"}, "note ROCm: no librocprofiler-sdk found"),
    ):
        done = run(rankscope, "doctor", "--python", sys.executable, env={**os.environ, **variables})
        assert told in done.stdout.decode(), done.stdout.decode()


def test_doctor_prepares_only_what_has_torch(rankscope: str, run: Run) -> None:
    done = run(rankscope, "doctor", "--prepare", "--python", "no-such-python")
    assert done.returncode == 1 and done.stdout.startswith(b"bad  torch: no-such-python"), done
    assert run(rankscope, "doctor", "--prepare=yes").returncode == 2


def test_doctor_prepares_our_part_in_python(fresh: Path, run: Run) -> None:
    """No rank compiles it from its source then, whoever says that no bytecode is to be written."""
    done = run(str(fresh), "doctor", "--prepare", "--python", sys.executable)
    assert done.returncode == 1 and b"has no torch" in done.stdout, done
    agent = fresh.parents[1] / "rankscope" / "agent"
    for folder in (agent, agent / "start"):
        compiled = {path.name.partition(".")[0] for path in (folder / "__pycache__").iterdir()}
        assert compiled == {path.stem for path in folder.glob("*.py")}
