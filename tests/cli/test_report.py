"""`rankscope report`, called as the dispatcher calls it."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import rankscope as rs
from rankscope.cli.report import parser, run
from rankscope.questions.registry import ALL_QUESTIONS, QUESTIONS, Needs, Shown
from runs.small_run import SECOND, mpi_rank, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ranks = [mpi_rank(rank, 4) for rank in range(4)]
    for rank, made in enumerate(ranks):
        world = made.group("MPI_COMM_WORLD", identity=1, size=4)
        made.tally("MPI_Allreduce", 10, (rank + 1) * SECOND, bytes=80, size_class=4, group=world)
        made.tally("MPI_\x1b[2Jevil[bold]", 1, 5, group=world)
    return write_run(tmp_path / "run", *ranks, expected_ranks=4)


def test_every_form_tells_the_same_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--full"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"MPI_Allreduce +40 +10.0 s +31.2 %", text) and "\x1b" not in text
    assert run([str(folder), "--format", "csv", "--table", "routines"]) == 0
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert rows["MPI_Allreduce"]["total_ns"] == "10000000000.0"
    assert run([str(folder), "--format", "json"]) == 0
    told = {table["name"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    assert list(told) == [
        each.name for each in ALL_QUESTIONS if each.needs is not Needs.EVENTS and each.shown is Shown.ALWAYS
    ]
    assert told["routines"]["rows"][0][:3] == ["MPI_Allreduce", 40, 10.0 * SECOND]
    assert run([str(folder), "--format", "markdown"]) == 0
    assert "| MPI_Allreduce | 40 | 10.0 s | 31.2 % |" in capsys.readouterr().out


def test_ranks_can_be_chosen(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--rank", "0,2-3", "--format", "csv", "--table", "ranks"]) == 0
    assert [row["rank"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == ["0", "2", "3"]
    assert run([str(folder), "--rank", "3", "--format", "csv", "--table", "routines"]) == 0
    assert "MPI_Allreduce,10,4000000000.0,0.5," in capsys.readouterr().out


def test_sort_and_top(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--sort", "comm_ns", "--top", "2", "--format", "csv", "--table", "ranks"]) == 0
    assert [row["rank"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == ["3", "2"]


def test_mpitrace_layout_of_all_and_of_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--layout", "mpitrace"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"Data for MPI rank (\d) of 4", out) == ["0", "1", "2", "3"]
    assert out.count("MPI timing summary for all ranks") == 1 and "\x1b" not in out
    assert run([str(folder), "--layout", "mpitrace", "--rank", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Data for MPI rank 2 of 4") and out.count("MPI timing summary") == 1


def test_the_report_can_go_to_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--full", "--out", str(tmp_path / "report.txt")]) == 0
    assert "MPI routines" in (tmp_path / "report.txt").read_text() and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such run"),
        (["RUN", "--rank", "x"], "--rank x: give ranks as in 0,4-7"),
        (["RUN", "--rank", "2,9"], "no rank 9 in this run, which has ranks 0-3"),
        (["RUN", "--full", "--sort", "colour"], "--sort colour: no such column; choose one of"),
        (["RUN", "--sort", "bytes"], "--sort and --top order and cut tables: add --table NAME or --full"),
        (["RUN", "--table", "steps,stepps"], "--table stepps: no such table; nearest: steps, step_parts, gpu_steps"),
        (["RUN", "--top", "-1"], "--top -1"),
        (["RUN", "--out", "no/such/folder"], "no/such/folder: cannot be written"),
    ],
)
def test_bad_requests_are_one_line_and_exit_2(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(folder) if word == "RUN" else word for word in arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("rankscope: ") and message in told.err and told.err.count("\n") == 1
    assert told.out == ""


def test_a_file_that_cannot_be_read_is_told_and_the_rest_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ranks/node0/103.rank").write_bytes(b"x" * 9000)
    assert run([str(folder)]) == 1
    told = capsys.readouterr()
    assert "103.rank: not a rank file" in told.err and "MPI_Allreduce" in told.out
    assert told.out.startswith("INCOMPLETE: 1 of 4 ranks not recorded (rank 3): sums")


def test_tables_of_events_are_shown_when_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (each.name for each in ALL_QUESTIONS if each.needs is Needs.EVENTS):
        assert run([str(folder), "--format", "json", "--table", name]) == 0
        [table] = json.loads(capsys.readouterr().out)["tables"]
        assert (table["name"], table["rows"]) == (name, [])  # a run of MPI alone


def test_only_bad_files_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path, mpi_rank(0, 1))
    (folder / "ranks/node0/100.rank").write_bytes(b"")
    assert run([str(folder)]) == 2
    assert "none of its files could be read" in capsys.readouterr().err


def test_the_latest_run_is_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "rankscope-runs").mkdir()
    (folder.parent / "rankscope-runs/latest").symlink_to(folder)
    assert run([]) == 0
    assert "MPI_Allreduce" in capsys.readouterr().out


CALL = [sys.executable, "-c", "import sys; from rankscope.cli.report import run; sys.exit(run(sys.argv[1:]))"]


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    done = subprocess.run(["sh", "-c", '"$@" | head -1', "sh", *CALL, folder], capture_output=True, text=True)
    assert done.stdout.startswith("rankscope  ") and done.stdout.count("\n") == 1 and done.stderr == ""


def test_a_terminal_without_unicode_gets_escapes(folder: Path) -> None:
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*CALL, folder], capture_output=True, env=plain)
    assert done.returncode == 0 and done.stdout.isascii()


def test_colour_on_a_terminal_but_no_escapes_from_names(folder: Path) -> None:
    master, slave = pty.openpty()
    subprocess.run(
        [*CALL, folder, "--table", "routines"], stdout=slave, env={**os.environ, "TERM": "xterm"}, check=True
    )
    os.close(slave)
    shown = os.read(master, 100_000).decode()
    os.close(master)
    assert "\x1b[1m" in shown and "\x1b[2J" not in shown and r"\x1b[2Jevil[bold]" in shown


def test_the_documentation_has_the_help() -> None:
    page = (ROOT / "docs/commands/report.md").read_text()
    for action in parser()._actions:
        for name in action.option_strings[-1:]:
            assert name in page, name
    for name in QUESTIONS:
        assert f"`{name}`" in page, name


def test_a_table_without_rows_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(folder), "--table", "matrix"]) == 0
    title, why = capsys.readouterr().out.splitlines()
    assert "Empty" not in title and why.startswith("Empty: ") and "--matrix" in why
    assert run([str(folder), "--table", "cuda_api", "--rank", "1"]) == 0
    assert "Empty: of the chosen ranks no CUDA call" in capsys.readouterr().out
    assert run([str(folder), "--table", "routines"]) == 0
    assert "Empty" not in capsys.readouterr().out


def test_every_question_knows_why_its_answer_may_be_empty(folder: Path) -> None:
    assert [name for name, question in QUESTIONS.items() if not question.empty] == ["overview", "coverage"]
    few, without_rows = rs.open(folder), 0
    for name in QUESTIONS:
        answer = few.table(name)
        without_rows += not answer.rows
        assert bool(answer.rows) != any(note.startswith("Empty: ") for note in answer.notes), name
    assert without_rows > 20


# ---------------------------------------------------------------- on a terminal
def on_terminal(folder: Path, rows: int, *options: str, **variables: str) -> str:
    """What a terminal of so many lines is written."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    for name in ("COLUMNS", "LINES", *(() if "NO_COLOR" in variables else ("NO_COLOR",))):
        environment.pop(name, None)
    with subprocess.Popen([*CALL, folder, *options], stdin=slave, stdout=slave, env=environment) as started:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while block := os.read(master, 65536):
                shown += block
        assert started.wait() == 0
    os.close(master)
    return shown.decode()


def test_what_is_longer_than_the_terminal_goes_through_the_pager(folder: Path) -> None:
    pager = "sed -e 's/^/paged: /'"
    assert on_terminal(folder, 20, "--full", PAGER=pager).count("paged: ") > 20
    assert "paged: " not in on_terminal(folder, 500, "--full", PAGER=pager)
    assert "paged: " not in on_terminal(folder, 20, "--full", PAGER="cat")
    assert "MPI_Allreduce" in on_terminal(folder, 20, "--full", PAGER="no-such-pager-here")


def test_colour_on_a_terminal_alone_and_not_where_it_is_unwanted(folder: Path) -> None:
    assert "\x1b[1mWHAT TO DO\x1b[0m" in on_terminal(folder, 60)
    assert "\x1b" not in on_terminal(folder, 60, NO_COLOR="1")
    assert "\x1b" not in subprocess.run([*CALL, folder], capture_output=True, text=True, check=True).stdout
