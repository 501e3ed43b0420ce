"""`rankscope load`, called as the dispatcher calls it, on files whose every number is known."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from rankscope.api import load
from rankscope.cli import load as command
from rankscope.cli import report
from rankscope.formats.registry import FORMATS
from rankscope.questions.scaling.scaling import of_documents
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import OpenOptions, RunTables, open_run
from runs.small_run import SECOND, mpi_rank, write_run

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("toy", "here")
GPU = "toy profile\nprocess rank={rank} host=a\ntally gpu gemm 3 600\ntally gpu copy 1 50\n"


def opened(path: str = "rankscope-runs/latest") -> RunTables:
    return open_run(Path(path), read_rank_file, OpenOptions(events=False))


def table(name: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, str]]:
    capsys.readouterr()
    assert report.run(["--format", "csv", "--table", name, *more]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_a_loaded_file_is_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text(GPU.format(rank=2) + "event gpu gemm 100 250\n")
    assert command.run(["a.txt"]) == 0
    assert "1 file read (1 toy), 1 process" in capsys.readouterr().out
    run = opened()
    assert run.query("SELECT rank, host, tool, role, source FROM ranks") == [(2, "a", "toy", "rank", "a.txt")]
    assert run.query("SELECT layer, name, calls, total_ns, kind FROM tallies ORDER BY name") == [
        ("gpu", "copy", 1, 50.0, "call"),
        ("gpu", "gemm", 3, 600.0, "call"),
    ]
    assert run.query("SELECT name, start_ns, end_ns FROM events") == [("gemm", 100, 250)]
    told = json.loads(Path("rankscope-runs/latest/run.json").read_text())
    assert told["format"] == 1 and told["loaded"] is True
    assert [(row["name"], row["calls"]) for row in table("gpu", capsys)] == [("gemm", "3"), ("copy", "1")]


def test_layers_without_a_table_of_their_own_are_in_the_general_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("toy profile\ntally disk read 3 600\ntally disk open 1 200\ntally gpu gemm 1 1\n")
    assert command.run(["a.txt"]) == 0
    rows = [(row["name"], row["calls"], row["share"], row["mean_ns"]) for row in table("tallies", capsys)]
    assert rows == [("read", "3", "0.75", "200.0"), ("open", "1", "0.25", "200.0")]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_are_read_directly(pack: object) -> None:
    Path("a.txt").write_bytes(pack(GPU.format(rank=0).encode()))  # type: ignore[operator]
    assert command.run(["a.txt"]) == 0
    assert opened().query("SELECT sum(calls) FROM tallies") == [(4,)]


def test_the_same_content_again_replaces_and_a_changed_file_too() -> None:
    Path("a.txt").write_text(GPU.format(rank=0))
    assert command.run(["a.txt", "--name", "x"]) == command.run(["a.txt", "--name", "x"]) == 0
    Path("b.txt").write_text(GPU.format(rank=0))
    assert command.run(["b.txt", "--name", "x"]) == 0
    assert opened("rankscope-runs/x").query("SELECT sum(calls) FROM tallies") == [(4,)]
    Path("b.txt").write_text(GPU.format(rank=0) + "tally gpu gemm 10 1\n")
    assert command.run(["b.txt", "--name", "x"]) == 0
    assert opened("rankscope-runs/x").query("SELECT sum(calls) FROM tallies") == [(14,)]
    assert not [name for name in os.listdir("rankscope-runs/x/loaded") if name.startswith(".")]


def test_copies_among_the_files_are_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.txt", "b.txt"):
        Path(name).write_text(GPU.format(rank=0))
    assert command.run(["a.txt", "b.txt", "a.txt"]) == 0
    assert "b.txt: has the same content as a.txt: read once" in capsys.readouterr().err
    assert opened().query("SELECT sum(calls) FROM tallies") == [(4,)]


def test_folders_and_patterns_and_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(40):
        path = Path(f"job/node{rank % 4}/out.{rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GPU.format(rank=rank))
    Path("job/.hidden").write_text("nothing of ours")
    assert command.run(["job"]) == 0
    assert opened().query("SELECT count(*), min(rank), max(rank) FROM ranks WHERE role = 'rank'") == [(40, 0, 39)]
    assert opened().query("SELECT sum(calls) FROM tallies") == [(160,)]
    assert command.run(["job/*/out.1?", "--name", "some"]) == 0
    assert opened("rankscope-runs/some").query("SELECT count(*) FROM ranks") == [(10,)]


def test_one_process_reads_the_same_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(20):
        Path(f"out.{rank}").write_text(GPU.format(rank=rank) + f"tally gpu n{rank} {rank + 1} {rank}\n")
    rows = []
    for name, few in (("pool", 16), ("alone", 1000)):
        monkeypatch.setattr(load, "POOL_FROM_FILES", few)
        assert command.run(["out.*", "--name", name]) == 0
        sql = "SELECT rank, name, calls, total_ns FROM tallies JOIN ranks USING (process) ORDER BY ALL"
        rows.append(opened(f"rankscope-runs/{name}").query(sql))
    assert rows[0] == rows[1] and len(rows[0]) == 60


def test_what_nobody_knows_is_one_line_and_the_rest_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good").write_text(GPU.format(rank=0))
    Path("prose").write_text("just words\n")
    Path("bytes").write_bytes(b"abc\0def")
    Path("empty").write_text("")
    Path("broken").write_text("toy profile\ntally gpu gemm many 1\n")
    assert command.run(["good", "prose", "bytes", "empty", "broken", "absent"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and all(line.startswith("rankscope: ") for line in lines)
    for part in (
        "absent: no such file",
        "prose: has no known format",
        "a zero at byte 3",
        "empty: is empty",
        "broken:2: not a tally",
    ):
        assert sum(part in line for line in lines) == 1, part
    assert opened().query("SELECT sum(calls) FROM tallies") == [(4,)]


def test_nothing_readable_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    Path("prose").write_text("just words\n")
    assert command.run(["prose"]) == 2
    assert os.listdir("rankscope-runs") == []


def test_a_readers_mistake_costs_only_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a").write_text("toy profile\ncrash here\n")
    Path("b").write_text(GPU.format(rank=0))
    assert command.run(["a", "b"]) == 1
    assert "the toy reader failed (ZeroDivisionError: a mistake of the reader)" in capsys.readouterr().err
    assert len(os.listdir("rankscope-runs/latest/loaded")) == 1


def test_numbers_that_fit_no_table_are_an_error_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a").write_text(f"toy profile\ntally gpu gemm {2**70} 1\n")
    assert command.run(["a"]) == 2
    assert "a: contains what fits no table" in capsys.readouterr().err


def test_a_run_that_was_recorded_is_extended(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [mpi_rank(rank, 2) for rank in range(2)]
    for made in ranks:
        made.tally("MPI_Allreduce", 10, SECOND, bytes=80, size_class=4)
    folder = write_run(Path("rankscope-runs/2026-01-01T00-00-00-train").absolute(), *ranks, expected_ranks=2)
    Path("g0").write_text("toy profile\nprocess rank=0 world_size=2\ntally gpu gemm 3 600\n")
    assert command.run(["g0", "--name", "train"]) == 0
    run = opened(str(folder))
    assert run.query("SELECT rank, tool, mpi_elapsed_ns, ending FROM ranks ORDER BY rank") == [
        (0, "toy", 8 * SECOND, "exited"),
        (1, "", 8 * SECOND, "exited"),
    ]
    sql = "SELECT rank, layer, sum(calls) FROM tallies JOIN ranks USING (process) GROUP BY ALL ORDER BY ALL"
    assert run.query(sql) == [(0, "gpu", 3), (0, "mpi", 10), (1, "mpi", 10)]
    assert not Path("rankscope-runs/latest").exists()
    assert report.run([str(folder), "--full"]) == 0
    assert "MPI_Allreduce" in (out := capsys.readouterr().out) and "gemm" in out and "unknown" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the files"),
        (["x", "--as", "none"], "--as none: no such format; choose one of"),
        (["x", "--rank", "-1"], "--rank -1"),
        (["x", "--name", "a", "--out", "b"], "--name or --out"),
        (["x", "--map", "nowhere"], "--map nowhere: no such file"),
        (["x", "--out", "."], "neither a run nor empty"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x").write_text(GPU.format(rank=0))
    assert command.run(arguments) == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and told.out == ""


def test_formats_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["--list"]) == 0
    assert "toy              a format of the tests" in capsys.readouterr().out.splitlines()


def test_the_index_names_every_format() -> None:
    page = (ROOT / "docs/formats/index.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if name != "toy" and f"`{name}`" not in page] == []


def test_names_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[2J[red]"
    Path(name).write_text(GPU.format(rank=0) + "tally gpu \x1b]0;x\x07[bold] 1 1\nnote \x1b[31m<script>\n")
    Path(name + "2").write_text("toy profile\ntally \x1b[2J\n")
    assert command.run([name, name + "2"]) == 1
    assert report.run(["--full"]) == 0
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err and "\x07" not in told.out and "<script>" in told.out


def test_a_trace_without_gpu_work_has_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("toy profile\nprocess rank=0 host=a\nevent cpu forward 100 250\n")
    assert command.run(["a.txt"]) == 0
    assert report.run([]) == 0
    assert table("gpu_time", capsys) == []


TABLE = "nodes,time (s)\n1,1.5\n2,1.6\n"


def test_the_same_series_of_two_folders_stays_two(capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("monday", "friday"):
        Path(place).mkdir()
        Path(place, "table.csv").write_text(TABLE.replace("1.5", "2.5") if place == "friday" else TABLE)
    assert command.run(["monday", "friday", "--as", "handmade"]) == 0
    told = {(row["series"], row["scale"], row["value_ns"]) for row in table("figures", capsys)}
    assert ("time (s) [monday/table.csv]", "1", "1500000000") in told
    assert ("time (s) [friday/table.csv]", "1", "2500000000") in told and len(told) == 4
    assert len(of_documents(opened())) == 2


METRICS = "name,min,max,mean,variance,stdev\n{metric},-3,2,1,0.25,0.5\n"


def load_from_two_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one name, each loaded from where it lies."""
    for place, metric in (("monday", "forward"), ("friday", "backward")):
        Path(place).mkdir()
        Path(place, "trainer.csv").write_text(METRICS.format(metric=metric))
        with monkeypatch.context() as there:
            there.chdir(place)
            assert command.run(["trainer.csv", "--out", "../run"]) == 0


