"""What is a running job doing right now: one screen of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rankscope.model.records import Moment
from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.questions.condense import percentiles
from rankscope.questions.live.hang import HANGS, KINDS, Verdict
from rankscope.questions.live.hang_report import endings, place, sentence, short_place, standing_place
from rankscope.questions.live.standing import GroupNow, RankPace, Standing, mean
from rankscope.questions.ranks.behaviour import FAR, Behaviour, Measure, ranks_alike, telling
from rankscope.questions.ranks.outliers import far_places, places_that_differ, ranks_that_differ
from rankscope.questions.wording import counted, ranges, rank_words

# ---------------------------------------------------------------------------------------------------------------------
# What are thousands of ranks doing right now: percentiles, who differs, and who stands where; no row for each.
SHOWN_PERCENTILES = (0, 5, 50, 95, 100)
WAITING, WAITED_FOR = "waiting", "waited for"
FIGURES = (
    Column("steps_per_s", Unit.NUMBER, "Steps/s", "steps completed between two readings ÷ Δt"),
    Column("step_ns", Unit.NS, "Step", "mean length of the newest 8 steps"),
    Column("collectives_per_s", Unit.NUMBER, "Coll/s", "collectives entered between two readings, of all groups ÷ Δt"),
    Column("collectives", Unit.COUNT, "Coll. done", "collectives entered so far, of the largest group"),
    Column("waiting", Unit.SHARE, "Wait", "communicating × (Σ wait ÷ Σ stay) over the newest collectives in the logs"),
    Column("transferring", Unit.SHARE, "Transfer", "communicating − wait"),
    Column("outside", Unit.SHARE, "Outside", "1 − communicating"),
    Column("cpu", Unit.SHARE, "CPU", "Δ(user + system time of the process) ÷ Δt; on the host of the reader only"),
    Column(
        "waited_for",
        Unit.SHARE,
        "Waited for",
        "of all wait in the newest collectives, the part in which this rank was the last to arrive",
    ),
)
STANDING = (
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that are there"),
    Column("hosts", Unit.COUNT, "Hosts", "number of hosts they are on"),
    Column("where", Unit.NAME, "Where"),
    Column(
        "since_ns",
        Unit.NS,
        "Since, at most",
        "longest time in the collective they are in, or since they left the last one",
    ),
    Column("which", Unit.NAME, "Which"),
)
PLACE_TIMES = 2.0  # a host is named instead of those of its ranks that differ where it is waited for that much more
OF_A_PLACE = ("by", "place", "ranks", "measure", "p50", "usual", "unit", "spreads")


def live_behaviour(now: Standing, pace: Mapping[int, RankPace]) -> Behaviour:
    """What is measured of each rank between two readings."""
    ranks = sorted(pace)
    world = largest_group(now)
    logged = int(np.median([len(now.ranks[rank].entered) for rank in ranks] or [0])) or 1

    def measure(name: str, unit: str, value: Callable[[RankPace, Moment], float | None], adds_up: int = 0) -> Measure:
        values = (value(pace[rank], now.ranks[rank]) for rank in ranks)
        return Measure(
            name, unit, np.array([np.nan if value is None else value for value in values], np.float64), adds_up
        )

    measures = [
        measure(WAITED_FOR, "%", lambda pace_of, _: _percent(pace_of.waited_for), adds_up=logged),
        measure(WAITING, "%", lambda pace_of, _: _percent(pace_of.waiting)),
        measure("CPU", "%", lambda pace_of, _: _percent(pace_of.cpu)),
        measure("step", "ms", lambda _, moment: moment.step_ns / 1e6 if moment.step_ns is not None else None),
        measure("steps done", "count", lambda _, moment: moment.steps),
    ]
    if world is not None:
        measures.append(measure("collectives done", "count", lambda pace_of, _: world.entered.get(pace_of.rank)))
    if not np.isfinite(measures[1].values).any():  # without logs it is not known who waits
        measures.append(measure("outside", "%", lambda pace_of, _: _percent(pace_of.outside)))
    return Behaviour(ranks, [now.ranks[rank].facts.host for rank in ranks], telling(measures))


def largest_group(now: Standing) -> GroupNow | None:
    """The group whose collectives tell how far ranks have come."""
    return max(now.groups.values(), key=lambda group: (group.size, sum(group.entered.values())), default=None)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def many_tables(
    now: Standing, pace: Mapping[int, RankPace], behaviour: Behaviour, by_place: Table, most: int
) -> list[Table]:
    """All but the job as a whole, none with more than so many rows."""
    differing = ranks_that_differ(behaviour)
    differing.notes = []
    if not differing.rows:
        differing.notes = [f"None: all are within {FAR} spreads of the median in everything."]
    del differing.rows[most:]
    tables = [_percentiles(now, pace), standing_table(now, most), *([differing] if behaviour.measures else [])]
    kinds = ranks_alike(behaviour)
    if any(int(str(row[1])) > 1 for row in kinds.rows[1:]):  # single ranks that differ are told above
        tables.append(_cut(kinds, most, "group"))
    return [*tables, _cut(by_place, most, "row")] if by_place.rows else tables


def _cut(table: Table, most: int, what: str) -> Table:
    left = len(table.rows) - most
    more = [counted(left, f"more {what}")] if left > 0 else []
    return replace(table, rows=table.rows[:most], notes=[*table.notes, *more])


def _percentiles(now: Standing, pace: Mapping[int, RankPace]) -> Table:
    world = largest_group(now)
    rows: list[tuple[Cell, ...]] = []
    for rank, rank_pace in pace.items():
        done = world.entered.get(rank) if world is not None else None
        rates = (rank_pace.steps_per_s, now.ranks[rank].step_ns, rank_pace.collectives_per_s, done)
        rows.append(
            (*rates, rank_pace.waiting, rank_pace.transferring, rank_pace.outside, rank_pace.cpu, rank_pace.waited_for)
        )
    table = percentiles(Table("ranks", "Ranks", FIGURES, rows), SHOWN_PERCENTILES)
    table.title = "Percentiles over the ranks"
    return table


def standing_table(now: Standing, most: int) -> Table:
    """Ranks that stand at the same place, the most first."""
    together: dict[str, list[int]] = defaultdict(list)
    longest: dict[str, int] = defaultdict(int)
    for rank in now.ranks:
        where, since_ns = standing_place(now, rank)
        together[where].append(rank)
        longest[where] = max(longest[where], since_ns or 0)
    if now.missing:
        together["no file: never started, or not recorded"] = sorted(now.missing)
    order = sorted(together, key=lambda where: (-len(together[where]), where))
    # the few that stand elsewhere matter as much as the many: the middle is left out
    left = order[most - most // 2 : len(order) - most // 2] if len(order) > most else []
    table = Table("standing", "Ranks by where they are", STANDING, [])
    for where in order:
        if where not in left:
            ranks = together[where]
            hosts = len({now.ranks[rank].facts.host for rank in ranks if rank in now.ranks})
            table.rows.append((len(ranks), hosts, where, longest[where] or None, ranges(ranks)))
    if left:
        number = sum(len(together[where]) for where in left)
        table.notes.append(f"{counted(number, 'more rank')} at {counted(len(left), 'other place')}")
    return table


def outlying_places(behaviour: Behaviour, group_of: Mapping[str, str]) -> Table:
    """Hosts, and groups of hosts, that are far from the median in anything, the farthest first."""
    far = far_places(places_that_differ(behaviour, group_of))
    names = [column.name for column in far.columns]
    columns_of_place = [names.index(name) for name in OF_A_PLACE]
    columns = [
        far.columns[at] if names[at] != "p50" else Column("p50", Unit.NUMBER, "Has", "median value of its ranks")
        for at in columns_of_place
    ]
    return Table(
        far.name, far.title, columns, [tuple(row[at] for at in columns_of_place) for row in far.rows], far.notes
    )


def slowest_of_many(behaviour: Behaviour, by_place: Table) -> str:
    """The ranks, or the host or group, that the others wait for; a rank alone only where it is far from the median."""
    by_name = {measure.name: measure for measure in behaviour.measures}
    caused, waiting = by_name.get(WAITED_FOR), by_name.get(WAITING)
    if caused is None and waiting is None:
        return ""
    late = _late(behaviour)
    of_them = float(np.nansum(caused.values[late])) if caused is not None else 0.0
    for by, where, ranks, name, has, _, _, spreads in by_place.rows:
        awaited = float(has or 0.0) if str(name).startswith(WAITED_FOR) and float(spreads or 0.0) > 0 else 0.0
        if awaited > PLACE_TIMES * of_them:
            return f"{by} {where}: {awaited:.0f} % of the waiting is for its {counted(int(ranks or 0), 'rank')}"
    return _late_ranks(behaviour, late, caused, waiting) if late else "none stands out"


def slowest_rank_of_many(behaviour: Behaviour, pace: Mapping[int, RankPace]) -> int | None:
    """Of the ranks that are late, far beyond the median, the one that is waited for most."""
    late = [behaviour.ranks[at] for at in _late(behaviour)]
    return max(late, key=lambda rank: pace[rank].waited_for or 0.0, default=None)


def _late(behaviour: Behaviour) -> list[int]:
    """Places of the ranks that are waited for far more than the median, or that wait far less."""
    by_name = {measure.name: measure for measure in behaviour.measures}
    return _far(behaviour, by_name.get(WAITED_FOR), 1.0) or _far(behaviour, by_name.get(WAITING), -1.0)


def _far(behaviour: Behaviour, measure: Measure | None, side: float) -> list[int]:
    """Places of the ranks that are far above (1) or below (-1) the median."""
    if measure is None:
        return []
    return np.flatnonzero(side * (measure.values - measure.usual) / measure.spread >= FAR).tolist()


def _late_ranks(behaviour: Behaviour, late: list[int], caused: Measure | None, waiting: Measure | None) -> str:
    hosts = sorted({behaviour.hosts[at] for at in late})
    sentences = [
        f"{rank_words(behaviour.ranks[at] for at in late)} ({hosts[0] if len(hosts) == 1 else f'{len(hosts)} hosts'})"
    ]
    if caused is not None:
        sentences.append(f"{float(np.nansum(caused.values[late])):.0f} % of the waiting is for {_them(late)}")
    if waiting is not None:
        waiting_share = float(np.nanmean(waiting.values[late]))
        sentences.append(f"{_they(late)} {waiting_share:.0f} % of the time, the others {waiting.usual:.0f} %")
    return f"{sentences[0]}: {'; '.join(sentences[1:])}"


def _them(late: list[int]) -> str:
    return "it" if len(late) == 1 else "them"


def _they(late: list[int]) -> str:
    return "it waits" if len(late) == 1 else "they wait"


# ---------------------------------------------------------------- top
JOB = (
    Column("ranks", Unit.NAME, "Ranks"),
    Column("phases", Unit.NAME, "Phase"),
    Column("steps", Unit.NAME, "Steps"),
    Column("step_ns", Unit.NS, "Step time", "mean length of the newest 8 steps, mean over the ranks"),
    Column("parts", Unit.NAME, "Of a step"),
    Column("device_parts", Unit.NAME, "On the GPUs"),
    Column(
        "collectives_per_s",
        Unit.NUMBER,
        "Collectives/s",
        "collectives entered between two readings ÷ Δt, mean over the ranks",
    ),
    Column("waiting", Unit.SHARE, "Wait", "mean over the ranks of the share of wait"),
    Column("transferring", Unit.SHARE, "Transfer", "mean over the ranks of the share of transfer"),
    Column("outside", Unit.SHARE, "Outside", "mean over the ranks of the share outside communication"),
    Column("slowest", Unit.NAME, "Slowest rank"),
    Column("verdict", Unit.NAME, "Hang"),
)
OF_A_RANK = ("steps_per_s", "collectives_per_s", "waiting", "transferring", "outside", "cpu", "waited_for")
RANKS = (
    Column("rank", Unit.COUNT, "Rank", "number of the rank"),
    Column("host", Unit.NAME, "Host"),
    Column("phase", Unit.NAME, "Phase"),
    *(column for column in FIGURES if column.name in OF_A_RANK),
    Column("since_ns", Unit.NS, "Since", "time in the collective the rank is in, or since it left the last one"),
    Column("where", Unit.NAME, "Where"),
)
CLEAR_SHARE = 0.05  # by so much of the time the others must wait longer than the rank that is called the slowest


def job_table(
    title: str, now: Standing, verdict: Verdict, pace: dict[int, RankPace], slowest: str | None = None
) -> Table:
    """The job as a whole; of many ranks others say which are the slowest."""
    all_paces = list(pace.values())
    row: tuple[Cell, ...] = (
        _ranks(now),
        _phases(now),
        _steps(now, pace),
        mean(moment.step_ns for moment in now.ranks.values()),
        _parts(now),
        _device_parts(now),
        mean(rank_pace.collectives_per_s for rank_pace in all_paces),
        mean(rank_pace.waiting for rank_pace in all_paces),
        mean(rank_pace.transferring for rank_pace in all_paces),
        mean(rank_pace.outside for rank_pace in all_paces),
        _slowest(pace) if slowest is None else slowest,
        KINDS[verdict.kind] if verdict.kind in HANGS else sentence(verdict, now),
    )
    table = Table("job", title, JOB, [row], vertical=True)
    if verdict.kind in HANGS:
        table.warnings.append(sentence(verdict, now))
    return table


def _ranks(now: Standing) -> str:
    parts = [counted(len(now.ranks), "rank"), endings(now)]
    return ": ".join(parts) + (f"; no file of {rank_words(now.missing)}" if now.missing else "")


def _phases(now: Standing) -> str:
    counts = Counter(moment.facts.phase for moment in now.ranks.values() if moment.facts.ending == "running")
    return ", ".join(f"{phase} ({number})" for phase, number in counts.most_common())


def _steps(now: Standing, pace: dict[int, RankPace]) -> str:
    done = [moment.steps for moment in now.ranks.values() if moment.steps is not None]
    rate = mean(rank_pace.steps_per_s for rank_pace in pace.values())
    if not done or rate is None:
        return ""
    span = str(min(done)) if min(done) == max(done) else f"{min(done)} to {max(done)}"
    return f"{span} done, {rate:.3g} a second"


def _parts(now: Standing) -> str:
    """What the newest steps were made of, the largest part first."""
    return _largest_first([moment.step_shares for moment in now.ranks.values()])


def _device_parts(now: Standing) -> str:
    """The same on the GPUs' clock, of the ranks that have steps there."""
    return _largest_first([moment.device_shares for moment in now.ranks.values() if moment.device_shares])


