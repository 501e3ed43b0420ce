"""What do the GPU figures give away about iterations, waiting inside collectives, and costs that do not scale?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, log2

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.gpu.communication_kernels import SQL as COMMUNICATES
from rankscope.questions.gpu.kernels import WHOLES
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.wording import counted, ranges

COLUMNS = (
    Column(
        "check",
        Unit.NAME,
        "Check",
        "*iterations*: of the call counts of a rank, at least three different ones are multiples of a number from 8"
        " up; of several such numbers the one with the largest (count of counts) × log2(number). *waiting inside*: "
        "a collective of at least 8 calls and 1 % of GPU time whose average is 4 times its shortest call. *uneven "
        "collective*: the same collective with the same calls takes one rank at least 20 % and 1 ms longer than "
        "another. *fixed cost*: a kernel with the same calls and, within 2 %, the same time in at least 3 separate "
        "runs whose GPU time differs by half",
    ),
    Column("ranks", Unit.NAME, "Ranks", "the ranks it was found on"),
    Column("name", Unit.NAME, "Name", "the kernel"),
    Column(
        "time_ns",
        Unit.NS,
        "Time",
        "waiting inside: total − calls × shortest; uneven collective: largest − smallest total of a rank; fixed "
        "cost: mean time of a run",
    ),
    Column(
        "share",
        Unit.SHARE,
        "Part",
        "waiting: `time_ns` ÷ total of the rank that waits; fixed cost: ÷ GPU time of the run with the least",
    ),
    Column(
        "finding",
        Unit.NAME,
        "Finding",
        "the same in words; the rank with the *smallest* time in a collective is the one the others wait for",
    ),
)
SQL = f"""
    WITH wholes AS ({WHOLES}),
    once AS (SELECT process, name, sum(calls)::BIGINT AS calls, sum(total_ns) AS total_ns, min(min_ns) AS min_ns
             FROM tallies WHERE layer = 'gpu' AND kind = 'call' GROUP BY process, name)
    SELECT rank, coalesce(world_size, 0), name, calls, total_ns, min_ns, {COMMUNICATES},
        greatest(sum(total_ns) OVER (PARTITION BY process), coalesce(whole_ns, 0))
    FROM once JOIN ranks USING (process) LEFT JOIN wholes USING (process)
    WHERE {{condition}} AND calls > 0 AND total_ns > 0 ORDER BY rank, name"""
FEWEST_COUNTS = 3  # different call counts that share a factor before it is believed
LEAST_FACTOR = 8  # smaller ones come by chance
SPIN_CALLS, SPIN_RATIO, SPIN_SHARE = 8, 4.0, 0.01
UNEVEN_SHARE, UNEVEN_NS = 0.2, 1e6
FIXED_SPREAD, FIXED_SHARE, GROWTH = 0.02, 0.01, 1.5
FEWEST_RUNS = 3

Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one rank."""

    rank: int
    world_size: int  # 1: a run of its own; 0: not known
    name: str
    calls: int
    total_ns: float
    min_ns: float | None
    communicates: bool
    gpu_ns: float

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls


def gpu_checks(tables: Tables, selection: Selection = ALL) -> Table:
    """Checks of the GPU figures by rules that hold for any profile."""
    kernels = [Kernel(*row) for row in tables.query(SQL.format(condition=selection.condition), ("gpu",))]
    table = Table("gpu_checks", "GPU checks", COLUMNS, [])
    table.rows += [*_iterations(kernels), *_spinning(kernels), *_uneven(kernels), *_fixed(kernels)]
    table.warnings += [f"{row[2]}: {row[5]}" for row in table.rows if row[0] == "uneven collective"]
    if any(row[0] == "waiting inside" for row in table.rows):
        table.notes.append(
            "Waiting inside: time beyond the shortest call, all of it waiting if all calls move the same amount."
        )
    return table


def _by_rank(kernels: Sequence[Kernel]) -> dict[int, list[Kernel]]:
    by_rank: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        by_rank.setdefault(kernel.rank, []).append(kernel)
    return by_rank


def common_factor(counts: set[int]) -> int | None:
    """The number of which most of these counts are multiples, beyond chance: likely the iterations."""
    best: tuple[float, int] | None = None
    for factor in {gcd(a, b) for a in counts for b in counts}:
        sharing = sum(count % factor == 0 for count in counts)
        if sharing >= FEWEST_COUNTS and factor > 1:
            best = max(best or (0.0, 0), (round(sharing * log2(factor), 6), factor))
    return best[1] if best and best[1] >= LEAST_FACTOR else None


