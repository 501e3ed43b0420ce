"""Studies from a file: what is wrong in it is said before anything runs, in one line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.plan import Cell, CellJob
from rankscope.studies.toml_study import read_study
from studies.studying import cells, squares, states, study, wrong_values

GOOD = '[workload]\ncommand = ["python", "x.py", "{size}"]\n[axes]\nsize = [1, "big"]\nranks = [1, 2]\n'


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_becomes_a_study(tmp_path: Path) -> None:
    text = f"""name = "mine"
title = "Mine"
repeat = 3
timeout_s = 9
[launch]
launcher = "openmpi"
per_node = 2
{GOOD}
[workload.environment]
SIZE = "{{size}}"
"""
    made, launch = read_study(written(tmp_path / "s.toml", text))
    assert (made.name, made.title, made.repeats, made.timeout_s, made.scales) == ("mine", "Mine", 3, 9.0, (1, 2))
    assert made.axes({}) == {"size": ["1", "big"]}
    assert launch == {"launcher": "openmpi", "per_node": 2}
    job = made.job(Cell((("size", "big"),), 2, 1), {}, Pythons([]), "/cell")
    assert isinstance(job, CellJob)
    assert job.command == ("python", "x.py", "big") and job.environment == {"SIZE": "big"} and not job.results


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[workload", "not TOML"),
        ("", "no workload; as in"),
        ('[workload]\ncommand = "python x.py"', "workload.command is a str where another type is expected"),
        (f"{GOOD}[lunch]\nlauncher = 'local'", "lunch is unknown; known are name"),
        (f"colour = 1\n{GOOD}", "colour is unknown"),
        (f"repeat = true\n{GOOD}", "repeat is a bool"),
        (f"repeat = 0\n{GOOD}", "repeat must be more than 0"),
        (f"timeout_s = -1.5\n{GOOD}", "timeout_s must be more than 0"),
        (f'name = "../up"\n{GOOD}', "name may have letters"),
        (f'show = ["nothing"]\n{GOOD}', "show: there is no table nothing"),
        (f'{GOOD}[launch]\nlauncher = "rsh"', "launch.launcher rsh: choose one of auto, mpirun, local"),
        (GOOD.replace('[1, "big"]', "7"), "axes.size must be a list"),
        (GOOD.replace('[1, "big"]', "[]"), "axes.size must be a list of at least one value"),
        (GOOD.replace('[1, "big"]', "[[1]]"), "axes.size: its values must be strings or numbers"),
        (GOOD.replace('[1, "big"]', '[1, "1"]'), "axes.size has a value twice"),
        (GOOD.replace("[1, 2]", "[0]"), "axes.ranks must be whole numbers above 0"),
        (GOOD.replace("[1, 2]", '["two"]'), "axes.ranks must be whole numbers above 0"),
        (GOOD.replace("size = ", "repeat = "), "axes.repeat: an axis cannot be called repeat"),
        (GOOD.replace("{size}", "{sise}"), "'{sise}': braces may contain size, ranks, repeat, cell"),
        (GOOD.replace("{size}", "{"), "write a brace itself twice"),
        (GOOD.replace("[axes]", "results = 1\n[axes]"), "workload.results is a int"),
        ("workload = 3", "[workload] must be a table"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path / "s.toml", text)
    with pytest.raises(BadStudy) as problem:
        read_study(path)
    assert str(problem.value).startswith(f"{path}: ") and said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_the_command_says_it_too(tmp_path: Path) -> None:
    for path in (written(tmp_path / "s.toml", "[workload"), tmp_path / "absent.toml"):
        done = study(path)
        assert done.returncode == 2 and done.stderr.startswith(f"rankscope study: {path}: ")
        assert done.stderr.count("\n") == 1


def test_the_definition_is_what_cells_run(tmp_path: Path) -> None:
    def definition(text: str) -> str:
        return read_study(written(tmp_path / "s.toml", text))[0].definition

    first = definition(GOOD)
    assert definition(f'title = "Other"\nrepeat = 2\n{GOOD.replace("[1, 2]", "[1, 2, 4]")}') == first
    assert definition(GOOD.replace("x.py", "y.py")) != first
    secret = definition(f'{GOOD}[workload.environment]\nTOKEN = "abc123"')
    assert secret != first and "abc123" not in secret


def test_the_page_s_example_runs(tmp_path: Path) -> None:
    """docs/commands/study.md shows a file of one's own; here it is run, on fewer values."""
    page = (ROOT / "docs" / "commands" / "study.md").read_text(encoding="utf-8")
    found = re.search(r"```toml\n(.+?)```", page, re.DOTALL)
    assert found
    (tmp_path / "train.py").write_text(EXAMPLE)
    toml = written(tmp_path / "batches.toml", found[1].replace('"python"', f'"{sys.executable}"'))
    done = study(toml, "--out", "out", "--scale", "1,2", "--only", "batch=16", "--repeat", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(states(tmp_path / "out").values()) == {"done"}
    for form in ("md", "html"):
        text = (tmp_path / "out" / f"batches.{form}").read_text(encoding="utf-8")
        assert "Where the time goes" in text and "Steps" in text


EXAMPLE = """
import sys, time
import rankscope
for step in range(4):
    time.sleep(int(sys.argv[sys.argv.index("--batch") + 1]) / 4000)
    rankscope.step()
"""


def test_results_of_one_s_own(tmp_path: Path) -> None:
    toml = squares(tmp_path / "t.toml", axes={"number": [2], "ranks": [1, 3]})
    toml.write_text(toml.read_text().replace("[workload]", "[workload]\nresults = true"))
    done = study(toml, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "t.md").read_text().splitlines()
    assert lines[lines.index("## Results of the ranks") + 2 :][:4] == [
        "| number | Ranks | value |",
        "| --- | ---: | ---: |",
        "| 2 | 1 | 4 |",
        "| 2 | 3 | 8 |",  # of 4, 8 and 12
    ]
    toml.write_text(toml.read_text().replace("[2]", "[3]").replace('"{cell}"]', '"{cell}", "missing", "1"]'))
    assert study(toml, "--out", tmp_path / "less", "--scale", "3").returncode == 1
    (cell,) = cells(tmp_path / "less").values()
    assert (cell["state"], cell["reason"]) == ("incomplete", "2 of 3 ranks left a result")


def test_only_and_repeat(tmp_path: Path) -> None:
    toml, folder = squares(tmp_path / "t.toml"), tmp_path / "out"
    done = study(toml, "--out", folder, "--only", "number=3", "--scale", "1", "--repeat", "2")
    assert done.returncode == 0
    assert list(states(folder)) == ["number=3,ranks=1,repeat=1", "number=3,ranks=1,repeat=2"]
    assert wrong_values(folder) == []
    again = study(toml, "--out", folder, "--resume")  # what was asked for is remembered
    assert again.returncode == 0 and len(states(folder)) == 2
