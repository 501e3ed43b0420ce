"""Does the job hang: which collective is nobody leaving, who has not come to it, and why not?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rankscope.model.records import UNSIZED, Entered
from rankscope.questions.live.standing import Key, Signature, Standing, operation, sides, signature

KINDS = {
    "skipped": "skipped a collective",
    "order": "disagree on the order",
    "skipped_or_order": "skipped a collective, or disagree on the order",
    "not_arrived": "not arrived",
    "dead": "dead",
    "not_started": "never started",
    "stalled": "all arrived, none leaves",
    "messages": "waiting for messages that never arrive",
    "no_hang": "no hang",
    "inconclusive": "inconclusive",
    "restarting": "no rank runs, the launcher does",
    "ended": "the job has ended",
    "died": "the job has ended after a rank died",
}
HANGS = ("skipped", "order", "skipped_or_order", "not_arrived", "dead", "not_started", "stalled", "messages", "died")
OVER = ("ended", "died")  # nobody is left
USUAL_TIMES = 3  # a wait counts as a hang when it is this many times the longest one that ended


@dataclass(slots=True)
class Verdict:
    """What holds up the job."""

    kind: str
    group: str = ""  # identity
    sequence: int | None = None
    operation: str = ""
    guilty: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    waited_ns: int | None = None
    usual_ns: int | None = None  # the longest that anybody stayed away from or in a collective of the group before
    instead: dict[int, str] = field(default_factory=dict)  # guilty rank -> the operation it entered in its place


def verdict(before: Standing, now: Standing, patience_ns: int) -> Verdict:
    """The one thing to look at first, from two moments: what moved in between is slow, not stuck."""
    alive = [rank for rank in now.ranks if not now.is_gone(rank)]
    stuck = _stuck(before, now)
    for find in (_disagreeing, _left, _dead):
        result = find(now, stuck, alive)
        if result is not None:
            return result
    if not alive and now.launcher_runs and not all(_ended_well(now, rank) for rank in now.ranks):
        return Verdict("restarting")
    if not alive:
        return _after_the_end(now)
    return _waiting(before, now, stuck, patience_ns)


def _stuck(before: Standing, now: Standing) -> list[Key]:
    """Collectives that the same ranks were in at both moments, those that hold most ranks first."""
    held: dict[Key, int] = defaultdict(int)
    for rank in now.under_way:
        record = now.inside(rank)
        if record is not None and record.group in now.groups and _still(before, now, rank, record):
            held[record.group, record.sequence] += 1
    return sorted(held, key=lambda key: (-held[key], key))


def _still(before: Standing, now: Standing, rank: int, entered: Entered) -> bool:
    """Whether it was under way before; a nonblocking one holds nobody who does other things."""
    earlier = before.records.get(rank, {}).get((entered.group, entered.sequence))
    held = earlier is not None and earlier.end_ns is None
    return held and not (entered.nonblocking and _moved(before, now, rank))


def _verdict(kind: str, now: Standing, key: Key, guilty: Sequence[int]) -> Verdict:
    waiting = [rank for rank in now.held(key) if rank not in guilty]
    records = [now.records[rank][key] for rank in waiting or now.held(key)]
    name = Counter(operation(record.name) for record in records).most_common(1)[0][0] if records else ""
    ages = [now.ranks[rank].read_ns - now.records[rank][key].start_ns for rank in waiting or now.held(key)]
    return Verdict(
        kind, key[0], key[1], name, tuple(sorted(guilty)), tuple(waiting), max(0, *ages, 0) if ages else None
    )


# --- ranks that are in different operations at the same place -----------------------------------------------------


def _disagreeing(now: Standing, stuck: Sequence[Key], alive: Sequence[int]) -> Verdict | None:
    """Members of a group that entered different operations under one number."""
    for key in stuck:
        parties = sides(now, key)
        if len(parties) > 1 and not now.groups[key[0]].guessed:
            return _minority(now, key, list(parties.values()))
    return None


def _minority(now: Standing, key: Key, parties: Sequence[list[int]]) -> Verdict:
    """The fewer are the guilty ones, everybody where no side is larger."""
    most = max(len(ranks) for ranks in parties)
    largest = [ranks for ranks in parties if len(ranks) == most]
    rest = [rank for ranks in parties if len(largest) > 1 or len(ranks) < most for rank in ranks]
    followed = largest[0] if len(largest) == 1 else []
    kinds = {_how(now, key, rank, followed) for rank in rest}
    result = _verdict(kinds.pop() if len(kinds) == 1 else "skipped_or_order", now, key, rest)
    result.waiting = tuple(sorted(followed))
    if followed:
        result.operation = operation(now.records[followed[0]][key].name)
    result.instead = {rank: _entered_as(now.records[rank][key], result.operation) for rank in rest}
    return result


def _entered_as(entered: Entered, expected: str) -> str:
    """The operation, and what else differs where that is the same."""
    name, root = operation(entered.name), f", root {entered.root}" if entered.root >= 0 else ""
    size = "size not known" if entered.bytes == UNSIZED else f"{entered.bytes} bytes"
    return name if name != expected else f"{name} ({size}{root})"


def _how(now: Standing, key: Key, rank: int, followed: Sequence[int]) -> str:
    """Skipped or in another order: what the rank entered afterwards tells, where it entered anything."""
    own_tail = _tail(now, key, rank)
    theirs = max((_tail(now, key, other) for other in followed), key=len, default=[])
    if now.is_gone(rank) or now.is_finalizing(rank):
        return "skipped"
    shared = min(len(own_tail), len(theirs) - 1)
    if shared >= 2 and own_tail[:shared] == theirs[1 : 1 + shared]:
        return "skipped"
    if len(own_tail) > 1 and sorted(own_tail[: len(theirs)]) == sorted(theirs[: len(own_tail)]):
        return "order"
    return "skipped_or_order"


def _tail(now: Standing, key: Key, rank: int) -> list[Signature]:
    """What a rank entered on the group from this place on."""
    records, sequence = now.records[rank], key[1]
    tail: list[Signature] = []
    while (key[0], sequence) in records:
        tail.append(signature(records[key[0], sequence]))
        sequence += 1
    return tail


# --- ranks that will never come ------------------------------------------------------------------------------------


def _left(now: Standing, stuck: Sequence[Key], alive: Sequence[int]) -> Verdict | None:
    """Ranks that ended well, or are in finalize, without having entered what others wait in."""
    for key in stuck:
        gone = [rank for rank in now.absent(key) if _ended_well(now, rank) or now.is_finalizing(rank)]
        if gone:
            return _verdict("skipped", now, key, gone)
    return None


def _ended_well(now: Standing, rank: int) -> bool:
    return rank in now.ranks and now.ranks[rank].facts.ending == "exited" and now.ranks[rank].facts.exit_code == 0


def _dead(now: Standing, stuck: Sequence[Key], alive: Sequence[int]) -> Verdict | None:
    """Members that died before they could enter or leave what the living wait in."""
    for key in stuck:
        if not set(now.held(key)) & set(alive):
            continue
        members = now.groups[key[0]].entered
        dead = [rank for rank in members if now.is_gone(rank) and _had_not_left(now, rank, key)]
        if dead:
            return _verdict("dead", now, key, dead)
    return None


def _had_not_left(now: Standing, rank: int, key: Key) -> bool:
    record = now.records[rank].get(key)
    return record.end_ns is None if record else now.groups[key[0]].entered[rank] < key[1]


# --- a job that is over --------------------------------------------------------------------------------------------


def _after_the_end(now: Standing) -> Verdict:
    """Some libraries end every rank when one is gone: who had not entered what the others were in is told all the same.

    Where all ended alike (by the user, by the launcher), who was behind by chance is nobody's fault."""
    if len({_end(now, rank) for rank in now.ranks}) < 2:
        return Verdict("ended")
    for group in now.groups.values():
        least, most = min(group.entered.values()), max(group.entered.values())
        behind = [rank for rank, entered in group.entered.items() if entered == least and rank in now.ranks]
        others = {_end(now, rank) for rank in group.entered if rank in now.ranks and rank not in behind}
        if least < most and behind and all(_ended_badly(now, rank, others) for rank in behind):
            return _died(now, (group.identity, least + 1), behind)
    return Verdict("ended")


