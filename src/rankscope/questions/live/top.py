"""What is a running job doing right now: one screen of it."""

from __future__ import annotations

from collections import Counter

from rankscope.analyse.pace import Pace, mean
from rankscope.model import Cell, Column, Table, Unit
from rankscope.questions.live.hang import HANGS, KINDS, Verdict
from rankscope.questions.live.hang_report import endings, place, sentence, short_place
from rankscope.questions.live.standing import Standing
from rankscope.questions.wording import counted, rank_words

JOB = (
    Column("ranks", Unit.NAME, "Ranks"),
    Column("phases", Unit.NAME, "Phase"),
    Column("steps", Unit.NAME, "Steps"),
    Column("step_ns", Unit.NS, "Step time"),
    Column("parts", Unit.NAME, "Of a step"),
    Column("collectives_per_s", Unit.NUMBER, "Collectives/s"),
    Column("waiting", Unit.SHARE, "Waiting"),
    Column("transferring", Unit.SHARE, "Transferring"),
    Column("outside", Unit.SHARE, "Outside"),
    Column("slowest", Unit.NAME, "Slowest rank"),
    Column("verdict", Unit.NAME, "Hang"),
)
RANKS = (
    Column("rank", Unit.COUNT, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("phase", Unit.NAME, "Phase"),
    Column("steps_per_s", Unit.NUMBER, "Steps/s"),
    Column("collectives_per_s", Unit.NUMBER, "Coll/s"),
    Column("waiting", Unit.SHARE, "Wait"),
    Column("transferring", Unit.SHARE, "Transfer"),
    Column("outside", Unit.SHARE, "Outside"),
    Column("cpu", Unit.SHARE, "CPU"),
    Column("waited_for", Unit.SHARE, "Waited for"),
    Column("since_ns", Unit.NS, "Since"),
    Column("where", Unit.NAME, "Where"),
)
CLEAR_SHARE = 0.05  # by so much of the time the others must wait longer than the rank that is called the slowest


def job_table(title: str, now: Standing, found: Verdict, pace: dict[int, Pace], slowest: str | None = None) -> Table:
    """The job as a whole; of many ranks others say which are the slowest."""
    all_paces = list(pace.values())
    row: tuple[Cell, ...] = (
        _ranks(now),
        _phases(now),
        _steps(now, pace),
        mean(moment.step_ns for moment in now.ranks.values()),
        _parts(now),
        mean(one.collectives_per_s for one in all_paces),
        mean(one.waiting for one in all_paces),
        mean(one.transferring for one in all_paces),
        mean(one.outside for one in all_paces),
        _slowest(pace) if slowest is None else slowest,
        KINDS[found.kind] if found.kind in HANGS else sentence(found, now),
    )
    table = Table("job", title, JOB, [row], vertical=True)
    if found.kind in HANGS:
        table.warnings.append(sentence(found, now))
    return table


def _ranks(now: Standing) -> str:
    parts = [counted(len(now.ranks), "rank"), endings(now)]
    return ": ".join(parts) + (f"; no file of {rank_words(now.missing)}" if now.missing else "")


def _phases(now: Standing) -> str:
    counts = Counter(moment.facts.phase for moment in now.ranks.values() if moment.facts.ending == "running")
    return ", ".join(f"{phase} ({number})" for phase, number in counts.most_common())


def _steps(now: Standing, pace: dict[int, Pace]) -> str:
    done = [moment.steps for moment in now.ranks.values() if moment.steps is not None]
    rate = mean(one.steps_per_s for one in pace.values())
    if not done or rate is None:
        return ""
    span = str(min(done)) if min(done) == max(done) else f"{min(done)} to {max(done)}"
    return f"{span} done, {rate:.3g} a second"


def _parts(now: Standing) -> str:
    """What the newest steps were made of, the largest part first."""
    names = {name for moment in now.ranks.values() for name in moment.step_shares if name != "blocked"}
    shares = {name: mean(moment.step_shares.get(name) for moment in now.ranks.values()) or 0.0 for name in names}
    return ", ".join(
        f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda s: -s[1]) if share >= 0.01
    )


def _slowest(pace: dict[int, Pace]) -> str:
    """The rank that waits least, where the others wait clearly longer."""
    known = sorted((one.waiting, one.rank) for one in pace.values() if one.waiting is not None)
    if len(known) < 2 or known[1][0] - known[0][0] < CLEAR_SHARE:
        return "none stands out" if known else ""
    least, rank = known[0]
    cause = pace[rank].waited_for
    came = f"; {cause:.0%} of the waiting is for it" if cause is not None else ""
    others = mean(share for share, _ in known[1:]) or 0.0
    return f"{rank} (waits {least:.0%} of the time, the others {others:.0%}{came})"


def ranks_table(now: Standing, found: Verdict, pace: dict[int, Pace], most_rows: int | None) -> Table:
    """One row per rank, worst first: guilty of a hang, ended, then those that wait least."""
    order = sorted(pace, key=lambda rank: _badness(now, found, pace[rank]))
    kept = order if most_rows is None else order[: max(1, most_rows)]
    hosts = {moment.facts.host for moment in now.ranks.values()}
    phases = {moment.facts.phase for moment in now.ranks.values()}
    rows = [_row(now, pace[rank], len(hosts) > 1, len(phases) > 1) for rank in kept]
    table = Table("ranks", "Ranks, worst first", RANKS, rows)
    if len(kept) < len(order):
        table.notes.append(f"{len(order) - len(kept)} more ranks")
    return table


def _badness(now: Standing, found: Verdict, one: Pace) -> tuple[bool, bool, float, int]:
    guilty = found.kind in HANGS and one.rank in found.guilty
    return not guilty, not now.is_gone(one.rank), one.waiting if one.waiting is not None else 1.0, one.rank


def _row(now: Standing, one: Pace, with_host: bool, with_phase: bool) -> tuple[Cell, ...]:
    """What is the same for all ranks is left empty: a screen is narrow."""
    facts, (_, since_ns), where = now.ranks[one.rank].facts, place(now, one.rank), short_place(now, one.rank)
    who = (one.rank, facts.host if with_host else "", facts.phase if with_phase else "")
    shares = (one.waiting, one.transferring, one.outside, one.cpu, one.waited_for)
    return *who, one.steps_per_s, one.collectives_per_s, *shares, since_ns, where
