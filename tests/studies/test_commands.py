"""The commands `study` and `bench`: what they take, and what they say of what they do not take."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.cli import bench
from rankscope.cli import study as command
from rankscope.cli.study_options import parsed
from rankscope.studies.builtin import STUDIES
from studies.studying import ENVIRONMENT, RANKSCOPE, STUDY, squares


@pytest.mark.parametrize(
    "argv",
    [
        ["startup", "--elements", "7", "--scale", "2"],
        ["--scale", "2", "--elements", "7", "startup"],
        ["--out", "startup", "--elements=7", "--scale=2", "startup"],  # a folder called like a study
        ["--resume", "startup", "--out", "x.toml", "--elements", "7", "--scale", "2"],
    ],
)
def test_options_of_the_study_wherever_they_stand(argv: list[str]) -> None:
    options, study, _ = parsed(argv, command.parser())
    assert study.name == "startup" and options.set_elements == "7" and options.scale == [2]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(STUDIES)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nothing"], "nothing: no such study; choose one of"),
        (["startup", "--backends", "gloo", "--only", "colour=red"], "has no such axis; it has backend"),
        (["startup", "--backends", "gloo", "--only", "backend=smoke"], "there is no smoke; choose of"),
        (["startup", "--backends", "smoke"], "--backends smoke: choose of"),
        (["startup", "--resume"], "there is no study startup in rankscope-studies"),
        (["startup", "--python", "/no/python"], "--python /no/python: no such program"),
    ],
)
def test_mistakes(
    argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.run(argv) == 2
    told = capsys.readouterr().err
    assert told.startswith("rankscope study: ") and said in told and told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [["--scale", "0"], ["--scale", "two"], ["--repeat", "0"], ["--timeout", "nan"], ["--only", "x"], ["--ppn", "0"]],
)
def test_options_that_cannot_be(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run(["startup", *words])
    assert ended.value.code == 2 and "give " in capsys.readouterr().err


def test_bench_runs_one_cell(tmp_path: Path) -> None:
    toml = squares(tmp_path / "t.toml")
    words = [*RANKSCOPE, "bench", str(toml), "--only", "number=3", "--format", "csv", "--keep", str(tmp_path / "kept")]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3,2," in done.stdout
    assert [path.parent.name for path in tmp_path.glob("kept/cells/*/cell.json")] == ["number=3,ranks=2,repeat=1"]


def test_bench_says_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.toml").write_text('[workload]\ncommand = ["false"]\n')
    assert bench.run([str(tmp_path / "t.toml"), "--ranks", "1"]) == 1
    assert capsys.readouterr().err.startswith("rankscope bench: 1 rank, repeat 1: failed: exit code 1")


def test_bar_on_a_terminal(tmp_path: Path) -> None:
    """Lines of cells that have ended, and a bar below that is gone at the end."""
    ours, theirs = pty.openpty()
    toml = squares(tmp_path / "t.toml", axes={"number": [2, 3], "ranks": [1]})
    words = [*STUDY, str(toml), "--out", str(tmp_path / "out")]
    variables = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "120"}
    running = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # so a terminal says that nobody writes any more
        pass
    os.close(ours)
    assert running.wait() == 0
    text = said.decode()
    assert "[1/2] 2, 1 rank, repeat 1: done in" in text and "[2/2] 3, 1 rank, repeat 1: done in" in text
    assert "1/2" in text and "about" in text and "left" in text


def test_piped_into_head(tmp_path: Path) -> None:
    toml = squares(tmp_path / "t.toml", axes={"number": [2], "ranks": [1]})
    words = f"{sys.executable} -m rankscope study {toml} --out {tmp_path / 'out'} | head -1"
    done = subprocess.run(["sh", "-c", words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.stdout == "Where the time goes\n" and "Traceback" not in done.stderr