def test_equal_names_loaded_from_two_folders_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load_from_two_folders(monkeypatch)
    negative = [row["where"] for row in table("checks", capsys, "run") if "is negative" in row["text"]]
    assert negative == ["monday/trainer.csv:2", "friday/trainer.csv:2"]
    series = dict.fromkeys(row["series"] for row in table("figures", capsys, "run"))
    assert list(series) == ["trainer [monday/trainer.csv]", "trainer [friday/trainer.csv]"]


def test_a_name_that_is_the_only_one_stays_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    Path("monday").mkdir()
    Path("monday/trainer.csv").write_text(METRICS.format(metric="forward"))
    Path("server.csv").write_text(METRICS.format(metric="backward"))
    assert command.run([str(Path("monday/trainer.csv").absolute()), "server.csv"]) == 0
    told = [row["where"] for row in table("checks", capsys) if "is negative" in row["text"]]
    assert told == [f"{Path('monday/trainer.csv').absolute()}:2", "server.csv:2"]
    assert {row["series"] for row in table("figures", capsys)} == {"trainer", "server"}


def test_the_first_screen_of_figures_without_a_scale_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("trainer.csv").write_text(METRICS.format(metric="forward").replace("-3", "0.5"))
    assert command.run(["trainer.csv"]) == 0 and report.run([]) == 0
    told = capsys.readouterr().out
    assert "Aggregate figures only: nothing to check.\n" in told
    assert ["forward", "1", "ms", "500", "µs", "2", "ms"] in [line.split() for line in told.splitlines()]
    assert "FIGURES  " in told and "Value" in told


def test_files_of_another_job_are_told_by_their_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for folder, size in (("monday", 2), ("friday", 3)):
        Path(folder).mkdir()
        for rank in range(size):
            about = f"toy profile\nprocess rank={rank} world_size={size} host=a\ntally mpi MPI_Send {rank + 1} {size}\n"
            Path(folder, f"{rank}.txt").write_text(about)
    assert command.run(["monday", "friday"]) == 0 and report.run([]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "WARNING: 3 files of friday describe ranks 0-2 of 3: another job. They are not in these tables" in told


def test_a_closed_pipe_is_no_error_and_changes_no_exit_code() -> None:
    Path("a.csv").write_text(TABLE)
    rankscope = [sys.executable, "-m", "rankscope"]
    for words, code in ((["load", "a.csv", "none.txt", "--out", "run"], "1"), (["tables"], "0")):
        script = '{ "$@"; echo $? > code; } | true'
        done = subprocess.run(["sh", "-c", script, "sh", *rankscope, *words], capture_output=True, text=True)
        assert "Traceback" not in done.stderr and Path("code").read_text().strip() == code