def _end(now: Standing, rank: int) -> tuple[str, int | None, int | None]:
    facts = now.ranks[rank].facts
    return facts.ending, facts.exit_code, facts.end_signal


def _ended_badly(now: Standing, rank: int, others: set[tuple[str, int | None, int | None]]) -> bool:
    return not _ended_well(now, rank) and _end(now, rank) not in others


def _died(now: Standing, key: Key, guilty: Sequence[int]) -> Verdict:
    entered = [rank for rank in sorted(now.records) if key in now.records[rank]]
    names = Counter(operation(now.records[rank][key].name) for rank in entered).most_common(1)
    return Verdict("died", *key, names[0][0] if names else "", tuple(sorted(guilty)), tuple(entered))


# --- ranks that may come yet ---------------------------------------------------------------------------------------


def _waiting(before: Standing, now: Standing, stuck: Sequence[Key], patience_ns: int) -> Verdict:
    """Who is waited for, once those who wait themselves are left out; a circle of them is a disagreement."""
    if not stuck:
        return _quiet(before, now, patience_ns)
    waits = {rank: set(now.absent(key)) for key in stuck for rank in now.held(key)}
    ends = {rank for absent in waits.values() for rank in absent} - waits.keys()
    for key in stuck:
        awaited = [rank for rank in now.absent(key) if rank in ends]
        if awaited:
            return _late(before, now, key, awaited, patience_ns)
    circle = [key for key in stuck if now.absent(key)]
    if circle:
        return _in_a_circle(now, circle)
    for key in stuck:
        if any(not now.records[rank][key].nonblocking for rank in now.held(key)):
            return _late(before, now, key, [], patience_ns)
    return _quiet(before, now, patience_ns)  # begun by all, and perhaps done: only their waiting would show it


