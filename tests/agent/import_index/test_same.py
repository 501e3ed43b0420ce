"""A program sees no difference between imports with the index and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.import_index.environments import Environment
from agent.import_index.programs import PARALLEL, PROGRAMS


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to run in, with modules that may stand in front of the installed ones."""
    for name, text in {"front/single.py": "front", "front/plain.py": "front", "inside/sub.py": "inside"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"VALUE = {text!r}\n")
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_the_same(small: Environment, work: Path, name: str) -> None:
    without, used = small.both("-c", PROGRAMS[name], cwd=work)
    assert used.seen == without.seen
    assert used.counts  # the index was there
    assert used.changed == []


def test_the_programs_tell_something(small: Environment, work: Path) -> None:
    """What is equal above is what it should be."""
    said = {name: small.run("-c", PROGRAMS[name], index=True, cwd=work) for name in ("values", "front", "exit code")}
    assert said["values"].stdout == "['site-packages', 'edited', 'zipped', 'linked', 'no source', 'first', 'second']\n"
    assert said["front"].stdout == "front front\n"
    assert said["exit code"].code == 7
    assert said["values"].counts["code"] > 1


@pytest.mark.parametrize("flags", [["-O"], ["-OO"], ["-I"], ["-S"], ["-E"], ["-B"], ["-X", "dev"], ["-v"]], ids="".join)
def test_flags_of_python(small: Environment, work: Path, flags: list[str]) -> None:
    code = "import sys, json, json.tool; print(json.__doc__ and 1, sys.flags, sorted(sys.modules))"
    if "-S" not in flags:
        code += "; import plain.values as v; print(v.assert_is_on, v.function.__doc__)"
    without, used = small.both(*flags, "-c", code, cwd=work)
    assert (used.code, used.stdout) == (without.code, without.stdout)
    assert used.code == 0
    assert bool(used.counts) is (flags[0] not in ("-I", "-S", "-E"))
    assert (used.counts.get("code", 0) > 0) is (flags[0] in ("-B", "-X", "-v"))


def test_module_by_its_name(small: Environment, work: Path) -> None:
    without, used = small.both("-m", "plain", "a", "b", cwd=work)
    assert used.seen == without.seen
    assert used.stdout.startswith("main plain.__main__ ['a', 'b']")


def test_script_folder_and_current_folder_come_first(small: Environment, work: Path) -> None:
    script = work / "front" / "script.py"
    script.write_text("import single; print(single.VALUE)\n")
    assert small.run(script, index=True).stdout == "front\n"
    assert small.run("-c", "import single; print(single.VALUE)", index=True, cwd=work / "front").stdout == "front\n"


def test_python_path_comes_first(small: Environment, work: Path) -> None:
    code = "import single, sys; print(single.VALUE, sys.path)"
    without, used = small.both("-c", code, PYTHONPATH=str(work / "front"))
    assert used.seen == without.seen
    assert used.stdout.startswith("front ")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_multiprocessing(small: Environment, work: Path, method: str) -> None:
    (work / "parallel.py").write_text(PARALLEL.format(method=method))
    without, used = small.both(work / "parallel.py")
    assert used.seen == without.seen
    assert used.stdout == "[2, 3, 4]\n"


def test_standard_input(small: Environment) -> None:
    without, used = small.both("-c", "import plain; print(input())")
    assert used.seen == without.seen


def test_sitecustomize_of_the_environment_runs(small: Environment, work: Path) -> None:
    (work / "front" / "sitecustomize.py").write_text("print('customized')\nimport single\n")
    without, used = small.both("-c", "import single; print(single.VALUE)", PYTHONPATH=str(work / "front"))
    assert used.seen == without.seen
    assert used.stdout == "customized\nfront\n"


@pytest.mark.slow
def test_every_known_path_is_answered_as_it_is(small: Environment) -> None:
    """All files of all indexed folders: realpath and exists as the file system has them."""
    code = """
import os
known, ours = os.path.realpath, os.path.realpath.__globals__
real, exists, index = ours["find_realpath"], ours["find_exists"], ours["index"]
asked = 0
for root in index.roots:
    for folder, folders, files in os.walk(root.path):
        for name in files:
            path = folder + "/" + name
            assert known(path) == real(path), path
            assert os.path.exists(path) == exists(path), path
            asked += 1
print(asked, ours["counts"]["paths"])
"""
    done = small.run("-c", code, index=True)
    assert done.code == 0, done.stderr
    asked, answered = map(int, done.stdout.split())
    assert asked >= answered / 2 > 1000  # each was asked for twice