def _iterations(kernels: Sequence[Kernel]) -> Iterator[Row]:
    by_factor: dict[int, list[int]] = {}
    for rank, own_kernels in _by_rank(kernels).items():
        factor = common_factor({kernel.calls for kernel in own_kernels})
        if factor:
            by_factor.setdefault(factor, []).append(rank)
    for factor, ranks in sorted(by_factor.items()):
        text = f"call counts are multiples of {factor}: {factor} iterations, or a part of it with several calls in each"
        yield "iterations", ranges(ranks), "", None, None, text
    if len(by_factor) > 1 and (shared := gcd(*by_factor)) >= LEAST_FACTOR:
        text = f"all profiles have call counts that are multiples of {shared}: probably {shared} iterations each"
        yield "iterations", ranges(rank for ranks in by_factor.values() for rank in ranks), "", None, None, text


def _spinning(kernels: Sequence[Kernel]) -> Iterator[Row]:
    """Collectives whose shortest call is far below the average."""
    for kernel in kernels:
        if not kernel.communicates or kernel.min_ns is None or kernel.calls < SPIN_CALLS:
            continue
        if kernel.mean_ns < SPIN_RATIO * kernel.min_ns or kernel.total_ns < SPIN_SHARE * kernel.gpu_ns:
            continue
        waiting_ns = kernel.total_ns - kernel.calls * kernel.min_ns
        times = f"shortest call {kernel.min_ns / 1e6:.3g} ms, average {kernel.mean_ns / 1e6:.3g} ms"
        text = f"{times}: apparently mostly waiting"
        yield "waiting inside", str(kernel.rank), kernel.name, waiting_ns, waiting_ns / kernel.total_ns, text


def _uneven(kernels: Sequence[Kernel]) -> Iterator[Row]:
    """The same collective with the same calls takes every rank equally long, but for waiting."""
    together: dict[tuple[str, int], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.communicates and kernel.world_size != 1:
            together.setdefault((kernel.name, kernel.calls), []).append(kernel)
    for members in together.values():
        last, first = min(members, key=lambda kernel: kernel.total_ns), max(members, key=lambda kernel: kernel.total_ns)
        waiting_ns = first.total_ns - last.total_ns
        if waiting_ns < UNEVEN_SHARE * first.total_ns or waiting_ns < UNEVEN_NS:
            continue
        ranks, part = ranges(member.rank for member in members), waiting_ns / first.total_ns
        yield "uneven collective", ranks, last.name, waiting_ns, part, _uneven_text(first, last, part)


def _uneven_text(first: Kernel, last: Kernel, part: float) -> str:
    times = f"{first.total_ns / 1e6:.5g} ms on rank {first.rank}, {last.total_ns / 1e6:.5g} ms on rank {last.rank}"
    calls = counted(last.calls, "call")
    return f"{times} for the same {calls}: {100 * part:.0f} % of the first is waiting for rank {last.rank}"


def _fixed(kernels: Sequence[Kernel]) -> Iterator[Row]:
    """Kernels that cost the same in runs of their own, while all GPU time grows."""
    together: dict[tuple[str, int], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.world_size == 1 and not kernel.communicates:
            together.setdefault((short_name(kernel.name), kernel.calls), []).append(kernel)
    fixed = {key: members for key, members in together.items() if _is_fixed(members)}
    for (name, calls), members in fixed.items():
        shares = [member.total_ns / member.gpu_ns for member in members]
        spread = f"{100 * max(shares):.0f} % to {100 * min(shares):.0f} %"
        text = f"{calls} calls and the same time in {len(members)} profiles: {spread}"
        yield "fixed cost", ranges(member.rank for member in members), name, _mean_ns(members), max(shares), text
    if len(fixed) > 1:
        yield _fixed_together(list(fixed.values()))


def _is_fixed(members: Sequence[Kernel]) -> bool:
    times, wholes = [member.total_ns for member in members], [member.gpu_ns for member in members]
    if len(members) < FEWEST_RUNS or max(times) > (1 + FIXED_SPREAD) * min(times):
        return False
    return max(wholes) > GROWTH * min(wholes) and max(times) > FIXED_SHARE * min(wholes)


def _mean_ns(members: Sequence[Kernel]) -> float:
    return sum(member.total_ns for member in members) / len(members)


def _fixed_together(fixed: Sequence[Sequence[Kernel]]) -> Row:
    total_ns = sum(_mean_ns(members) for members in fixed)
    wholes = [member.gpu_ns for members in fixed for member in members]
    least, most = total_ns / max(wholes), total_ns / min(wholes)
    text = (
        f"these {len(fixed)} together: {100 * most:.0f} % of the GPU time of the smallest profile, "
        f"{100 * least:.0f} % of the largest"
    )
    ranks = ranges(member.rank for members in fixed for member in members)
    return "fixed cost", ranks, "", total_ns, most, text


def short_name(name: str) -> str:
    """A kernel without its arguments, which tools cut at different places."""
    head = name.partition("(")[0].strip()
    return head or name
