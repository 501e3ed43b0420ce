"""AlexNet by ranks, batch and style as one table: what gpu_matrix.sh recorded, per rank and merged.

    python scripts/alexnet_table.py benchmarks/results/h200/gpu_matrix*.tar.xz [--markdown] > alexnet.md

Takes archives or folders. Where several hold the same run, the first that ended well is taken.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.output.markdown import to_markdown
from rankscope.output.text import to_text
from rankscope.questions.gpu.activities import COMMUNICATION, COPY, SET, kind_of
from rankscope.questions.gpu.device_time import times
from rankscope.questions.gpu.kernel_names import kernel_names
from rankscope.questions.selection import ALL
from rankscope.rank_files.read import read_rank_file
from rankscope.store.folder import NoRun
from rankscope.store.run import OpenOptions, RunTables, open_run

NAME = re.compile(r"alexnet-(data-parallel-)?(\d+)-(\d+)$")
# What SGD launches: one kernel per parameter and operation, or all parameters at once.
OPTIMIZER = re.compile(
    r"multi_tensor_apply_kernel"
    r"|vectorized_elementwise_kernel<\d+, at::native::(CUDAFunctor_add<|AUnaryFunctor<.*MulFunctor)"
)
SUMS = """
    SELECT rank, name, within, sum(total_ns)
    FROM (SELECT '' AS within, * FROM tallies UNION ALL BY NAME SELECT * FROM range_tallies) JOIN ranks USING (process)
    WHERE layer = 'gpu' AND kind = 'call' AND role = 'rank' GROUP BY ALL"""
ITERATIONS = """
    SELECT rank, sum(calls)::BIGINT, sum(total_ns), max(max_ns) FROM tallies JOIN ranks USING (process)
    WHERE layer = 'nvtx' AND name = 'iteration' AND role = 'rank' GROUP BY rank"""
COLLECTIVES = {"AllReduce": "all_reduce", "Broadcast": "broadcast", "Reduce": "reduce"}
PARTS = ("optimizer", "all_reduce", "broadcast", "reduce", "other_nccl", "copies")
MOVING = (
    *("iteration_ns", "images_per_s", "gpu_ns", "optimizer_ns", "optimizer_share", "all_reduce_share"),
    *("broadcast_share", "reduce_share", "copies_share", "busy_share"),
)
COLUMNS = (
    Column("style", Unit.NAME, "Style"),
    Column("ranks", Unit.NAME, "Ranks"),
    Column("batch", Unit.NAME, "Batch"),
    Column("rank", Unit.NAME, "Rank"),
    Column("iteration_ns", Unit.NS, "Iteration"),
    Column("images_per_s", Unit.NUMBER, "Images/s"),
    Column("gpu_ns", Unit.NS, "GPU time per iteration"),
    Column("optimizer_share", Unit.SHARE, "Optimizer"),
    Column("all_reduce_share", Unit.SHARE, "NCCL all-reduce"),
    Column("broadcast_share", Unit.SHARE, "NCCL broadcast"),
    Column("reduce_share", Unit.SHARE, "NCCL reduce"),
    Column("other_nccl_share", Unit.SHARE, "Other NCCL"),
    Column("copies_share", Unit.SHARE, "Copies, sets"),
    Column("optimizer_ns", Unit.NS, "Optimizer per iteration"),
    Column("busy_share", Unit.SHARE, "GPU busy"),
    Column("exposed_share", Unit.SHARE, "NCCL exposed"),
)
NOTES = (
    "Iteration: mean without the first. Images/s: of all ranks; in the table by rank, of that rank.",
    "Shares: of the GPU time, that is the lengths of all kernels, copies and sets added up, set-up included. A kernel "
    "of NCCL runs while it waits for other ranks.",
    "GPU busy, NCCL exposed: time in which a GPU does anything, or communicates and computes nothing, ÷ the time of "
    "all iterations, the first and slow one included.",
)
BY_NAME = (
    "Optimizer: where no range marks it, told by the names of its kernels; with DDP the scaling of gradients has the "
    "same name and is in it."
)


@dataclass(frozen=True)
class Share:
    """One rank of a run, or all of them together."""

    rank: int | None  # None: all
    members: int
    gpu_ns: float
    parts: dict[str, float]
    busy_ns: float
    exposed_ns: float
    iteration_ns: float | None = None


@dataclass(frozen=True)
class Result:
    """One run: what it printed, and what was recorded of it."""

    style: str
    ranks: int
    batch: int
    told: dict[str, Any]  # the line of JSON that rank 0 printed; without it the run did not end
    shares: list[Share] = field(default_factory=list)  # by rank, then all
    by_name: bool = False

    @property
    def iterations(self) -> int | None:
        return self.told.get("iterations")

    @property
    def loop_ns(self) -> float | None:
        """The time of all iterations, the first included."""
        if "iteration_s" not in self.told:
            return None
        return 1e9 * (self.told["first_iteration_s"] + (self.told["iterations"] - 1) * self.told["iteration_s"])


def in_optimizer(within: str) -> bool:
    """Whether one of the ranges around it, of whatever domain, is the optimizer's."""
    return any(step.endswith("/optimizer") for step in within.split("\x1f"))


