"""Tables of operations: by recognition, by a mapping, and what cannot be one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from rankscope.formats.operations import read, sniff
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Reading
from rankscope.model.tables import Wrong
from rankscope.questions.findings.table import findings_of
from rankscope.questions.messages.messages import messages
from rankscope.questions.run.coverage import coverage
from rankscope.questions.whatif.whatif import model_of, whatif
from rankscope.store.run import RunTables
from runs.loaded import run_of, shared_file
from synthetic_operations import COLUMNS, Job, simulate, write

# two stages x two data-parallel ranks, one micro-batch; rank 2 of stage 1 is late to the collective of its stage
HEADER = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mb_id"
ROWS = """0,0,0,{s},forward-compute,0.0,0.1,0,0
0,0,0,{s},forward-send,0.1,0.01,0,-1
0,0,0,{s},grads-reduce-scatter,0.4,0.1,0,-1
1,0,1,{s},forward-compute,0.0,0.2,0,0
1,0,1,{s},forward-send,0.2,0.01,0,-1
1,0,1,{s},grads-reduce-scatter,0.45,0.05,0,-1
0,1,2,{s},forward-recv,0.0,0.11,0,-1
0,1,2,{s},forward-compute,0.11,0.3,0,0
0,1,2,{s},grads-reduce-scatter,0.41,0.09,0,-1
1,1,3,{s},forward-recv,0.0,0.21,0,-1
1,1,3,{s},forward-compute,0.21,0.1,0,0
1,1,3,{s},grads-reduce-scatter,0.31,0.19,0,-1
"""


def table(steps: int = 2) -> str:
    return f"{HEADER}\n" + "".join(ROWS.format(s=10 + step) for step in range(steps))


def readings(text: str | bytes, mapping: Path | None = None) -> list[Reading]:
    content = text.encode() if isinstance(text, str) else text
    assert mapping is not None or sniff(content)
    return list(read(Source(Path("table"), Hints(mapping=mapping), content=content)))


def as_parquet(path: Path, **columns: list[object]) -> bytes:
    pq.write_table(pa.table(columns), path)
    return path.read_bytes()


def test_ranks_steps_groups_and_peers() -> None:
    tables = run_of(readings(table()))
    # times begin anew in each step, which lasts 0.5 s: the second one is put behind the first
    assert tables.query("SELECT DISTINCT number, begin_ns, end_ns FROM steps ORDER BY 1") == [
        (10, 0, 500_000_000),
        (11, 500_000_000, 1_000_000_000),
    ]
    asked = """SELECT rank, kind, "group", peer FROM operations JOIN ranks USING (process)
        WHERE step = 10 AND kind <> 'forward-compute' ORDER BY rank, o.start_ns"""
    assert tables.query(asked.replace("operations", "operations AS o")) == [
        (0, "forward-send", "", 2),
        (0, "grads-reduce-scatter", "data-parallel (stage 0)", -1),
        (1, "forward-send", "", 3),
        (1, "grads-reduce-scatter", "data-parallel (stage 0)", -1),
        (2, "forward-recv", "", 0),
        (2, "grads-reduce-scatter", "data-parallel (stage 1)", -1),
        (3, "forward-recv", "", 1),
        (3, "grads-reduce-scatter", "data-parallel (stage 1)", -1),
    ]
    parts = "SELECT forward_ns, communication_ns, other_ns FROM steps JOIN ranks USING (process) WHERE number = 10"
    assert tables.query(f"{parts} AND rank = 0") == [(100_000_000, 110_000_000, 290_000_000)]


def test_parquet_by_recognition_and_integers_are_nanoseconds(tmp_path: Path) -> None:
    content = as_parquet(
        tmp_path / "t.parquet",
        iteration=[1, 1],
        global_rank=[0, 1],
        op=["forward-compute", "forward-compute"],
        start_us=[5.0, 6.0],
        end_us=[7.0, 9.5],
    )
    tables = run_of(readings(content))
    found = tables.query("SELECT o.start_ns, o.end_ns FROM operations AS o ORDER BY 1")
    assert found == [(5000, 7000), (6000, 9500)]


def test_by_a_mapping(tmp_path: Path) -> None:
    text = "worker,round,what,from,to\n0,1,F,0,5\n1,1,F,1,9\n"
    assert not sniff(text.encode())
    mapping = tmp_path / "map.toml"
    mapping.write_text(
        '[operations]\nrank = "worker"\nstep = "round"\nkind = "what"\nstart = "from"\nend = "to"\nunit = "ms"\n'
        '[operations.kinds]\nF = "forward-compute"\n'
    )
    tables = run_of(readings(text, mapping))
    found = "SELECT rank, kind, o.end_ns - o.start_ns FROM operations AS o JOIN ranks USING (process) ORDER BY 1"
    assert tables.query(found) == [(0, "forward-compute", 5_000_000), (1, "forward-compute", 8_000_000)]
    mapping.write_text('[operations]\nspeed = "worker"\n')
    with pytest.raises(BadFile, match="speed"):
        readings(text, mapping)


def test_an_operation_of_unknown_kind_that_all_end_together_is_a_collective() -> None:
    """The clipping of gradients waits for all ranks, which no name tells: its times do."""
    rows = [f"{rank},{step},clip,{0.1 * rank},{0.41 - 0.1 * rank}" for step in (1, 2, 3) for rank in range(4)]
    rows += [f"{rank},{step},tidy,0.5,{0.1 + 0.01 * rank}" for step in (1, 2, 3) for rank in range(4)]
    tables = run_of(readings("rank,step,optype,start_ts,duration\n" + "\n".join(rows) + "\n"))
    asked = 'SELECT DISTINCT kind, "group" FROM operations ORDER BY 1'
    assert tables.query(asked) == [("clip", "world"), ("tidy", "")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace("0.0,0.1,0,0", "0.0,-0.1,0,0", 1), "ends before it starts"),
        (lambda text: text.replace("0.0,0.1,0,0", "nan,0.1,0,0", 1), "has no time"),
        (lambda text: text.replace("0,0,0,10,", "0,0,0.5,10,", 1), "not whole numbers"),
        (lambda text: text.partition("\n")[0] + "\n", "no operation"),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[str], str], told: str) -> None:
    with pytest.raises(BadFile, match=told):
        readings(change(table()))


def test_parquet_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="name them in a mapping"):
        readings(as_parquet(tmp_path / "t.parquet", a=[1], b=[2]))


UNRECORDED = """SELECT "group", count(*), list(DISTINCT rank ORDER BY rank), mean(o.end_ns - o.start_ns) / 1e9
    FROM operations AS o JOIN ranks USING (process) WHERE starts_with(kind, 'unrecorded') GROUP BY 1 ORDER BY 1"""


def made(folder: Path, job: Job) -> RunTables:
    write(folder / "table.parquet", job)
    return run_of(read(Source(folder / "table.parquet")))


@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_waits_without_an_operation(late: int, tmp_path: Path) -> None:
    """The ranks of the last stage wait for each other, then the first ones of all stages, and no operation tells it."""
    job = Job(data=4, micro_batches=16, steps=10, unrecorded=True, tensor=4, slow_ranks={late: 1.6})
    tables = made(tmp_path, job)
    found = {group: (count, ranks, wait_s) for group, count, ranks, wait_s in tables.query(UNRECORDED)}
    last_stage, pipeline = found["data-parallel (stage 3)"], found["pipeline (data 0)"]
    assert last_stage[:2] == (40, [48, 52, 56, 60]) and pipeline[:2] == (40, [0, 16, 32, 48])
    assert last_stage[2] > 0.3  # three of four wait for what is 60 % of 16 passes of 60 ms longer
    assert len(found) == 2
    # what was read is said, and nobody is missing because numbers have gaps
    notes = [text for (text,) in tables.query("SELECT text FROM notes")]
    assert sum("read as a barrier" in note for note in notes) == 2
    assert any(note.startswith("16 ranks, numbered 0 to 60: one for each pipeline stage and data") for note in notes)
    assert not any("expected" in warning for warning in coverage(tables).warnings)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "ddp"])
@pytest.mark.parametrize("problem", [{}, {"slow_ranks": {1: 2.0}}, {"slow_links": {5: 20.0}}])
def test_no_wait_is_made_up(schedule: str, problem: dict[str, dict[int, float]], tmp_path: Path) -> None:
    stages = 1 if schedule == "ddp" else 4
    for seed in range(5):
        job = Job(schedule, stages, 8 // stages, steps=6, seed=seed, noise=0.2)
        assert made(tmp_path, replace(job, **problem)).query(UNRECORDED) == []  # type: ignore[arg-type]


def test_messages_between_stages(tmp_path: Path) -> None:
    """Each send has its receive; what a slow stage is waited for is what was simulated."""
    job = Job(stages=3, data=2, micro_batches=4, steps=5, slow_stages={1: 3.0})
    tables = made(tmp_path, job)
    rows, _ = simulate(job)
    receives = {  # which way, from which rank to which, and in which step which micro-batch
        (row[4][:-5], row[2] + (2 if row[4].startswith("backward") else -2), row[2], row[3], row[7]): row
        for row in rows
        if row[4].endswith("-recv")
    }
    waits: dict[tuple[int, int], float] = {}
    for row in rows:
        if row[4].endswith("-send"):
            there = row[2] + (-2 if row[4].startswith("backward") else 2)
            received = receives[row[4][:-5], row[2], there, row[3], row[7]]
            late_s = min(max(0.0, row[5] - received[5]), received[6])
            waits[row[2], there] = waits.get((row[2], there), 0.0) + late_s
    table = messages(tables)
    names = [column.name for column in table.columns]
    found = {(row[0], row[1]): dict(zip(names, row, strict=True)) for row in table.rows}
    assert {pair: row["messages"] for pair, row in found.items()} == dict.fromkeys(waits, 4 * 5)
    for pair, seconds in waits.items():
        assert float(str(found[pair]["wait_ns"])) / 1e9 == pytest.approx(seconds, abs=1e-3)


def test_a_rank_that_is_missing_is_said(tmp_path: Path) -> None:
    write(tmp_path / "all.parquet", Job(steps=2, tensor=2))
    all_ranks = pq.read_table(tmp_path / "all.parquet")
    without = all_ranks.filter(pa.compute.not_equal(all_ranks["rank"], 6))
    pq.write_table(without, tmp_path / "table.parquet")
    tables = run_of(read(Source(tmp_path / "table.parquet")))
    assert any("no rank for 1 of 8 combinations" in text for (text,) in tables.query("SELECT text FROM notes"))


DAMAGED_KINDS = ("clip", "barrier", "forward-recv", "backward-send", "gc", "x", "grads-reduce-scatter")


def damaged(chance: random.Random, job: Job) -> str:
    """A table with rows lost, twice, of other kinds and ranks and at other times, and perhaps without some columns."""
    rows = [list(row) for row in simulate(job)[0]]
    for _ in range(chance.choice((0, 1, 3, 30))):
        at, column, what = chance.randrange(len(rows)), chance.randrange(len(COLUMNS)), chance.random()
        if what < 0.2 and len(rows) > 1:
            del rows[at]
        elif what < 0.3:
            rows.insert(at, list(chance.choice(rows)))
        elif COLUMNS[column] == "optype":
            rows[at][column] = chance.choice(DAMAGED_KINDS)
        elif COLUMNS[column] in ("start_ts", "duration"):
            rows[at][column] = chance.choice((0.0, 1e-9, 5.0, float(rows[at][column]) * 2, 1e6))
        else:
            rows[at][column] = chance.choice((0, 1, 2, 3, -1, 7, 1_000_000))
    without: tuple[str, ...] = chance.choice(((), (), ("stage",), ("dp_rank",), ("seq_id", "mb_id")))
    kept = [at for at, name in enumerate(COLUMNS) if name not in without]
    lines = [",".join(COLUMNS[at] for at in kept), *(",".join(str(row[at]) for at in kept) for row in rows)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", [*range(10), 60, 121, 127, 253, 305, 460])
def test_damaged_tables_are_answered_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    stages, data, batches, steps = (chance.randint(1, 4) for _ in range(4))
    job = Job(chance.choice(("gpipe", "1f1b")), stages, data, batches, steps, seed=seed)
    job = replace(job, unrecorded=chance.random() < 0.5, tensor=chance.choice((1, 4)), uneven=chance.choice((0.0, 0.5)))
    try:
        tables = run_of(readings(damaged(chance, job)))
    except BadFile:
        return
    with contextlib.suppress(Wrong):  # no model of such a run
        whatif(model_of(tables), [])
    findings_of(tables)
    messages(tables)


def test_the_sample_of_a_real_job() -> None:
    """Counts and times taken from the file by SQL of their own."""
    path = shared_file("samples/operations/trace.parquet")
    found = list(read(Source(path)))
    assert [reading.facts.rank for reading in found] == list(range(8))
    tables = run_of(found)
    assert tables.query("SELECT count(*), count(DISTINCT step) FROM operations") == [(6784, 32)]
    (longest,) = tables.query("SELECT max(end_ns - begin_ns) FROM steps")[0]
    assert longest == pytest.approx(2.3816521e9, rel=1e-6)
    groups = tables.query(
        """SELECT kind, count(DISTINCT "group") FROM operations WHERE "group" <> '' GROUP BY 1 ORDER BY 1"""
    )
    assert groups == [
        ("embedding-grads-all-reduce", 2),
        ("grads-reduce-scatter", 4),
        ("optimizer-clip-main-grad", 2),  # of a pipeline each: both come to it together, so no more can be told
        ("params-all-gather", 4),
    ]