def _largest_first(of_ranks: Sequence[Mapping[str, float]]) -> str:
    names = {name for shares in of_ranks for name in shares if name != "blocked"}
    means = {name: mean(shares.get(name) for shares in of_ranks) or 0.0 for name in names}
    return ", ".join(
        f"{name} {100 * share:.0f} %"
        for name, share in sorted(means.items(), key=lambda s: (-s[1], s[0]))
        if share >= 0.01
    )


def slowest_rank(pace: Mapping[int, RankPace]) -> int | None:
    """The rank that waits least, where the others wait clearly longer."""
    known = sorted((rank_pace.waiting, rank_pace.rank) for rank_pace in pace.values() if rank_pace.waiting is not None)
    return None if len(known) < 2 or known[1][0] - known[0][0] < CLEAR_SHARE else known[0][1]


def _slowest(pace: dict[int, RankPace]) -> str:
    waiting = {rank_pace.rank: rank_pace.waiting for rank_pace in pace.values() if rank_pace.waiting is not None}
    rank = slowest_rank(pace)
    if rank is None:
        return "none stands out" if waiting else ""
    cause = pace[rank].waited_for
    came = f"; {100 * cause:.0f} % of the waiting is for it" if cause is not None else ""
    others = mean(share for other, share in waiting.items() if other != rank) or 0.0
    return f"{rank} (waits {100 * waiting[rank]:.0f} % of the time, the others {100 * others:.0f} %{came})"