def _in_a_circle(now: Standing, keys: Sequence[Key]) -> Verdict:
    """Ranks wait in different groups for each other: the fewer are the guilty ones, all where they are as many."""
    most = len(now.held(keys[0]))
    rivals = [key for key in keys if len(now.held(key)) == most]
    guilty = now.absent(keys[0]) if len(rivals) == 1 else sorted({r for key in rivals for r in now.absent(key)})
    result = _verdict("skipped_or_order", now, keys[0], guilty)
    for rank in guilty:
        record = now.inside(rank)
        if record is not None:
            result.instead[rank] = f"{operation(record.name)} #{record.sequence} of {now.groups[record.group].label}"
    return result


def _late(before: Standing, now: Standing, key: Key, awaited: Sequence[int], patience_ns: int) -> Verdict:
    unseen = [rank for rank in awaited if rank in now.missing]
    kind = "not_started" if unseen else "not_arrived" if awaited else "stalled"
    result = _verdict(kind, now, key, unseen or awaited)
    result.usual_ns = usual_ns(now, key[0])
    moves = any(_moved(before, now, rank) for rank in awaited)
    if moves or (result.waited_ns or 0) < max(patience_ns, USUAL_TIMES * result.usual_ns):
        result.kind = "no_hang"
    return result


def _moved(before: Standing, now: Standing, rank: int) -> bool:
    """Whether a rank that is waited for does something that its file shows."""
    if rank not in before.ranks or rank not in now.ranks:
        return False
    return now.ranks[rank].calls > before.ranks[rank].calls or _entered(now, rank) > _entered(before, rank)


def _entered(at: Standing, rank: int) -> int:
    return sum(group.collectives for group in at.ranks[rank].groups)


def usual_ns(now: Standing, identity: str) -> int:
    """The longest stay in, or pause between, collectives of this group in the logs: what this job is used to."""
    longest = 0
    for moment in now.ranks.values():
        ended = [record for record in moment.entered if record.group == identity and record.end_ns is not None]
        for record, following in pairwise(ended):
            longest = max(longest, following.start_ns - (record.end_ns or 0))
        longest = max([longest, *((record.end_ns or 0) - record.start_ns for record in ended)])
    return longest


def _quiet(before: Standing, now: Standing, patience_ns: int) -> Verdict:
    """Nobody stands in a collective: fine while something moves or has moved of late."""
    alive = [rank for rank in now.ranks if not now.is_gone(rank)]
    result = _for_messages(before, now, alive, patience_ns)
    if result is not None:
        return result
    if any(_moved(before, now, rank) for rank in alive):
        return Verdict("no_hang")
    last_ns = max((now.ranks[rank].facts.ended_ns or 0 for rank in alive), default=0)
    silent_ns = max((now.ranks[rank].read_ns for rank in alive), default=0) - last_ns
    usual = max((usual_ns(now, identity) for identity in now.groups), default=0)
    kind = "inconclusive" if silent_ns > max(patience_ns, USUAL_TIMES * usual) else "no_hang"
    return Verdict(kind, waited_ns=silent_ns, usual_ns=usual)


def _for_messages(before: Standing, now: Standing, alive: Sequence[int], patience_ns: int) -> Verdict | None:
    """Ranks that were in the same call outside collectives at both moments, and those that they wait for."""
    held = {rank: call for rank in alive if (call := now.calling(rank)) is not None and call == before.calling(rank)}
    if not held:
        return None
    awaited = {peer for call in held.values() if (peer := now.peer(call)) is not None}
    guilty = sorted(awaited - held.keys()) or sorted(awaited & held.keys())  # a circle: all of them
    since_ns = max(now.ranks[rank].read_ns - call.since_ns for rank, call in held.items())
    usual = max((usual_ns(now, identity) for identity in now.groups), default=0)
    name = Counter(operation(call.name) for call in held.values()).most_common(1)[0][0]
    result = Verdict("messages", "", None, name, tuple(guilty), tuple(sorted(held)), since_ns, usual)
    ended = any(now.is_gone(rank) or rank in now.missing for rank in guilty)
    moves = any(_moved(before, now, rank) for rank in (guilty or alive))
    if not ended and (moves or since_ns < max(patience_ns, USUAL_TIMES * usual)):
        result.kind = "no_hang"
    return result
