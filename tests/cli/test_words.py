"""`rankscope tables`, `explain` and `completion`: what there is to ask for, and what it means."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.api.words import explain, table_list
from rankscope.cli import COMMANDS, main
from rankscope.cli.completion import bash, commands, fish, zsh
from rankscope.model.tables import Wrong
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
        ("launching", "label", "launches kernels too slowly"),
        ("straggler", "finding", "fires when"),
        ("Since run", "column of regressions", "first run of the new level"),
        ("steps", "table", "how long a step"),
        ("mpi", "table", "which MPI routines take the time"),
        ("variance_ms2", "column of steps", "Σ(value − mean)²"),
        ("Share of wait caused", "column of waiting", "÷"),
        ("before init", "phase", "end of the imports to init"),
        ("ONCE", "label", "one-time cost"),
        ("MPI_Init", "phase", "inside MPI_Init"),
        ("steps/s", "label", "mean steady step"),
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


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reprot"]) == 2 and "did you mean report" in capsys.readouterr().err
    assert main(["xyzzy"]) == 2 and "--help lists the commands" in capsys.readouterr().err


# ---------------------------------------------------------------- completion
UNPACKED = ROOT / ".envs" / "shells"  # `make env-shells`: where a shell is not installed
# Asks for the completion of one line as the tab key does, and writes down what is offered.
ZSHRC = """
autoload -Uz compinit && compinit -u -D
source $HOME/script
compadd() {
    local -a offered
    if [[ ${@[1,(i)(-|--)]} != *-[OAD]\\ * ]]; then
        builtin compadd -A offered "$@"
        print -rl -- $offered >> $HOME/offered
    fi
    builtin compadd "$@"
}
ask() { BUFFER=$ASKED; CURSOR=$#BUFFER; zle complete-word; exit 0 }
zle -N zle-line-init ask
"""


def bash_completes(line: str, folder: Path, home: Path) -> list[str]:
    words = line.split(" ")
    asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _rankscope"
    script = f"{bash(commands())}\n{asked}; echo ${{COMPREPLY[@]}}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=folder, check=True).stdout.split()


def unpacked(shell: str) -> tuple[str, Path]:
    """The program, and the folder in which a package was unpacked that has it: / where it is installed."""
    for found in (shutil.which(shell), *map(str, UNPACKED.glob(f"**/bin/{shell}"))):
        if found:
            root = next(
                (place for place in Path(found).parents if (place / "usr" / "share" / shell).is_dir()), Path("/")
            )
            return found, root
    pytest.skip(f"{shell} is not installed: `make env-shells` unpacks Debian's")


def zsh_completes(line: str, folder: Path, home: Path) -> list[str]:
    program, root = unpacked("zsh")
    home.mkdir(exist_ok=True)
    if root != Path("/"):
        modules, functions = next(root.glob("usr/lib/*/zsh/*")), root / "usr" / "share" / "zsh" / "functions"
        (home / ".zshenv").write_text(f"module_path=({modules}); fpath=({functions}/**/*(/) {functions})\n")
    (home / ".zshrc").write_text(ZSHRC)
    (home / "script").write_text(zsh(commands()), encoding="utf-8")
    (home / "offered").write_text("")
    environment = {**os.environ, "HOME": str(home), "ZDOTDIR": str(home), "ASKED": line, "TERM": "xterm"}
    ours, theirs = os.openpty()
    started = subprocess.Popen([program, "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment)
    os.close(theirs)
    with suppress(OSError):  # its end
        while os.read(ours, 4096):
            pass
    os.close(ours)
    assert started.wait(timeout=60) == 0
    before = line.rpartition(" ")[2].rpartition(",")
    return ["".join((*before[:2], word)) for word in (home / "offered").read_text().split()]


def fish_completes(line: str, folder: Path, home: Path) -> list[str]:
    program, root = unpacked("fish")
    home.mkdir(exist_ok=True)
    (home / "script").write_text(fish(commands()), encoding="utf-8")
    functions = f"set fish_function_path {root}/usr/share/fish/functions; " if root != Path("/") else ""
    libraries = ":".join(map(str, root.glob("usr/lib/*-linux-gnu"))) if root != Path("/") else ""
    done = subprocess.run(
        [program, "-c", f"{functions}source {home}/script; complete -C '{line}'"],
        env={**os.environ, "HOME": str(home), **({"LD_LIBRARY_PATH": libraries} if libraries else {})},
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    return [offered.partition("\t")[0] for offered in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_values_tables_and_runs(shell: str, tmp_path: Path) -> None:
    (tmp_path / "rankscope-runs" / "2026-11-16T10-00-00-march").mkdir(parents=True)
    completes = {"bash": bash_completes, "zsh": zsh_completes, "fish": fish_completes}[shell]
    for line, offered in {
        "rankscope rep": ["report"],
        "rankscope report --fo": ["--format"],
        "rankscope report --format j": ["json"],
        "rankscope report --table gpu_st": ["gpu_steps"],
        "rankscope report --table steps,gpu_st": ["steps,gpu_steps"],
        "rankscope report ma": ["march"],
        "rankscope compare ma": ["march"],
        "rankscope run --tr": ["--trace", "--trace-keep"],
    }.items():
        assert completes(line, tmp_path, tmp_path / "home") == offered, line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    known = commands()
    assert known.keys() == COMMANDS.keys() and known["report"].takes_run and not known["serve"].takes_run
    for name, command in known.items():
        assert name in script and command.options
        assert all((option if shell != "fish" else option.removeprefix("--")) in script for option in command.options)


@pytest.mark.parametrize("words", [[name] for name in COMMANDS] + [["imports", "replay"], ["imports", "project"]])
def test_help_keeps_to_the_width_of_a_terminal(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with suppress(SystemExit):
        main([*words, "--help"])
    wide = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
    assert [line for line in wide if "--perfetto | --chrome" not in line] == []  # argparse does not break that