def part_of(name: str, within: str, by_name: bool) -> str | None:
    """What a kernel or copy is for."""
    kind = kind_of(name)
    if kind in (COPY, SET):
        return "copies"
    if kind == COMMUNICATION:
        found = re.search(r"_(AllReduce|Broadcast|Reduce)_", name)
        return COLLECTIVES[found[1]] if found else "other_nccl"
    is_optimizer = OPTIMIZER.search(name) if by_name else in_optimizer(within)
    return "optimizer" if is_optimizer else None


def shares_of(run: RunTables) -> tuple[list[Share], bool]:
    """The GPU time of each rank by what it is for; and whether the optimizer was told by its kernels' names."""
    full = kernel_names(run, "full")
    rows = [(rank, full.get(name, name), within, float(ns)) for rank, name, within, ns in run.query(SUMS)]
    by_name = not any(in_optimizer(within) for _, _, within, _ in rows)
    busy: dict[int, tuple[float, float]] = {}
    for rank, _, time in times(run, ALL):
        before = busy.get(rank, (0.0, 0.0))
        busy[rank] = before[0] + time.busy_ns, before[1] + time.exposed_ns
    # the first iteration is the longest
    marked = [row for row in run.query(ITERATIONS) if row[1] > 1]
    steady = {rank: (total_ns - longest_ns) / (calls - 1) for rank, calls, total_ns, longest_ns in marked}
    found = []
    for rank in sorted({row[0] for row in rows}):
        parts = dict.fromkeys(PARTS, 0.0)
        own = [row for row in rows if row[0] == rank]
        for _, name, within, ns in own:
            part = part_of(name, within, by_name)
            if part is not None and (part == "optimizer" and not by_name) == bool(within):
                parts[part] += ns
        gpu_ns = sum(ns for _, _, within, ns in own if not within)
        found.append(Share(rank, 1, gpu_ns, parts, *busy.get(rank, (0.0, 0.0)), steady.get(rank)))
    return found, by_name


def together(shares: Sequence[Share]) -> Share:
    parts = {part: sum(one.parts[part] for one in shares) for part in PARTS}
    sums = [sum(getattr(one, name) for one in shares) for name in ("gpu_ns", "busy_ns", "exposed_ns")]
    return Share(None, len(shares), sums[0], parts, sums[1], sums[2])


def results_of(source: Path) -> Iterator[Result]:
    """The AlexNet runs of one folder."""
    lines = [json.loads(line) for line in (source / "results.jsonl").read_text().splitlines() if line.strip()]
    for told in lines:
        found = NAME.match(told.get("run", ""))
        if not found:
            continue
        result = Result("data-parallel" if found[1] else "ddp", int(found[2]), int(found[3]), told)
        try:
            shares, by_name = shares_of(
                open_run(source / "runs" / told["run"], read_rank_file, OpenOptions(events=False))
            )
        except NoRun:
            shares, by_name = [], False
        yield replace(result, shares=[*shares, together(shares)] if shares else [], by_name=by_name)


