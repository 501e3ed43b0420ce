"""Whatever is wrong on our side is one warning, and the command runs as if we were not there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from installed import Run, compile_c, library_of

SHOW = ("sh", "-c", "echo out; env; exit 3")


def assert_untouched(done: "subprocess.CompletedProcess[bytes]", why: str) -> None:
    """One warning that says why and what next; our variables nowhere; the command's own output and exit code."""
    assert done.returncode == 3 and done.stdout.startswith(b"out\n"), done
    assert b"RANKSCOPE_" not in done.stdout and b"librankscope" not in done.stdout
    warnings = done.stderr.decode().splitlines()
    assert len(warnings) == 1 and warnings[0].startswith("rankscope: not recording: "), warnings
    assert why in warnings[0] and "; " in warnings[0]


def test_missing_library(fresh: Path, run: Run) -> None:
    library_of(fresh).unlink()
    assert_untouched(run(str(fresh), "run", *SHOW), "no recorder library")


def test_library_that_is_no_library(fresh: Path, run: Run) -> None:
    library_of(fresh).unlink()
    library_of(fresh).write_bytes(b"\x7fELF" + bytes(60))
    assert_untouched(run(str(fresh), "run", *SHOW), "cannot be loaded")


def test_library_that_needs_what_is_not_there(fresh: Path, run: Run) -> None:
    library_of(fresh).unlink()
    compile_c("void not_anywhere(void); void f(void) { not_anywhere(); }", library_of(fresh), "-shared", "-fPIC")
    assert_untouched(run(str(fresh), "run", *SHOW), "not_anywhere")


def test_path_that_ld_preload_cannot_name(tmp_path: Path, run: Run) -> None:
    from installed import install

    script = install(tmp_path / "with space")
    assert_untouched(run(str(script), "run", *SHOW), "LD_PRELOAD cannot name")


@pytest.mark.parametrize("out", ["/proc/rankscope", "/dev/null/x"])
def test_folder_that_cannot_be_made(rankscope: str, run: Run, out: str) -> None:
    assert_untouched(run(rankscope, "run", "--out", out, *SHOW), "--out")


def test_local_folder_that_cannot_be_made(rankscope: str, run: Run) -> None:
    assert_untouched(run(rankscope, "run", "--quiet", "--local", "/proc/x", *SHOW), "/proc/x")


def mounted(run: Run, options: str, command: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a shell line in a new tmpfs that nobody else sees."""
    line = f'mount -t tmpfs -o {options} none "$PWD" && cd "$PWD" && {command}'
    flags = "-m" if os.geteuid() == 0 else "-rm"
    if run("unshare", flags, "sh", "-c", f'mount -t tmpfs -o {options} none "$PWD"').returncode:
        pytest.skip("no right to mount a file system")
    return run("unshare", flags, "sh", "-c", line)


def test_read_only_folder(rankscope: str, run: Run) -> None:
    assert_untouched(mounted(run, "ro", f"{rankscope} run sh -c 'echo out; env; exit 3'"), "Read-only file system")


def test_no_space(rankscope: str, run: Run) -> None:
    fill = "dd if=/dev/zero of=fill bs=4096 2>/dev/null;"
    done = mounted(run, "size=64k", f"{fill} {rankscope} run sh -c 'echo out; env; exit 3'")
    assert_untouched(done, "No space left")


def test_folder_that_vanishes(rankscope: str, run: Run, work: Path) -> None:
    """The current folder is removed before we start."""
    (work / "gone").mkdir()
    done = run("sh", "-c", f"cd gone && rmdir ../gone && {rankscope} run sh -c 'echo out; env; exit 3'")
    lines = [line for line in done.stderr.splitlines() if line.startswith(b"rankscope")]
    assert done.returncode == 3 and len(lines) == 1 and b"not recording" in lines[0]


def test_static_program(rankscope: str, run: Run, tmp_path: Path) -> None:
    program = tmp_path / "static"
    source = """#include <stdio.h>
        extern char **environ;
        int main(void) { puts("out"); for (char **e = environ; *e; e++) puts(*e); return 3; }"""
    compile_c(source, program, "-static")
    assert_untouched(run(rankscope, "run", str(program)), "statically linked")


def test_script_of_a_static_interpreter(rankscope: str, run: Run, tmp_path: Path) -> None:
    program, script = tmp_path / "static", tmp_path / "script"
    compile_c('#include <stdio.h>\nint main(void) { puts("out"); return 3; }', program, "-static")
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    assert_untouched(run(rankscope, "run", str(script)), "statically linked")


def test_other_architecture(rankscope: str, run: Run, tmp_path: Path) -> None:
    program = tmp_path / "foreign"
    octets = bytearray(Path(shutil.which("true") or "").read_bytes())
    octets[18:20] = (243 if octets[18] != 243 else 62).to_bytes(2, "little")
    program.write_bytes(octets)
    program.chmod(0o755)
    done = run(rankscope, "run", str(program))
    warning, failure = done.stderr.decode().splitlines()
    assert done.returncode == 126 and "is made for riscv64" in warning and "Exec format error" in failure


def test_set_user_id(rankscope: str, run: Run, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    program = tmp_path / "privileged"
    shutil.copy(shutil.which("env") or "", program)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    done = run(rankscope, "run", str(program), "sh", "-c", "echo out; env; exit 3")
    assert_untouched(done, "elevated privileges")


def test_only_the_first_rank_of_a_node_warns(fresh: Path, run: Run) -> None:
    library_of(fresh).unlink()
    ranks = {**os.environ, "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    silent = run(str(fresh), "run", "true", env={**ranks, "OMPI_COMM_WORLD_LOCAL_RANK": "1"})
    speaks = run(str(fresh), "run", "true", env={**ranks, "OMPI_COMM_WORLD_LOCAL_RANK": "0"})
    assert silent.stderr == b"" and speaks.stderr.count(b"\n") == 1


def test_closed_stderr(rankscope: str, run: Run) -> None:
    assert run("sh", "-c", f"{rankscope} run sh -c 'echo out; exit 3' 2>&-").returncode == 3
