"""The cells as a script for another machine: the same commands, the same outcomes, wherever it is run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT, Mpi
from studies.studying import ENVIRONMENT, WORKLOAD, cells, squares, states, study, write_toml, wrong_values
from studies.test_outcomes import gone, wait_for

BARE = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}


def shell(script: Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(script)],
        env={**BARE, **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def python_without_packages(folder: Path) -> Path:
    """What the other machine has: a Python with the standard library only."""
    program = folder / "python-bare"
    program.write_text(f'#!/bin/sh\nexec {getattr(sys, "_base_executable", sys.executable)} -S "$@"\n')
    program.chmod(0o755)
    return program


def test_script_elsewhere_then_collected_equals_a_direct_run(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    bare = python_without_packages(tmp_path)
    toml = squares(here / "squares.toml", bare)
    direct = study(toml, "--out", "direct", cwd=here)
    assert direct.returncode == 0
    made = study(toml, "--script", "cells.sh", "--out", "left", cwd=here)
    assert made.returncode == 0 and not (here / "left").exists()
    there.mkdir()
    shutil.copy(here / "cells.sh", there)
    copied = there / "src" / "rankscope"
    shutil.copytree(ROOT / "src" / "rankscope", copied, ignore=shutil.ignore_patterns("__pycache__", "html", "native"))
    (copied / "native").symlink_to(ROOT / "src" / "rankscope" / "native")
    done = shell(there / "cells.sh", there, PYTHON=str(bare), SOURCE="src")
    assert done.returncode == 0, done.stderr
    assert [line[:5] for line in done.stderr.splitlines()[:4]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    shutil.move(there / "left", here / "left")
    collected = study(toml, "--out", "left", "--collect", cwd=here)
    assert collected.returncode == 0, collected.stderr
    assert states(here / "left") == states(here / "direct") == dict.fromkeys(states(here / "direct"), "done")
    assert wrong_values(here / "left") == [] and len(states(here / "left")) == 4
    for name, cell in cells(here / "left").items():
        mine = [word.replace(str(there / "left"), "OUT") for word in cell["command"]]
        theirs = [word.replace(str(here / "direct"), "OUT") for word in cells(here / "direct")[name]["command"]]
        assert mine[mine.index("run") :] == theirs[theirs.index("run") :]
    assert (here / "left" / "squares.md").read_text().splitlines()[0] == "# squares"
    where = json.loads((here / "left" / "study.json").read_text())["environment"]
    assert where["host"] and where["pythons"]


def test_script_goes_on_and_skips_what_has_ended(tmp_path: Path) -> None:
    toml = squares(tmp_path / "t.toml", axes={"number": [2, 3], "ranks": [1]})
    toml.write_text(
        toml.read_text()
        .replace('"{cell}"]', '"{cell}", "hang", "{trouble}"]')
        .replace("[axes]", "[axes]\ntrouble = [7, 0]")
    )
    script, folder = tmp_path / "t.sh", tmp_path / "out"
    assert study(toml, "--script", script, "--out", folder, cwd=tmp_path).returncode == 0
    running = subprocess.Popen(["sh", str(script)], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    hanging = next(name for name in json_plan(script)["cells"] if "trouble=0" in name)
    wait_for(folder / "cells" / hanging / "attempt-1" / "output.txt")
    second = shell(script, tmp_path)
    assert second.returncode == 2 and "another process is running this study" in second.stderr
    running.kill()
    running.wait()
    assert gone(str(folder))
    half = study(toml, "--out", folder, "--collect")
    assert half.returncode == 1 and "it has not been run yet" in half.stdout
    before = states(folder)
    assert len(before) == 2 and set(before.values()) == {"done"}
    script.write_text(script.read_text().replace(" hang 0", " hang 9"))
    again = shell(script, tmp_path)
    assert again.returncode == 0, again.stderr
    assert study(toml, "--out", folder, "--collect").returncode == 0
    assert list(states(folder).values()) == ["done"] * 4 and wrong_values(folder) == []
    attempts = {name: cell["attempt"] for name, cell in cells(folder).items()}
    assert attempts[hanging] == "attempt-2" and {attempts[name] for name in before} == {"attempt-1"}


def test_script_continues_after_failures_and_retries(tmp_path: Path) -> None:
    lock = tmp_path / "mended"
    code = f"import os, sys; sys.exit(int('{{number}}') * (not os.path.exists({str(lock)!r})))"
    toml = write_toml(tmp_path / "t.toml", [sys.executable, "-c", code], {"number": [3, 0], "ranks": [1]})
    script, folder = tmp_path / "t.sh", tmp_path / "out"
    study(toml, "--script", script, "--out", folder, cwd=tmp_path)
    assert shell(script, tmp_path).returncode == 1
    assert study(toml, "--out", folder, "--collect").returncode == 1
    failed, fine = "number=3,ranks=1,repeat=1", "number=0,ranks=1,repeat=1"
    assert states(folder) == {failed: "failed", fine: "done"}
    assert cells(folder)[failed]["reason"].startswith("exit code 3")
    lock.touch()
    assert shell(script, tmp_path).returncode == 1  # it has ended
    assert shell(script, tmp_path, RETRY="1").returncode == 0
    assert study(toml, "--out", folder, "--collect").returncode == 0
    assert {name: cell["attempt"] for name, cell in cells(folder).items()} == {failed: "attempt-2", fine: "attempt-1"}


@pytest.mark.slow
def test_script_retries_what_was_judged_incomplete(tmp_path: Path) -> None:
    """A rank leaves no result and all exit codes are fine: only the judge can tell."""
    toml = squares(tmp_path / "t.toml", axes={"number": [2, 3], "ranks": [1]})
    toml.write_text(
        toml.read_text().replace("[workload]", "[workload]\nresults = true").replace("squares.py", "once.py")
    )
    once = tmp_path / "once.py"
    once.write_text(
        f"import os, sys\nmark = {str(tmp_path / 'mark')!r}\n"
        f"if sys.argv[1] == '2' and not os.path.exists(mark): open(mark, 'w'); sys.exit(0)\n"
        f"exec(open({str(WORKLOAD)!r}).read())\n"
    )
    toml.write_text(toml.read_text().replace(str(WORKLOAD.with_name("once.py")), str(once)))
    script, folder = tmp_path / "t.sh", tmp_path / "out"
    study(toml, "--script", script, "--out", folder, cwd=tmp_path)
    assert shell(script, tmp_path).returncode == 0
    assert study(toml, "--out", folder, "--collect").returncode == 1
    assert set(states(folder).values()) == {"incomplete", "done"}
    assert shell(script, tmp_path, RETRY="1").returncode == 0
    assert study(toml, "--out", folder, "--collect").returncode == 0
    assert sorted(cell["attempt"] for cell in cells(folder).values()) == ["attempt-1", "attempt-2"]


def test_script_of_another_study_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        toml = write_toml(tmp_path / f"{name}.toml", [sys.executable, "-c", "pass"], {"ranks": [1]})
        study(toml, "--script", tmp_path / f"{name}.sh", "--out", "out", cwd=tmp_path)
    assert shell(tmp_path / "a.sh", tmp_path).returncode == 0
    lost = shell(tmp_path / "a.sh", tmp_path, SOURCE="/nowhere")
    assert lost.returncode == 2 and "no sources of rankscope there" in lost.stderr
    other = shell(tmp_path / "b.sh", tmp_path)
    assert other.returncode == 2 and "contains another study" in other.stderr


def test_words_survive_the_shell(tmp_path: Path) -> None:
    hard = ["it's", 'a "b"', "$HOME `x` \\", "two\nlines", "", "*"]
    program = tmp_path / "words.py"
    program.write_text("import json, sys; json.dump(sys.argv[2:], open(sys.argv[1] + '/words', 'w'))")
    toml = write_toml(tmp_path / "t.toml", [sys.executable, str(program), "{cell}", *hard], {"ranks": [1]})
    folder = tmp_path / "out with 'blanks'"
    study(toml, "--script", tmp_path / "t.sh", "--out", folder, cwd=tmp_path)
    assert shell(tmp_path / "t.sh", tmp_path).returncode == 0
    (words,) = folder.glob("cells/*/attempt-1/words")
    assert json.loads(words.read_text()) == hard


def test_built_in_study_for_a_python_that_is_not_here(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    words = ["startup", "--only", "backend=gloo", "--scale", "2", "--python", "/opt/there/python", "--out", "there"]
    assert study(*words, "--script", script, cwd=tmp_path).returncode == 2  # it cannot be asked
    assert study(*words, "--script", script, "--assume", "torch", cwd=tmp_path).returncode == 0
    text = script.read_text()
    assert '/opt/there/python "$SOURCE"/rankscope/studies/workloads/startup.py' in text
    assert str(ROOT) not in text.split("END", 2)[2]
    needs_mpi = study("startup", "--assume", "mpi4py,numpy", "--out", "x", "--script", "x.sh", cwd=tmp_path)
    assert needs_mpi.returncode == 2 and "--launcher openmpi" in needs_mpi.stderr
    assert not (tmp_path / "x.sh").exists()


def test_script_with_mpi(openmpi: Mpi, tmp_path: Path) -> None:
    toml = squares(
        tmp_path / "t.toml", openmpi.python, axes={"number": [2], "ranks": [2]}, launch={"launcher": "openmpi"}
    )
    study(toml, "--script", tmp_path / "t.sh", "--out", tmp_path / "out", cwd=tmp_path)
    assert shell(tmp_path / "t.sh", tmp_path).returncode == 0
    assert study(toml, "--out", tmp_path / "out", "--collect").returncode == 0
    assert wrong_values(tmp_path / "out") == [] and list(states(tmp_path / "out").values()) == ["done"]


@pytest.mark.parametrize("words", [["--collect"], ["--collect", "--out", "nowhere"], ["--script", "x.sh"]])
def test_what_is_missing_is_said_in_one_line(tmp_path: Path, words: list[str]) -> None:
    done = study("startup", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--out" in done.stderr


def json_plan(script: Path) -> dict[str, list[str]]:
    """What the script says was planned."""
    text = script.read_text()
    found: dict[str, list[str]] = json.loads(text[text.index("\n{\n") : text.index("\n}\nEND") + 3])
    return found