def ranks_table(now: Standing, verdict: Verdict, pace: dict[int, RankPace], most_rows: int | None) -> Table:
    """One row per rank, worst first: guilty of a hang, ended, then those that wait least."""
    order = sorted(pace, key=lambda rank: _badness(now, verdict, pace[rank]))
    shown_ranks = order if most_rows is None else order[: max(1, most_rows)]
    hosts = {moment.facts.host for moment in now.ranks.values()}
    phases = {moment.facts.phase for moment in now.ranks.values()}
    rows = [_row(now, pace[rank], len(hosts) > 1, len(phases) > 1) for rank in shown_ranks]
    table = Table("ranks", "Ranks, worst first", RANKS, rows)
    if len(shown_ranks) < len(order):
        table.notes.append(f"{len(order) - len(shown_ranks)} more ranks")
    return table


def _badness(now: Standing, verdict: Verdict, rank_pace: RankPace) -> tuple[bool, bool, float, int]:
    guilty = verdict.kind in HANGS and rank_pace.rank in verdict.guilty
    return (
        not guilty,
        not now.is_gone(rank_pace.rank),
        rank_pace.waiting if rank_pace.waiting is not None else 1.0,
        rank_pace.rank,
    )


def _row(now: Standing, rank_pace: RankPace, with_host: bool, with_phase: bool) -> tuple[Cell, ...]:
    """What is the same for all ranks is left empty: a screen is narrow."""
    facts, (_, since_ns), where = (
        now.ranks[rank_pace.rank].facts,
        place(now, rank_pace.rank),
        short_place(now, rank_pace.rank),
    )
    who = (rank_pace.rank, facts.host if with_host else "", facts.phase if with_phase else "")
    shares = (rank_pace.waiting, rank_pace.transferring, rank_pace.outside, rank_pace.cpu, rank_pace.waited_for)
    return *who, rank_pace.steps_per_s, rank_pace.collectives_per_s, *shares, since_ns, where
