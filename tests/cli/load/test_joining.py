"""Which loaded process is which rank: by the file, the user, the file's name, and what other files say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankscope.cli import load as command
from rankscope.cli import report
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import OpenOptions, RunTables, open_run

pytestmark = pytest.mark.usefixtures("toy", "here")


def write(name: str, *lines: str) -> str:
    Path(name).write_text("\n".join(["toy profile", *lines, ""]))
    return name


def loaded(*names: str, **options: object) -> RunTables:
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    assert command.run([*names, *words, "--out", "run"]) == 0
    return open_run(Path("run"), read_rank_file, OpenOptions(events=False))


def ranks(run: RunTables) -> list[tuple[object, ...]]:
    return run.query("SELECT rank, role, rank_source FROM ranks ORDER BY process")


def notes(run: RunTables) -> list[str]:
    return [row[0] for row in run.query("SELECT text FROM notes")]


def test_the_user_says_the_rank() -> None:
    run = loaded(write("rank7", "tally gpu a 1 1"), rank=3)
    assert ranks(run) == [(3, "rank", "--rank")] and notes(run) == []


def test_the_file_knows_better_than_the_user() -> None:
    run = loaded(write("a", "process rank=5", "tally gpu a 1 1"), rank=3)
    assert ranks(run) == [(5, "rank", "")]
    assert notes(run) == ["--rank 3 was not used: the file itself says rank 5"]


def test_one_rank_cannot_be_said_of_two_processes() -> None:
    run = loaded(write("a", "process pid=5", "tally gpu a 1 1", "process pid=6", "tally gpu a 1 1"), rank=3)
    assert ranks(run) == [(0, "rank", "order of loading"), (1, "rank", "order of loading")]
    assert notes(run) == ["--rank 3 was not used: the file describes 2 processes"]


@pytest.mark.parametrize(
    ("name", "rank"), [("trace_rank-12.json", 12), ("rank3", 3), ("RANK_4.txt", 4), ("frank3", 0), ("r.rank1.rank2", 2)]
)
def test_the_name_is_the_last_resort_and_is_told(name: str, rank: int) -> None:
    run = loaded(write(name, "tally gpu a 1 1"))
    assert run.query("SELECT rank FROM ranks") == [(rank,)]
    assert bool(notes(run)) == (name != "frank3")


def test_without_any_rank_processes_are_numbered_as_read() -> None:
    names = [write(f"log.{number}", f"tally gpu a {number} 1") for number in (2, 10, 9)]
    run = loaded("log.*")
    sql = "SELECT rank, calls FROM tallies JOIN ranks USING (process) ORDER BY rank"
    assert len(names) == 3 and run.query(sql) == [(0, 2), (1, 9), (2, 10)]


def test_two_tools_that_tell_different_layers_make_one_rank() -> None:
    mpi = write("m", "process rank=0 host=n1", "tally mpi MPI_Send 2 5")
    gpu = write("g", "process rank=0 host=n1.site.org pid=9", "tally gpu gemm 3 6")
    run = loaded(mpi, gpu)
    assert run.query("SELECT count(*), min(pid), min(source) FROM ranks") == [(1, 9, "m; g")]
    assert run.query("SELECT layer, calls FROM tallies ORDER BY layer") == [("gpu", 3), ("mpi", 2)]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        # the same layer: adding would count twice
        ("process rank=0\ntally mpi MPI_Send 2 5", "b describes rank 0 again: from another job?"),
        ("process rank=0 host=n2\ntally gpu a 2 5", "b describes rank 0 again: from another job?"),
        ("process rank=0 world_size=8\ntally gpu a 2 5", "b describes rank 0 of 8: another job."),
    ],
)
def test_what_clashes_is_another_job_and_is_told(second: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = loaded(write("a", "process rank=0 host=n1 world_size=1", "tally mpi MPI_Send 1 5"), write("b", second))
    assert [row[:2] for row in ranks(run)] == [(0, "rank"), (0, "other")]
    capsys.readouterr()
    assert report.run(["run"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_job_of_another_size_is_another_job_also_where_its_ranks_are_new() -> None:
    """Ranks 0 and 1 of 2 are the run; 1 and 3 of 4 belong to another, whichever file comes between."""
    names = [
        write(f"{size}.{rank}", f"process rank={rank} world_size={size}", "tally mpi MPI_Send 1 5")
        for size, rank in ((2, 0), (4, 1), (4, 3), (2, 1))
    ]
    run = loaded(*names)
    assert [row[:2] for row in ranks(run)] == [(0, "rank"), (1, "other"), (3, "other"), (1, "rank")]
    assert run.query("SELECT count(*) FROM ranks WHERE role = 'rank' AND world_size <> 2") == [(0,)]


def test_a_line_in_a_summary_gives_way_to_the_ranks_own_file() -> None:
    first = write("a", "process rank=0", "tally mpi MPI_Send 1 5", "process rank=1 user_ns=20")
    run = loaded(first, write("b", "process rank=1 user_ns=21", "tally mpi MPI_Send 1 5"))
    assert run.query("SELECT rank, user_ns FROM ranks ORDER BY rank") == [(0, None), (1, 21)]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_second_hand_telling_stands_only_for_ranks_without_a_file(order: tuple[str, str]) -> None:
    told = [f"process rank={rank} second_hand=1 host=n{rank}\ntally mpi all 1 {rank}" for rank in (1, 2)]
    write("a", "process rank=0 host=n0", "tally mpi MPI_Send 1 5", *told)
    write("b", "process rank=1", "tally mpi MPI_Send 1 7")
    run = loaded(*order)
    assert run.query("SELECT rank, role, host, source FROM ranks ORDER BY rank, role") == [
        (0, "rank", "n0", "a"),
        (1, "rank", "n1", "b"),
        (1, "summary", "n1", "a"),
        (2, "rank", "n2", "a"),
    ]


def test_another_job_in_the_same_file_is_no_rank_of_this_one() -> None:
    told, other = "process rank=1 second_hand=1", "process rank={} job=2 world_size=2"
    first = ["process rank=0 world_size=4", "tally mpi a 1 5", told]
    run = loaded(write("a", *first, other.format(0), "tally gpu b 1 5", other.format(1), "tally gpu b 1 5"))
    assert [row[:2] for row in ranks(run)] == [(0, "rank"), (1, "rank"), (0, "other"), (1, "other")]


def test_processes_are_known_by_their_pid() -> None:
    run = loaded(
        write("a", "process rank=4 pid=70", "tally mpi MPI_Send 1 5"), write("b", "process pid=70", "tally gpu a 1 1")
    )
    assert ranks(run) == [(4, "rank", "")]


def test_a_process_of_unknown_rank_among_known_ones_is_left_aside(capsys: pytest.CaptureFixture[str]) -> None:
    run = loaded(write("a", "process rank=0", "tally mpi MPI_Send 1 5"), write("b", "tally gpu a 1 1"))
    assert [row[:2] for row in ranks(run)] == [(0, "rank"), (None, "helper")]
    capsys.readouterr()
    assert report.run(["run"]) == 0
    assert "the rank of 1 process in b is not known" in " ".join(capsys.readouterr().out.split())


def test_figures_alone_are_a_document_and_can_be_reported(capsys: pytest.CaptureFixture[str]) -> None:
    run = loaded(write("a", "figure ring time 8 1500", "figure ring time 16 4000000", "note odd", "note odd"))
    assert ranks(run) == [(None, "document", "")]
    capsys.readouterr()
    assert report.run(["run", "--full"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "ring time 8 ranks 1.50 µs" in out and "ring time 16 ranks 4.00 ms" in out
    assert "Problems in the input" in out and "warning a:4 odd 2" in out
    assert "MPI" not in out


def test_what_is_inside_ranges_has_a_table_of_its_own() -> None:
    run = loaded(write("a", "tally gpu gemm 3 600", "inside app/step gpu gemm 2 400", "tally import os 1 10"))
    assert run.query("SELECT name, calls, total_ns FROM tallies") == [("gemm", 3, 600), ("os", 1, 10)]
    assert run.query("SELECT within, name, calls, total_ns FROM range_tallies") == [("app/step", "gemm", 2, 400)]


def test_a_file_loaded_before_there_were_two_tables_is_read_as_two() -> None:
    loaded(write("a", "process rank=0", "tally gpu gemm 3 600"))
    (tallies,) = Path("run").glob("loaded/*/tallies.parquet")
    once = pq.read_table(tallies)
    again = [("", "call"), ("app/step", "call"), ("os", "whole"), ("", "whole"), (None, "call")]
    rows = [once.append_column("within", pa.array([within], pa.string())) for within, _ in again]
    at = once.column_names.index("kind")
    kinds = [pa.array([kind], pa.string()).dictionary_encode() for _, kind in again]
    pq.write_table(
        pa.concat_tables([row.set_column(at, "kind", kind) for row, kind in zip(rows, kinds, strict=True)]), tallies
    )
    run = loaded(write("b", "process rank=1", "tally gpu gemm 5 700", "inside app/step gpu gemm 5 700"))
    sql = "SELECT rank, kind, calls FROM tallies JOIN ranks USING (process) ORDER BY rank"
    assert run.query(sql) == [(0, "call", 3), (0, "call", 3), (1, "call", 5)]
    sql = "SELECT rank, within, kind FROM range_tallies JOIN ranks USING (process) ORDER BY ALL"
    assert run.query(sql) == [(0, "", "whole"), (0, "app/step", "call"), (0, "os", "whole"), (1, "app/step", "call")]
    assert "within" not in [row[0] for row in run.query("DESCRIBE tallies")]
