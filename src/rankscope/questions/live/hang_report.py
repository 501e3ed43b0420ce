"""A hang in words and tables: the verdict, where each rank is, and how far each group has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope.model.records import Calling, Entered, RankFacts
from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.questions.live.hang import KINDS, Verdict
from rankscope.questions.live.standing import Standing, operation
from rankscope.questions.wording import counted, ending_text, ranges, rank_words

PLACES = (
    Column("ranks", Unit.NAME, "Ranks"),
    Column("where", Unit.NAME, "Where"),
    Column("since_ns", Unit.NS, "Since", "time in the call the rank is in, or since it left the last one"),
    Column("phase", Unit.NAME, "Phase"),
    Column("process", Unit.NAME, "Process"),
    Column("cpu_share", Unit.SHARE, "% of a CPU", "CPU time ÷ time between two readings"),
    Column("host", Unit.NAME, "Host"),
    Column("line", Unit.NAME, "Python line"),
)
GROUPS = (
    Column("group", Unit.NAME, "Group"),
    Column("size", Unit.COUNT, "Size", "number of members"),
    Column("least", Unit.COUNT, "Entered, least", "collectives of the group entered by the member with the least"),
    Column("most", Unit.COUNT, "Most", "collectives of the group entered by the member with the most"),
    Column("behind", Unit.NAME, "Ranks with the least"),
    Column("inside", Unit.NAME, "In a collective"),
    Column("without_file", Unit.COUNT, "Members unseen", "number of members that left no rank file"),
)
VERDICT = (
    Column("kind", Unit.NAME, "Verdict"),
    Column("group", Unit.NAME, "Group"),
    Column("sequence", Unit.COUNT, "Sequence", "number of the collective in its group"),
    Column("operation", Unit.NAME, "Operation"),
    Column("guilty", Unit.NAME, "Look at rank"),
    Column("waiting", Unit.NAME, "Waiting ranks"),
    Column("waited_ns", Unit.NS, "Waiting for", "how long the waiting ranks have been in it"),
    Column(
        "usual_ns",
        Unit.NS,
        "Longest before",
        "longest stay in, or pause between, collectives of the group in the logs of all ranks",
    ),
)
STATES = {"R": "on a CPU", "S": "asleep", "D": "in the kernel, uninterruptible", "T": "stopped", "t": "traced"}


def verdict_table(verdict: Verdict, now: Standing) -> Table:
    label = now.groups[verdict.group].label if verdict.group in now.groups else ""
    guilty, waiting = ranges(verdict.guilty), ranges(verdict.waiting)
    row = (
        verdict.kind,
        label,
        verdict.sequence,
        verdict.operation,
        guilty,
        waiting,
        verdict.waited_ns,
        verdict.usual_ns,
    )
    return Table("hang", sentence(verdict, now), VERDICT, [row], vertical=True)


def sentence(verdict: Verdict, now: Standing) -> str:
    """The verdict in one line: group, sequence, operation, who and how."""
    if verdict.kind == "ended":
        return f"The job has ended: {endings(now)}"
    if verdict.kind == "restarting":
        return f"No hang: no rank runs ({endings(now)}), but the launcher does: it is restarting them or about to end"
    if verdict.sequence is None and verdict.waiting:
        return _for_messages(verdict, now)
    if verdict.sequence is None:
        quiet = f"; no rank has made a call for {seconds(verdict.waited_ns)}" if verdict.kind == "inconclusive" else ""
        return f"{KINDS[verdict.kind].capitalize()}: no rank is held in a collective{quiet}"
    what = f"{verdict.operation} #{verdict.sequence} of {now.groups[verdict.group].label}"
    if verdict.kind == "died":
        how = f"{rank_words(verdict.guilty)} died ({_ends(verdict, now)}) before {what}"
        return f"The job has ended: {how}, which {rank_words(verdict.waiting)} had entered"
    waiting = f"{rank_words(verdict.waiting)} waiting in {what} for {seconds(verdict.waited_ns)}"
    if verdict.kind == "no_hang":
        whom = f", {rank_words(verdict.guilty)} yet to arrive" if verdict.guilty else ", all have arrived"
        return f"No hang so far: {waiting}{whom}; the longest before was {seconds(verdict.usual_ns)}"
    return f"Hang: {waiting}: {_cause(verdict, now)}" if verdict.waiting else f"Hang: {what}: {_cause(verdict, now)}"


SHOWN = 4


def _for_messages(verdict: Verdict, now: Standing) -> str:
    """Rank by rank what each waits for, a few of them, and where the one is that they wait for."""
    texts = [f"rank {rank} has been {place(now, rank)[0]}" for rank in verdict.waiting[:SHOWN]]
    more = f" and {len(verdict.waiting) - SHOWN} more ranks" if len(verdict.waiting) > SHOWN else ""
    others = [rank for rank in verdict.guilty if rank not in verdict.waiting]
    whom = "".join(f"; rank {rank}: {place(now, rank)[0]}" for rank in others[:SHOWN])
    if verdict.guilty and not others:
        whom = "; they wait for each other"
    start = "No hang so far" if verdict.kind == "no_hang" else "Hang"
    return f"{start}: {', '.join(texts)}{more} for {seconds(verdict.waited_ns)}{whom}"


def _cause(verdict: Verdict, now: Standing) -> str:
    who = rank_words(verdict.guilty)
    instead = " and ".join(sorted(set(verdict.instead.values())))
    if verdict.kind == "stalled":
        return f"all {counted(now.groups[verdict.group].size, 'rank')} have entered it and none leaves"
    if verdict.kind == "dead":
        return f"{who} dead ({_ends(verdict, now)})"
    if verdict.kind == "not_started":
        return f"{who} never started, or left no file"
    if verdict.kind == "not_arrived":
        return f"{who} has not entered it: {place(now, verdict.guilty[0])[0]}"
    if not instead:
        return f"{who} skipped it: {place(now, verdict.guilty[0])[0]}"
    if not verdict.waiting:
        return f"{who} entered different operations under one number: {instead}"
    how = {
        "skipped": "skipped it",
        "order": "calls in another order",
        "skipped_or_order": "skipped it or calls it later",
    }
    return f"{who} {how[verdict.kind]}, and entered {instead} instead"


def _ends(verdict: Verdict, now: Standing) -> str:
    ends = {_ending(now, rank) for rank in verdict.guilty}
    return ", ".join(sorted(ends))


def _ending(now: Standing, rank: int) -> str:
    facts = now.ranks[rank].facts
    return (
        "vanished: killed"
        if facts.ending == "vanished"
        else ending_text(facts.ending, facts.exit_code, facts.end_signal)
    )


def endings(now: Standing) -> str:
    """How the ranks ended: exit 0 (ranks 0-2), SIGKILL (rank 3)."""
    by_end: dict[str, list[int]] = defaultdict(list)
    for rank in now.ranks:
        by_end[_ending(now, rank)].append(rank)
    return ", ".join(f"{end} ({rank_words(ranks)})" for end, ranks in sorted(by_end.items()))


def seconds(ns: int | None) -> str:
    return "?" if ns is None else f"{ns / 1e9:.1f} s" if ns < 120e9 else f"{ns / 60e9:.1f} min"


def place(now: Standing, rank: int) -> tuple[str, int | None]:
    """Where a rank is, in words, and since when."""
    if rank not in now.ranks:
        return "no file: never started, or not recorded", None
    moment, inside, last = now.ranks[rank], now.inside(rank), now.last(rank)
    if now.is_gone(rank):
        where = f"; it was in {_what(now, inside)}" if inside else f"; {_after(now, last)}"
        return f"ended: {_ending(now, rank)}{where}", moment.read_ns - (moment.facts.ended_ns or moment.read_ns)
    if inside:
        how = "waiting for" if inside.nonblocking else "in"
        return f"{how} {_what(now, inside)}", moment.read_ns - inside.start_ns
    if moment.facts.finalized:
        return f"in MPI_Finalize or after it; {_after(now, last)}", _since(moment.read_ns, last)
    calling = now.calling(rank)
    if calling is not None:
        return f"in {_call(now, calling)}", moment.read_ns - calling.since_ns
    return f"outside collectives; {_after(now, last)}", _since(moment.read_ns, last)


def short_place(now: Standing, rank: int) -> str:
    """The same in few characters."""
    inside = now.inside(rank)
    if now.is_gone(rank):
        return _ending(now, rank)
    if inside is not None:
        return _what(now, inside)
    calling = now.calling(rank)
    if now.is_finalizing(rank) or calling is None:
        return "finalize" if now.is_finalizing(rank) else "outside"
    return _call(now, calling)


def standing_place(now: Standing, rank: int) -> tuple[str, int | None]:
    """Where a rank is, in words that many ranks share: no peer is named, and how far it came where it is outside."""
    moment, inside = now.ranks[rank], now.inside(rank)
    if now.is_gone(rank):
        return _ending(now, rank), None
    if inside is not None:
        return f"in {_what(now, inside)}", moment.read_ns - inside.start_ns
    calling = now.calling(rank)
    if calling is not None and not now.is_finalizing(rank):
        return f"in {operation(calling.name)}", moment.read_ns - calling.since_ns
    last = now.last(rank)
    where = "finalize" if now.is_finalizing(rank) else "outside"
    return f"{where}, {f'after {_what(now, last)}' if last else 'before any'}", _since(moment.read_ns, last)


def _call(now: Standing, calling: Calling) -> str:
    """A call and the rank that it names: MPI_Recv from rank 3 (tag 7)."""
    peer, name = now.peer(calling), operation(calling.name)
    if calling.peer is None:
        return name
    sends = "send" in name.lower() if calling.sends is None else calling.sends
    if calling.sends is not None:
        name += " for a message"
    whom = (
        "any rank" if calling.peer < 0 else f"rank {peer}" if peer is not None else f"rank {calling.peer} of its group"
    )
    return f"{name} {'to' if sends else 'from'} {whom}{f' (tag {calling.tag})' if calling.tag is not None else ''}"


def _since(read_ns: int, last: Entered | None) -> int | None:
    return read_ns - last.end_ns if last is not None and last.end_ns is not None else None


def _what(now: Standing, entered: Entered) -> str:
    label = now.groups[entered.group].label if entered.group in now.groups else "a group of its own"
    return f"{operation(entered.name)} #{entered.sequence} of {label}"


def _after(now: Standing, last: Entered | None) -> str:
    return f"it last left {_what(now, last)}" if last is not None else "it has left none yet"


def process_text(now: Standing, rank: int) -> str:
    """What the kernel says of the process, or how long it has not been heard of."""
    if rank not in now.ranks or now.is_gone(rank):
        return ""
    moment = now.ranks[rank]
    if moment.state:
        return STATES.get(moment.state, moment.state)
    silent_ns = max(0, moment.read_ns - (moment.facts.ended_ns or moment.read_ns))
    return f"elsewhere, last heard of {seconds(silent_ns)} ago by its own clock"


def cpu_share(before: Standing, now: Standing, rank: int) -> float | None:
    """How much of a CPU the process used between the two moments."""
    moment, earlier = now.ranks.get(rank), before.ranks.get(rank)
    if moment is None or earlier is None or moment.cpu_ns is None or earlier.cpu_ns is None or not moment.state:
        return None
    passed_ns = moment.read_ns - earlier.read_ns
    return max(0, moment.cpu_ns - earlier.cpu_ns) / passed_ns if passed_ns > 0 else None


@dataclass(slots=True)
class _Row:
    """Ranks at one place."""

    ranks: list[int] = field(default_factory=list)
    since_ns: list[int] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def places_table(before: Standing, now: Standing, lines: Mapping[int, str], collapse: bool) -> Table:
    """Where each rank is; ranks at the same place in one row where that is wanted."""
    alike: dict[tuple[str, str, str, str, str, int | None], _Row] = defaultdict(_Row)
    for rank in sorted([*now.ranks, *now.missing]):
        where, since_ns = place(now, rank)
        facts = now.ranks[rank].facts if rank in now.ranks else RankFacts()
        described = (where, facts.phase, process_text(now, rank), facts.host, lines.get(rank, ""))
        row = alike[(*described, None if collapse else rank)]
        row.ranks.append(rank)
        row.since_ns += [since_ns] if since_ns is not None else []
        share = cpu_share(before, now, rank)
        row.cpu += [share] if share is not None else []
    rows: list[tuple[Cell, ...]] = []
    for (where, phase, process, host, line, _), row in alike.items():
        share = sum(row.cpu) / len(row.cpu) if row.cpu else None
        rows.append((ranges(row.ranks), where, max(row.since_ns, default=None), phase, process, share, host, line))
    return Table("places", "Where each rank is", PLACES, rows)


def groups_table(now: Standing) -> Table:
    """How far each group has come; those whose members differ first."""
    rows: list[tuple[Cell, ...]] = []
    for group in now.groups.values():
        least, most = min(group.entered.values()), max(group.entered.values())
        if most == 0:
            continue
        behind = ranges(rank for rank, entered in group.entered.items() if entered == least) if least < most else ""
        held = {key: now.held(key) for key in now.held_by if key[0] == group.identity}
        inside = "; ".join(f"#{key[1]}: rank {ranges(ranks)}" for key, ranks in sorted(held.items()))
        rows.append((group.label, group.size, least, most, behind, inside, group.unseen or None))
    rows.sort(key=lambda row: (row[2] == row[3], str(row[0])))
    return Table("groups", "Collectives entered", GROUPS, rows)
