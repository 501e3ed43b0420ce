"""The command, the file, and who may trust it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.import_index.environments import COMMAND, Environment, rankscope
from mpis import ROOT

CODE = "import json, plain.sub.deep; print(json.dumps(plain.sub.deep.function(1)))"


@pytest.fixture
def copied(small: Environment, tmp_path: Path) -> Environment:
    """The environment with an index that may be spoiled."""
    shutil.copy(small.index, tmp_path / "copy.rsindex")
    return Environment(small.python, tmp_path / "copy.rsindex")


def test_says_what_it_holds(small: Environment, tmp_path: Path) -> None:
    told = Environment(small.python, tmp_path / "new.rsindex").build("--statement", "import plain")
    assert "modules, the code of" in told
    assert "1 names are left to Python" not in told
    assert str(tmp_path / "new.rsindex") in told
    assert os.stat(tmp_path / "new.rsindex").st_size < os.stat(small.index).st_size / 5


def test_statement_holds_what_it_imports(small: Environment, tmp_path: Path) -> None:
    only = Environment(small.python, tmp_path / "new.rsindex")
    only.build("--statement", "import plain.sub.deep")
    used = only.run("-c", "import plain.sub.deep, plain.failing", index=True)
    assert used.code == 0
    assert used.counts["found"] == used.counts["code"] + 1


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "other format":
        data[8] += 1
        path.write_bytes(data)
    elif how == "damaged head":
        data[100] ^= 255
        path.write_bytes(data)
    elif how == "writable by others":
        path.chmod(0o666)
    elif how == "gone":
        path.unlink()
    elif how == "of somebody else":
        os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    "how", ["truncated", "empty", "other format", "damaged head", "writable by others", "gone", "of somebody else"]
)
def test_what_cannot_be_trusted_is_not_used(copied: Environment, how: str) -> None:
    if how == "of somebody else" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    assert copied.run("-c", CODE, index=True).counts["code"] > 0
    spoil(copied.index, how)
    without, used = copied.both("-c", CODE)
    assert used.seen == without.seen
    assert used.counts == {}
    checked = rankscope("index", copied.python, "--out", copied.index, "--check")
    assert checked.returncode == 1
    assert "the index is not used: " in checked.stdout or "there is no index" in checked.stdout


def test_index_of_another_python_is_not_used(small: Environment, copied: Environment) -> None:
    other = next((path for path in map(Path, ("/usr/bin/python3",)) if path.exists()), None)
    if other is None or version(other) == version(small.python):
        pytest.skip("no second Python of another version in /usr/bin")
    used = Environment(other, copied.index).run("-c", "import json; print(json.dumps(1))", index=True)
    assert (used.stdout, used.stderr, used.counts) == ("1\n", "", {})


def version(python: Path) -> str:
    command = [str(python), "-c", "import sys; print(sys.hexversion)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("how", ["replaced", "gone", "truncated"])
def test_index_that_changes_while_the_program_runs(copied: Environment, how: str) -> None:
    """What is not read yet comes from the file system; the program notices nothing."""
    spoiling = {
        "replaced": "shutil.copy(path, path + '.new'); os.replace(path + '.new', path)",
        "gone": "os.unlink(path)",
        "truncated": "os.truncate(path, 1000)",
    }[how]
    code = (
        "import os, plain, shutil\npath = os.environ['RANKSCOPE_INDEX']\n"
        "store = os.path.realpath.__globals__['index'].store\nstore.windows.clear()\n"
        f"{spoiling}\nimport plain.sub.deep, email.mime.text, decimal\nprint(plain.sub.deep.function(1))"
    )
    used = copied.run("-c", code, index=True)
    assert used.seen == (0, "2\n", "")
    assert used.counts["refused"] > 0


def test_off_by_one_variable(small: Environment) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RANKSCOPE_INDEX": "off"}
    command = [*COMMAND, "index", "--run", "--out", str(small.index), "--", str(small.python), "-c"]
    code = "import sys; print([one.__name__ for one in sys.path_hooks])"
    off = subprocess.run([*command, code], env=environment, capture_output=True, text=True, check=True)
    del environment["RANKSCOPE_INDEX"]
    on = subprocess.run([*command, code], env=environment, capture_output=True, text=True, check=True)
    assert "hook" in eval(on.stdout)
    assert "hook" not in eval(off.stdout)


def test_default_place_is_found_under_any_name(small: Environment, tmp_path: Path) -> None:
    """Each Python finds the index of its environment, also when that is reached by a symbolic link."""
    cache = {"RANKSCOPE_CACHE": str(tmp_path / "cache")}
    environment = small.python.parents[1]
    assert rankscope("index", environment, "--statement", "import plain", **cache).returncode == 0
    (tmp_path / "link").symlink_to(environment)
    code = "import os, plain; print(plain.__file__, os.path.realpath.__globals__['counts']['code'])"
    for folder in (environment, tmp_path / "link"):
        done = rankscope("index", "--run", "--", folder / "bin" / "python", "-c", code, **cache)
        path, count = done.stdout.split()
        assert path.startswith(str(folder))
        assert int(count) >= 2
    assert rankscope("index", environment, "--remove", **cache).returncode == 0
    assert list((tmp_path / "cache" / "indexes").iterdir()) == []
    assert rankscope("index", environment, "--remove", **cache).returncode == 1


def test_read_only_environment_is_not_touched(small: Environment, tmp_path: Path) -> None:
    before = listing(small.python.parents[1])
    Environment(small.python, tmp_path / "new.rsindex").build()
    assert listing(small.python.parents[1]) == before


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_builds_at_once_leave_a_whole_index(small: Environment, tmp_path: Path) -> None:
    target = tmp_path / "new.rsindex"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [*COMMAND, "index", str(small.python), "--out", str(target), "--statement", "import plain"]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["new.rsindex"]
    assert Environment(small.python, target).run("-c", CODE, index=True).counts["code"] > 0


def test_recorded_run_uses_it(small: Environment, tmp_path: Path) -> None:
    if not (ROOT / "src" / "rankscope" / "native" / "librankscope.so").exists():
        pytest.skip("the recorder is not built: run make native")
    code = "import os, plain; print(os.path.realpath.__globals__['counts']['code'])"
    words = ("run", "--out", tmp_path / "run", "--index", small.index, small.python, "-c", code)
    done = rankscope(*words)
    assert int(done.stdout) >= 2, done.stderr
    assert list((tmp_path / "run" / "ranks").glob("*/*.rank"))


def test_run_says_that_there_is_none(small: Environment, tmp_path: Path) -> None:
    words = ("run", "--out", tmp_path / "run", "--index", small.python, "-c", "print(1)")
    done = rankscope(*words, RANKSCOPE_CACHE=str(tmp_path / "cache"))
    assert done.stdout == "1\n"
    assert "there is no import index" in done.stderr
    assert done.stderr.count("\n") == 1


def other_pythons() -> list[Path]:
    places = [*Path.home().glob(".pyenv/versions/3.*/bin/python"), Path("/usr/bin/python3")]
    return [path for path in places if path.exists()]


@pytest.mark.parametrize("python", other_pythons(), ids=lambda path: "-".join(path.parts[-3:]))
def test_other_pythons(python: Path, tmp_path: Path) -> None:
    """Each version that can be had here."""
    if version(python) < str(0x03080000):
        pytest.skip("older than Python 3.8")
    other = Environment(python, tmp_path / "other.rsindex")
    code = "import json.tool, email.mime.text, asyncio, sys; print(sorted(sys.modules), json.tool.__spec__)"
    other.build("--statement", code)
    without, used = other.both("-c", code.replace("json.tool.__spec__", "json.tool.__spec__.origin"), cwd=tmp_path)
    assert used.stdout.replace("'atexit', ", "") == without.stdout.replace("'atexit', ", "")  # the log needs it
    assert (used.code, used.stderr) == (0, "")
    assert used.counts["code"] > 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give the folder of a virtual environment"),
        (["/nowhere"], "neither a virtual environment nor a Python"),
        (["--out", "x", "."], "must end in .rsindex"),
        (["--run"], "no command given"),
        ([".", "--", "true"], "started with --run"),
        (["--statement"], "needs a value"),
        (["--wrong"], "unexpected --wrong"),
        (["/bin/true"], "does not answer"),
        ([sys.executable, "--statement", "import nothing_at_all"], "the statement failed: ModuleNotFoundError"),
        ([sys.executable, "--out", "/proc/no/x.rsindex"], "choose a writable place"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], said: str) -> None:
    done = rankscope("index", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
