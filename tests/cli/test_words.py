"""`rankscope tables`, `explain` and `completion`: what there is to ask for, and what it means."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rankscope.api.words import explain, table_list
from rankscope.cli import COMMANDS, main
from rankscope.cli.completion import bash, commands
from rankscope.model import Wrong
from rankscope.questions.registry import ALIASES, QUESTIONS
from rankscope.questions.run.screen import LABELS, LEVELS
from rankscope.questions.run.screen_ranks import IDLE, OWN


def test_every_table_is_listed_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["tables"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == sorted(QUESTIONS)
    assert max(map(len, lines)) <= 100 and "STEPS" in lines and "GPU" in lines
    assert len({row[2] for row in table_list().rows}) == len(QUESTIONS)  # each says something of its own


@pytest.mark.parametrize(
    ("word", "kind", "text"),
    [
        ("exposed communication", "label", "blocked in collectives"),
        ("Exposed", "word", "holds up computing"),
        ("launching", "label", "launches too slowly"),
        ("straggler", "finding", "fires when"),
        ("steps", "table", "how long a step"),
        ("mpi", "table", "which MPI routines take the time"),
        ("variance_ms2", "column of steps", "Σ(value − mean)²"),
        ("Share of wait caused", "column of waiting", "÷"),
        ("before init", "phase", "end of the imports to init"),
        ("ONCE", "label", "paid once"),
    ],
)
def test_a_word_is_explained(word: str, kind: str, text: str) -> None:
    found = explain(word)
    assert any(one.kind == kind and text in one.text for one in found), found


def test_every_label_column_table_and_rule_is_explained() -> None:
    known = {*LABELS, *QUESTIONS, *ALIASES, *IDLE.values(), *OWN.values(), *LEVELS}
    for word in known:
        assert explain(word), word
    assert {*IDLE.values(), *OWN.values(), *LEVELS} <= LABELS.keys()


def test_an_unknown_word_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Wrong, match="did you mean straggler"):
        explain("stragler")
    assert main(["explain", "stragler"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["explain", "wait", "caused"]) == 0
    assert "wait of all others for it" in capsys.readouterr().out


# ---------------------------------------------------------------- completion
def completed(words: list[str], folder: Path) -> list[str]:
    """What bash offers for the last word."""
    asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _rankscope"
    script = f"{bash(commands())}\n{asked}; echo ${{COMPREPLY[@]}}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=folder, check=True).stdout.split()


def test_bash_completes_commands_options_values_tables_and_runs(tmp_path: Path) -> None:
    (tmp_path / "rankscope-runs" / "2026-11-16T10-00-00-march").mkdir(parents=True)
    assert completed(["rankscope", "rep"], tmp_path) == ["report"]
    assert completed(["rankscope", "report", "--fo"], tmp_path) == ["--format"]
    assert completed(["rankscope", "report", "--format", "j"], tmp_path) == ["json"]
    assert completed(["rankscope", "report", "--table", "gpu_st"], tmp_path) == ["gpu_steps"]
    assert completed(["rankscope", "report", "--table", "steps,gpu_st"], tmp_path) == ["steps,gpu_steps"]
    assert completed(["rankscope", "report", "ma"], tmp_path) == ["march"]
    assert completed(["rankscope", "run", "--tr"], tmp_path) == ["--trace", "--trace-keep"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    known = commands()
    assert known.keys() == COMMANDS.keys() and known["report"].takes_run and not known["serve"].takes_run
    for name, command in known.items():
        assert name in script and command.options
        assert all((option if shell != "fish" else option.removeprefix("--")) in script for option in command.options)
