"""A staged command runs from the copy, is otherwise what it was, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from stage.conftest import REHEARSAL
from stage.jobs import Environment, clean_variables, copies, is_soon, python, stage, staged_folder, words

SHOW = "import sys, alpha; print(sys.prefix); print(alpha.__file__); print(alpha.near.WHERE)"


def test_the_copy_is_what_runs(environment: Environment, tmp_path: Path) -> None:
    done = stage(environment, "--to", tmp_path, command=python(SHOW))
    assert (done.returncode, done.stderr) == (0, "")
    prefix, package, module = done.stdout.split()
    assert prefix.startswith(f"{staged_folder(tmp_path)}/") and prefix.endswith("/env")
    assert package.startswith(prefix) and module.startswith(prefix)
    assert is_soon(lambda: not copies(tmp_path))


def test_what_is_not_in_the_bundle_comes_from_the_original_and_is_counted(
    environment: Environment, tmp_path: Path
) -> None:
    code = """
import alpha, alpha.rare, beta, gamma, os, importlib.metadata
folder = alpha.__path__[0]
print(open(folder + "/unread.txt").read(), alpha.deep.inner.WHERE if hasattr(alpha, "deep") else "")
print(sorted(os.listdir(folder)))
print(os.path.realpath(alpha.rare.__file__)); print(os.path.realpath(alpha.__file__))
print(importlib.metadata.version("alpha"), beta.VALUE + gamma.VALUE)
"""
    times = tmp_path / "times"
    done = stage(environment, "--to", tmp_path / "node", "--times", times, command=python(code))
    assert done.returncode == 0, done.stderr
    text, _, listing, rare, package, sums = done.stdout.splitlines()
    assert text == "not touched"
    assert {"rare.py", "unread.txt", "data.txt", "deep"} <= set(eval(listing))
    assert rare == str(environment.packages / "alpha/rare.py")
    assert package.startswith(str(staged_folder(tmp_path / "node")))
    assert sums == "1.0 5"
    (node,) = times.glob("node-*.json")
    assert is_soon(lambda: json.loads(node.read_text())["ended"])
    site = environment.packages.relative_to(environment.folder)
    names = set(json.loads(node.read_text())["original_names"])
    assert names == {f"env/{site}/{name}" for name in ("alpha/rare.py", "alpha/unread.txt", "beta", "gamma.py")}


def test_touched_files_do_not_come_from_the_original(environment: Environment, tmp_path: Path) -> None:
    times = tmp_path / "times"
    assert stage(environment, "--to", tmp_path, "--times", times, command=python(REHEARSAL)).returncode == 0
    (node,) = times.glob("node-*.json")
    assert is_soon(lambda: json.loads(node.read_text())["ended"])
    assert json.loads(node.read_text())["original_files"] == 0


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_output_and_input_are_the_commands(environment: Environment, tmp_path: Path, code: int) -> None:
    program = f"import sys; print(sys.stdin.read(), end=''); print('to stderr', file=sys.stderr); sys.exit({code})"
    done = subprocess.run(
        words(environment, "--to", tmp_path, command=python(program)),
        env=clean_variables(),
        input="in\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "in\n", "to stderr\n")


def test_the_command_is_the_process_that_was_started(environment: Environment, tmp_path: Path) -> None:
    """Signals reach it because it has our process id; no file of ours stays open in it."""
    program = "import os; print(os.getpid(), sorted(map(int, os.listdir('/proc/self/fd')))[:-1], flush=True); input()"
    job = subprocess.Popen(
        words(environment, "--to", tmp_path, command=python(program)),
        env=clean_variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout
    assert job.stdout.readline() == f"{job.pid} [0, 1, 2]\n"
    assert len(copies(tmp_path)) == 1
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == -signal.SIGTERM
    assert is_soon(lambda: not copies(tmp_path))


def test_scripts_of_the_environment_use_the_copys_python(environment: Environment, tmp_path: Path) -> None:
    for word in ("alpha-tool", str(environment.folder / "bin" / "alpha-tool")):
        done = stage(environment, "--to", tmp_path, command=[word])
        assert done.returncode == 0, done.stderr
        assert all(line.startswith(str(staged_folder(tmp_path))) for line in done.stdout.split())


def test_a_long_path_still_runs_scripts(environment: Environment, tmp_path: Path) -> None:
    """Kernels read a short first line only."""
    place = tmp_path / ("long" * 30) / ("longer" * 20)
    done = stage(environment, "--to", place, command=["alpha-tool"])
    assert (done.returncode, done.stdout.split()[0].startswith(str(place))) == (0, True)


def test_a_kept_copy_is_used_again_and_cleaned_on_request(environment: Environment, tmp_path: Path) -> None:
    for expected in (False, True):
        times = tmp_path / f"times-{expected}"
        done = stage(environment, "--to", tmp_path, "--keep", "--times", times, command=python(SHOW))
        assert done.returncode == 0
        (node,) = times.glob("node-*.json")
        assert is_soon(lambda node=node: json.loads(node.read_text())["ended"])
        assert json.loads(node.read_text())["reused"] is expected
        assert len(copies(tmp_path)) == 1
    status = subprocess.run(
        [*words(environment, "--status", "--to", tmp_path, command=[])[:-1]], capture_output=True, text=True, check=True
    )
    assert "0 users, 0 names taken from the original place" in status.stdout
    subprocess.run([*words(environment, "--clean", "--to", tmp_path, command=[])[:-1]], check=True)
    assert copies(tmp_path) == []


@pytest.mark.parametrize("harm", ["text", "removed", "marker"])
def test_a_kept_copy_that_was_changed_is_not_used(environment: Environment, tmp_path: Path, harm: str) -> None:
    assert stage(environment, "--to", tmp_path, "--keep", command=python("")).returncode == 0
    (copy,) = copies(tmp_path)
    module = next(copy.glob("env/lib/python3*/site-packages/alpha/near.py"))
    if harm == "text":
        module.write_text("raise SystemExit('changed')\n")
    elif harm == "removed":
        module.unlink()
    else:
        (copy / ".complete").write_text("0" * 64 + "\n")
    done = stage(environment, "--to", tmp_path, command=python(SHOW))
    assert (done.returncode, done.stderr) == (0, "")


def test_two_jobs_share_one_copy(environment: Environment, tmp_path: Path) -> None:
    first = subprocess.Popen(
        words(environment, "--to", tmp_path, command=python("print(flush=True); input()")),
        env=clean_variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert first.stdout and first.stdin
    first.stdout.readline()
    times = tmp_path / "times"
    assert stage(environment, "--to", tmp_path, "--times", times, command=python(SHOW)).returncode == 0
    (node,) = times.glob("node-*.json")
    assert is_soon(lambda: json.loads(node.read_text())["ended"])
    assert json.loads(node.read_text())["reused"]
    assert len(copies(tmp_path)) == 1  # the first job's
    first.stdin.close()
    first.wait(20)
    assert is_soon(lambda: not copies(tmp_path))


def test_variables_lead_into_the_copy(environment: Environment, tmp_path: Path) -> None:
    show = "import os; print(os.environ['PYTHONPATH'], os.environ['VIRTUAL_ENV'], os.environ['RANKSCOPE_STAGE'])"
    path = f"{environment.packages}:/elsewhere"
    done = stage(environment, "--to", tmp_path, command=python(show), PYTHONPATH=path)
    packages, virtual, copy = done.stdout.split()
    assert packages.startswith(copy) and packages.endswith("/site-packages:/elsewhere")
    assert virtual == f"{copy}/env"


def test_rankscope_run_works_inside(environment: Environment, tmp_path: Path, rankscope: Path) -> None:
    command = [str(rankscope), "run", "--out", str(tmp_path / "run"), *python(SHOW + "; sys.exit(5)")]
    done = stage(environment, "--to", tmp_path, command=command)
    assert done.returncode == 5, done.stderr
    assert done.stdout.split()[0].startswith(str(staged_folder(tmp_path)))
    assert len(list((tmp_path / "run").glob("ranks/*/*.rank"))) == 1


def test_the_interpreter_is_staged_when_asked(environment: Environment, tmp_path: Path) -> None:
    bundle = tmp_path / "with-base.bundle"
    own = Environment(environment.folder, environment.packages, bundle)
    assert stage(own, "--record", "--base", command=python("import alpha, json")).returncode == 0
    show = "import sys, os, json; print(sys.base_prefix); print(json.__file__); print(os.path.realpath(sys.executable))"
    done = stage(own, "--to", tmp_path, command=python(show))
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(staged_folder(tmp_path))) for line in done.stdout.split())
    assert all("/base" in line for line in done.stdout.split())


def test_no_user_but_the_owner_can_look_in(environment: Environment, tmp_path: Path) -> None:
    staged_folder(tmp_path).mkdir(mode=0o755)
    os.chmod(staged_folder(tmp_path), 0o755)
    done = stage(environment, "--to", tmp_path, command=python("print('ran')"))
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.count("\n") == 1 and "not private to you" in done.stderr


def test_on_a_terminal_the_times_are_said(environment: Environment, tmp_path: Path) -> None:
    import pty

    first, second = pty.openpty()
    done = subprocess.run(
        words(environment, "--to", tmp_path, command=python("")), env=clean_variables(), stderr=second, check=False
    )
    os.close(second)
    said = os.read(first, 1000).decode()
    os.close(first)
    assert done.returncode == 0
    assert "staged to" in said and "from the shared file; transfer" in said and "unpack" in said
