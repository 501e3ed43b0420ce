"""Nothing stays mounted, whoever is killed; and the command's own end is passed on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.slowfs import mount as counters
from rankscope.slowfs import mount as mounting
from rankscope.slowfs.mount import PROGRAM, Slowness, Unavailable
from slow_file_system import skip_unless_runnable, slow_file_system

RANKSCOPE = [sys.executable, "-m", "rankscope"]


def is_mounted(place: Path) -> bool:
    return f" {place} " in Path("/proc/self/mounts").read_text()


def until(condition: object, seconds: float = 20) -> bool:
    """Whether it becomes true in time."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "word").write_text("hello\n")
    (tmp_path / "at").mkdir()
    return tmp_path


@pytest.mark.parametrize("who", ["server", "watcher"])
def test_a_killed_half_is_cleaned_up_by_the_other(folder: Path, who: str) -> None:
    with slow_file_system(folder) as mount:
        watcher = mount.process.pid
        os.kill(watcher if who == "watcher" else children(watcher)[0], signal.SIGKILL)
        assert until(lambda: not is_mounted(mount.path))


def test_mount_lasts_until_unmount(folder: Path) -> None:
    try:
        mounting.mount(folder, folder / "at", Slowness())
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        assert (folder / "at" / "word").read_text() == "hello\n"
        server = counters.of_mount(folder / "at")["pid"]
    finally:
        assert mounting.unmount(folder / "at")
    assert not is_mounted(folder / "at")
    assert not mounting.unmount(folder / "at")
    assert until(lambda: not Path(f"/proc/{server}").exists())


def test_end_of_the_python_that_mounted_unmounts(folder: Path) -> None:
    with slow_file_system(folder):
        pass  # skips where nobody may mount
    code = (
        "import os, sys; from pathlib import Path; from rankscope.slowfs.mount import *\n"
        "with mounted(Path(sys.argv[1]), Path(sys.argv[1]) / 'at', Slowness()):\n"
        "    print('mounted', flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, check=False)
    assert done.stdout == b"mounted\n"
    assert until(lambda: not is_mounted(folder / "at"))


@pytest.fixture
def runnable() -> None:
    skip_unless_runnable()


@pytest.mark.usefixtures("runnable")
def test_run_shows_the_folder_to_the_command_alone(folder: Path) -> None:
    code = "test -e word && ! test -e nothing && grep -c slowfs /proc/self/mounts && exit 3"
    command = [*RANKSCOPE, "slowfs", "run", ".", "--counters", folder / "counts", "--", "sh", "-c", code]
    # The working folder is below the mount: the command must find itself in the slow one.
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, "1\n"), done.stderr
    assert counters.parsed((folder / "counts").read_text())["missing"] == 1
    assert "Operations of the slow file system" in done.stderr
    assert not is_mounted(folder)


@pytest.mark.usefixtures("runnable")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + 15), (signal.SIGKILL, -9)])
def test_a_killed_run_takes_its_command_along(folder: Path, number: int, code: int) -> None:
    words = [*RANKSCOPE, "slowfs", "run", folder, "--", "sh", "-c", f"echo $$; cat {folder}/word; exec sleep 60"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    command, word = int(process.stdout.readline()), process.stdout.readline()
    assert word == "hello\n"
    process.send_signal(number)
    assert process.wait() == code
    process.stdout.close()
    assert until(lambda: not Path(f"/proc/{command}").exists())
    assert not is_mounted(folder)


@pytest.mark.usefixtures("runnable")
def test_a_command_that_dies_or_is_not_there(folder: Path) -> None:
    def code(*command: str) -> int:
        return subprocess.run([*RANKSCOPE, "slowfs", "run", folder, "--", *command], check=False).returncode

    assert code("sh", "-c", "kill -9 $$") == 128 + 9
    assert code("/no/such/program") == 127


@pytest.mark.usefixtures("runnable")
def test_a_server_that_dies_is_told(folder: Path) -> None:
    code = f"cat {folder}/word; kill -9 $(sed -n 's/^pid //p' {folder}/.rankscope-slowfs); cat {folder}/word || exit 4"
    words = [*RANKSCOPE, "slowfs", "run", folder, "--", "sh", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "hello\n")
    assert f"the server of {folder} died" in done.stderr


@pytest.mark.usefixtures("runnable")
def test_a_user_namespace_is_enough(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests of run show it: this user is not root")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing: install util-linux")
    # Without the right to mount; mapping root itself needs the one that is left.
    humble = ["setpriv", "--bounding-set", "-all,+setfcap", "--inh-caps", "-all"]
    place = folder / "at"
    done = subprocess.run(
        [*humble, PROGRAM, "run", folder, place, "--", "cat", place / "word"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 125:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_wrong_usage_is_told_in_one_line(folder: Path) -> None:
    def told(*words: str | Path) -> tuple[int, str]:
        done = subprocess.run([*RANKSCOPE, "slowfs", *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()[-1]

    assert told("run", folder) == (
        2,
        "rankscope slowfs: error: run needs one: rankscope slowfs run FOLDER -- command",
    )
    assert told("run", folder, "--latency", "1", "--", "true")[1].endswith("as in 250us, 1ms or 2s")
    assert told("stats", folder) == (1, f"rankscope slowfs: {folder}: no slow file system is mounted there")
    assert told("unmount", folder) == (1, f"rankscope slowfs: {folder}: no slow file system is mounted there")
    assert told("run", folder / "absent", "--", "true")[0] == 125