def gathered(sources: Sequence[Path]) -> list[Result]:
    """One result for each style, number of ranks and batch: the first that ended well, else the one that tells most."""
    best: dict[tuple[str, int, int], Result] = {}
    for source in sources:
        with tempfile.TemporaryDirectory() as unpacked:
            folder = source
            if source.is_file():
                with tarfile.open(source) as archive:
                    archive.extractall(unpacked, filter="data")
                folder = Path(unpacked)
            for result in results_of(folder):
                key = result.style, result.ranks, result.batch
                if key not in best or worth(result) > worth(best[key]):
                    best[key] = result
    return [best[key] for key in sorted(best, key=lambda key: (key[0] != "ddp", *key))]


def worth(result: Result) -> tuple[bool, float]:
    return "iteration_s" in result.told, 0.0 if "iteration_s" in result.told else sum(s.gpu_ns for s in result.shares)


def row_of(result: Result, share: Share) -> tuple[Cell, ...]:
    per = 1 / (result.iterations * share.members) if result.iterations else None
    iteration_ns = share.iteration_ns or (1e9 * result.told["iteration_s"] if "iteration_s" in result.told else None)
    images = result.batch if share.rank is None else result.batch / result.ranks
    of_loop = 1 / (result.loop_ns * share.members) if result.loop_ns else None
    told = [share.parts[part] / share.gpu_ns if share.gpu_ns and share.parts[part] else None for part in PARTS]
    return (
        result.style, result.ranks, result.batch, "all" if share.rank is None else share.rank,
        iteration_ns, 1e9 * images / iteration_ns if iteration_ns else None, share.gpu_ns * per if per else None, *told,
        share.parts["optimizer"] * per if per else None, share.busy_ns * of_loop if of_loop else None,
        share.exposed_ns * of_loop if of_loop else None,
    )  # fmt: skip


def table_of(results: Sequence[Result], name: str, title: str, merged: bool) -> Table:
    rows = [row_of(one, share) for one in results for share in one.shares if (share.rank is None) == merged]
    return Table(name, title, COLUMNS, rows)


def movement(results: Sequence[Result]) -> Table:
    """The same by batch: each column of the merged table as a row."""
    batches = sorted({one.batch for one in results})
    names = [column.name for column in COLUMNS]
    table = Table("alexnet_batch", "How they move with the batch", [
        Column("style", Unit.NAME, "Style"), Column("ranks", Unit.NAME, "Ranks"), Column("what", Unit.NAME, "What"),
        *(Column(f"batch_{batch}", Unit.NAME, f"Batch {batch}") for batch in batches)], [])  # fmt: skip
    for style, ranks in dict.fromkeys((one.style, one.ranks) for one in results):
        own = [one for one in results if (one.style, one.ranks) == (style, ranks) and one.shares]
        found = {one.batch: row_of(one, one.shares[-1]) for one in own}
        for name in MOVING:
            at = names.index(name)
            cells = [cell_text(found[batch][at], name) if batch in found else "" for batch in batches]
            if any(cells):
                table.rows.append((style, ranks, COLUMNS[at].title, *cells))
    return table


def cell_text(cell: Cell, name: str) -> str:
    if cell is None:
        return ""
    number = float(cell)
    if name.endswith("_ns"):
        return f"{number / 1e6:.3g} ms"
    return f"{number:.1%}" if name.endswith("_share") else f"{number:,.0f}"


def tables_of(results: Sequence[Result]) -> list[Table]:
    merged = table_of(results, "alexnet", "AlexNet, ranks merged", merged=True)
    merged.notes += NOTES
    if any(one.by_name for one in results):
        merged.notes.append(BY_NAME)
    for one in results:
        if "iteration_s" not in one.told:
            why = "skipped, no time was left" if one.told.get("skipped") else f"exit code {one.told.get('exit')}"
            until = "; its shares are those until then" if one.shares else ""
            merged.warnings.append(f"{one.told['run']} did not end ({why}){until}")
    return [merged, movement(results), table_of(results, "alexnet_ranks", "By rank", merged=False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, help="archives or folders of scripts/gpu_matrix.sh")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    results = gathered(options.sources)
    if not results:
        print("no AlexNet run found", file=sys.stderr)
        return 1
    tables = tables_of(results)
    print(to_markdown(tables) if options.markdown else to_text(tables, 160), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
