"""The job is sacred: under `rankscope run` a command does and ends as without it."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from installed import Run, compile_c, library_of

DOCUMENTED = {
    "LD_PRELOAD",
    "RANKSCOPE_DIR",
    "RANKSCOPE_PID",
    "RANKSCOPE_PARENT",
    "RANKSCOPE_CUDA",
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "OPENCL_LAYERS",
    "NCCL_PROFILER_PLUGIN",
    "PYTHONPATH",
}


def variables(output: bytes) -> dict[bytes, bytes]:
    return dict(entry.split(b"=", 1) for entry in output.split(b"\0") if entry)


def only_run(work: Path) -> Path:
    [folder] = list((work / "rankscope-runs").glob("2*"))
    return folder


def test_environment_differs_in_documented_variables_only(rankscope: str, run: Run) -> None:
    """Also in the C locale, where Python sets LC_CTYPE for itself, and with values that are no UTF-8."""
    given = {b"PATH": os.fsencode(os.environ["PATH"]), b"ODD": b"\xff\xfe=x\ny", b"EMPTY": b""}
    bare = variables(run("env", "-0", env=given).stdout)
    recorded = variables(run(rankscope, "run", "env", "-0", env=given).stdout)
    added = {os.fsdecode(name) for name in recorded if recorded[name] != bare.get(name)}
    assert added == DOCUMENTED
    assert set(bare) <= set(recorded)


def test_other_preloads_stay_behind_ours(rankscope: str, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    compile_c("int other;", other, "-shared", "-fPIC")
    done = run(rankscope, "run", "sh", "-c", "echo $LD_PRELOAD", env={**os.environ, "LD_PRELOAD": str(other)})
    assert done.stdout.decode().strip().split(":") == [str(library_of(Path(rankscope))), str(other)]


PLUGINS = ("NCCL_PROFILER_PLUGIN", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def plugins(rankscope: str, run: Run, **given: str) -> dict[str, str]:
    """What a command sees of the variables by which NCCL, CUDA and NVTX load libraries."""
    bare = {name: value for name, value in os.environ.items() if name not in PLUGINS}
    found = variables(run(rankscope, "run", "env", "-0", env={**bare, **given}).stdout)
    wanted = ("RANKSCOPE_CUDA", "RANKSCOPE_CUDA_ASIDE", *PLUGINS, *(f"RANKSCOPE_{name}" for name in PLUGINS))
    return {name: os.fsdecode(found[name.encode()]) for name in wanted if name.encode() in found}


def test_plugins_of_the_job_are_kept_for_ours_to_load(rankscope: str, run: Run) -> None:
    given = {name: f"/their/{name}.so" for name in PLUGINS}
    seen = plugins(rankscope, run, **given)
    assert {seen[name] for name in PLUGINS} == {str(library_of(Path(rankscope)))}
    assert {name: seen[f"RANKSCOPE_{name}"] for name in PLUGINS} == given
    assert not any(f"RANKSCOPE_{name}" in plugins(rankscope, run, **dict.fromkeys(PLUGINS, "")) for name in PLUGINS)


def test_a_job_that_wants_no_profiler_of_nccl_gets_none(rankscope: str, run: Run) -> None:
    assert plugins(rankscope, run, NCCL_PROFILER_PLUGIN="none")["NCCL_PROFILER_PLUGIN"] == "none"


NSIGHT = {
    "Nsight Systems": {
        "CUDA_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so",
        "NVTX_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so",
        "NSYS_PROFILING_SESSION_ID": "1",
    },
    "Nsight Compute": {
        "NV_NSIGHT_INJECTION_PORT_BASE": "49152",
        "CUDA_INJECTION64_PATH": "/opt/ncu/libcuda-injection.so",
    },
}


@pytest.mark.parametrize("tool", NSIGHT)
def test_a_job_that_nsight_starts_leaves_it_the_gpu(rankscope: str, run: Run, tool: str) -> None:
    seen = plugins(rankscope, run, **NSIGHT[tool])
    assert (seen["RANKSCOPE_CUDA"], seen["RANKSCOPE_CUDA_ASIDE"]) == ("0", tool)
    for name in PLUGINS[1:]:
        assert seen.get(name) == NSIGHT[tool].get(name)
    assert seen["NCCL_PROFILER_PLUGIN"] == str(library_of(Path(rankscope)))


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        ([], {}, "auto"),
        (["--cuda-api", "none"], {}, "auto"),
        (["--cuda", "windows"], {}, "windows"),
        (["--trace"], {}, "exact"),
        (["--cuda-api", "sync"], {}, "exact"),
        (["--cuda", "exact"], {"RANKSCOPE_CUDA": "windows"}, "exact"),
        (["--cuda", "off"], {}, "0"),
        ([], {"RANKSCOPE_CUDA": "exact"}, "exact"),
    ],
)
def test_gpus_are_recorded_in_windows_unless_all_is_asked_for(
    rankscope: str, run: Run, options: list[str], given: dict[str, str], expected: str
) -> None:
    done = run(rankscope, "run", *options, "sh", "-c", "echo $RANKSCOPE_CUDA", env={**os.environ, **given})
    assert done.stdout.decode().strip() == expected


@pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
def test_exit_code(rankscope: str, run: Run, code: int) -> None:
    assert run(rankscope, "run", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
def test_killed_by_signal(rankscope: str, run: Run, number: signal.Signals) -> None:
    assert run(rankscope, "run", "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_signal_to_our_pid_reaches_the_command(rankscope: str, work: Path) -> None:
    script = "trap 'echo caught; exit 5' TERM; echo ready $$; while :; do read line || [ $? -gt 128 ] || exit 9; done"
    with subprocess.Popen(
        [rankscope, "run", "--quiet", "sh", "-c", script],
        cwd=work,
        stdin=(ours := os.pipe())[0],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(ours[0])
        assert process.stdout
        assert process.stdout.readline() == f"ready {process.pid}\n"
        process.send_signal(signal.SIGTERM)
        with suppress(BrokenPipeError):  # a shell whose read was interrupted has left already
            os.write(ours[1], b"\n")  # others run their trap when read returns
        assert process.stdout.read() == "caught\n"
        os.close(ours[1])
    assert process.returncode == 5


def test_bytes_pass_through(rankscope: str, run: Run) -> None:
    data = bytes(range(256)) * 4096
    done = run(rankscope, "run", "--quiet", "cat", input=data)
    assert (done.stdout, done.stderr, done.returncode) == (data, b"", 0)


def test_eight_bit_arguments(rankscope: str, run: Run, work: Path) -> None:
    words = ["", "a b", "*", b"\xff\xfe", "é€\U0001f600", "-x", "--", "new\nline"]
    done = run(rankscope, "run", "printf", "%s\\0", *words, env={"PATH": os.environ["PATH"]})
    assert done.stdout == b"".join((os.fsencode(word)) + b"\0" for word in words)
    command = json.loads((only_run(work) / "run.json").read_text())["command"]
    assert command[2:] == ["", "a b", "*", "��", "é€\U0001f600", "-x", "--", "new\nline"]


def ignored(output: bytes) -> bytes:
    [line] = [line for line in output.splitlines() if line.startswith(b"SigIgn")]
    return line


@pytest.mark.parametrize("prefix", ["", "trap '' PIPE; ", "trap '' XFSZ HUP; ", "trap '' PIPE XFSZ USR1; "])
def test_signal_dispositions(rankscope: str, run: Run, prefix: str) -> None:
    look = "grep Sig /proc/self/status; true"
    bare = run("sh", "-c", prefix + look).stdout
    recorded = run("sh", "-c", f"{prefix}{rankscope} run {look}").stdout
    assert ignored(recorded) == ignored(bare)


def test_process_state_is_unchanged(rankscope: str, run: Run) -> None:
    look = "umask; ulimit -a; ls /proc/self/fd | wc -l; grep SigBlk /proc/self/status; pwd; ps -o nice= -p $$"
    bare, recorded = run("sh", "-c", look), run(rankscope, "run", "sh", "-c", look)
    assert recorded.stdout == bare.stdout


def test_command_not_found(rankscope: str, run: Run, work: Path) -> None:
    done = run(rankscope, "run", "no-such-program")
    assert (done.returncode, done.stderr) == (127, b"rankscope: no-such-program: command not found\n")
    assert not list(work.iterdir())


def test_command_not_executable(rankscope: str, run: Run, work: Path) -> None:
    (work / "data").write_text("x")
    (work / "folder").mkdir()
    assert run(rankscope, "run", "./data").returncode == 126
    assert run(rankscope, "run", "./folder").returncode == 126


def test_missing_interpreter(rankscope: str, run: Run, work: Path) -> None:
    script = work / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert run(rankscope, "run", "./script").returncode == 127


def test_script_without_interpreter_line(rankscope: str, run: Run, work: Path) -> None:
    script = work / "script"
    script.write_text('echo "$1"\n')
    script.chmod(0o755)
    assert run(rankscope, "run", "./script", "word").stdout == b"word\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), b"no command"),
        (("--bogus", "x"), b"--bogus"),
        (("--out",), b"--out"),
    ],
)
def test_usage_errors_are_one_line(rankscope: str, run: Run, words: tuple[str, ...], text: bytes) -> None:
    done = run(rankscope, "run", *words)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and text in done.stderr


def test_run_folder_and_latest(rankscope: str, run: Run, work: Path) -> None:
    run(rankscope, "run", "--name", "first", "true")
    done = run(rankscope, "run", "--matrix", "--size", "64K", "--log", "7", sys.executable, "-c", "pass", "train.py")
    latest = (work / "rankscope-runs" / "latest").resolve()
    assert latest.name.endswith("-train")
    assert done.stderr == b""
    about = json.loads((latest / "run.json").read_text())
    assert about["format"] == 1 and about["expected_ranks"] is None and about["launcher"] is None
    assert about["command"] == [sys.executable, "-c", "pass", "train.py"] and about["cwd"] == str(work)
    assert about["options"]["matrix"] is True and about["options"]["file_bytes"] == 65536
    assert about["options"]["log_records"] == 7


@pytest.mark.parametrize(
    ("out", "has_latest"), [("rankscope-runs/mine", True), ("elsewhere/mine", False), ("rankscope-runs/latest", False)]
)
def test_latest_leads_to_a_named_folder_among_the_runs(
    rankscope: str, run: Run, work: Path, out: str, has_latest: bool
) -> None:
    assert run(rankscope, "run", "--out", out, "true").returncode == 0
    link = work / "rankscope-runs" / "latest"
    assert link.is_symlink() == has_latest
    assert not has_latest or link.resolve() == (work / out).resolve()


@pytest.mark.parametrize("program", ["exit", "_exit", "fork"])
@pytest.mark.parametrize("words", [(), ("--quiet",)])
def test_a_terminal_is_told_where_it_records_and_at_the_end_what_to_do(
    rankscope: str, work: Path, words: tuple[str, ...], program: str
) -> None:
    ends = {
        "exit": "pass",
        "_exit": "import os; os._exit(0)",
        "fork": "import os; child = os.fork(); child and os.waitpid(child, 0)",  # which does not say it as well
    }
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", f"{ends[program]}"]
    subprocess.run([rankscope, "run", *words, "--name", "named", *command], cwd=work, stderr=theirs, check=True)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # nobody has the other end any more: that was all
        while some := os.read(ours, 1000):  # a terminal may give one line at a time
            written += some
    said = written.decode().splitlines()
    os.close(ours)
    assert [line.partition(" rankscope-runs/")[0] for line in said] == (
        [] if words else ["rankscope: recording to", "rankscope: recorded in"]
    )
    assert words or said[-1].endswith("-named; next: rankscope report")


def test_no_terminal_no_word(rankscope: str, run: Run, work: Path) -> None:
    done = run(rankscope, "run", "env", "-0")
    assert done.stderr == b"" and b"RANKSCOPE_END" not in variables(done.stdout)


def test_options_reach_the_recorder(rankscope: str, run: Run, work: Path) -> None:
    done = run(rankscope, "run", "--out", "o/p", "--local", "l", "--matrix", "--size", "64K", "--log", "0", "env", "-0")
    found = {os.fsdecode(name): os.fsdecode(value) for name, value in variables(done.stdout).items()}
    node = Path(found["RANKSCOPE_DIR"])
    assert node.parent == work / "l" and node.name.startswith("p-") and node.is_dir()
    assert found["RANKSCOPE_COLLECT"] == str(work / "o" / "p")
    numbers = [found[f"RANKSCOPE_{name}"] for name in ("MATRIX", "FILE_BYTES", "LOG_RECORDS")]
    assert numbers == ["1", "65536", "0"]
    assert json.loads((work / "o/p/run.json").read_text())["options"]["local_dir"] == found["RANKSCOPE_DIR"]


def test_second_run_in_one_folder_gets_its_own(rankscope: str, run: Run, work: Path) -> None:
    show = ("sh", "-c", "echo $RANKSCOPE_DIR")
    assert run(rankscope, "run", "--out", "prof", *show).stdout == f"{work}/prof\n".encode()
    second = run(rankscope, "run", "--quiet", "--out", "prof", *show)
    assert second.stdout == f"{work}/prof-2\n".encode()
    assert second.stderr == b"rankscope: prof already holds another run: recording to prof-2\n"


def test_inside_a_recorded_script_the_same_run(rankscope: str, run: Run, work: Path) -> None:
    done = run(rankscope, "run", "sh", "-c", f"echo $RANKSCOPE_DIR; {rankscope} run sh -c 'echo $RANKSCOPE_DIR'")
    assert len(set(done.stdout.splitlines())) == 1 and len(done.stdout.splitlines()) == 2
    assert only_run(work)
