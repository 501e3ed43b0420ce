"""Which loaded process is which rank of the run.

A rank told by two files is one rank with two sources if they tell different layers of it (an MPI profile and a GPU
trace) and nothing speaks against it: adding up two tellings of the same layer would count everything twice. Where the
layers, hosts or world sizes clash, the second is a rank of another job: kept, but in no table of ranks. What one
rank's file says of the others (second hand) stands for them only where they have no file of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rankscope.model import RankFacts
from rankscope.store.facts import completed

# what is said of the telling, not of the rank
ONLY_TOLD: dict[str, Any] = {"role": "rank", "second_hand": False, "source": "", "tool": "", "versions": ""}


@dataclass(slots=True)
class Member:
    """One process of the run, from whichever files speak of it."""

    process: int
    facts: RankFacts
    layers: frozenset[str]


@dataclass(slots=True)
class Members:
    """The processes of a run, found by rank or by process id."""

    all: list[Member] = field(default_factory=list)
    _of_rank: dict[int, list[Member]] = field(default_factory=dict)
    _of_pid: dict[int, list[Member]] = field(default_factory=dict)
    _second_hand: list[Member] = field(default_factory=list)

    def begin(self, processes: Iterable[int], facts: Iterable[RankFacts], layers: frozenset[str]) -> None:
        """The recorded processes, whose roles are known."""
        for process, one in zip(processes, facts, strict=True):
            self._add(Member(process, one, layers))

    def place(self, facts: RankFacts, layers: frozenset[str]) -> int:
        """The process that a loaded one is, a new one if there was none."""
        if facts.second_hand and facts.rank is not None and not facts.job:
            return self._set_aside(facts, layers)
        if facts.job and facts.role == "rank":
            facts.role = "other"
        known = self._same(facts, layers)
        if known is None:
            if facts.role == "rank" and facts.rank is not None and self._of_rank.get(facts.rank):
                facts.role = "other"
            self._add(Member(self._next(), facts, layers))
            return self.all[-1].process
        # the facts of a file about the rank itself are more exact than a line in another rank's summary
        first, second = (known.facts, facts) if known.layers or not layers else (facts, known.facts)
        known.facts, known.layers = completed(first, second), known.layers | layers
        return known.process

    def settle(self) -> None:
        """Decide what has to wait until all are known."""
        for told in self._second_hand:
            own = self._of_rank.get(told.facts.rank or 0, [])
            if own:
                told.facts.role = "summary" if _sizes_agree(own[0].facts, told.facts) else "other"
            if told.facts.role == "summary":
                own[0].facts = completed(own[0].facts, replace(told.facts, **ONLY_TOLD))
            elif not own:
                self._of_rank[told.facts.rank or 0] = [told]
        self._number_unknown()

    def _number_unknown(self) -> None:
        """Processes of which no file says the rank: numbered as read where no rank is known, else left aside."""
        unknown = [one.facts for one in self.all if one.facts.role == "rank" and one.facts.rank is None]
        for number, facts in enumerate(unknown):
            if self._of_rank:
                facts.role = "helper"
            else:
                facts.rank, facts.rank_source = number, "order of loading"

    def _set_aside(self, facts: RankFacts, layers: frozenset[str]) -> int:
        member = Member(self._next(), facts, layers)
        self.all.append(member)
        self._second_hand.append(member)
        return member.process

    def _next(self) -> int:
        return self.all[-1].process + 1 if self.all else 0

    def _add(self, member: Member) -> None:
        self.all.append(member)
        facts = member.facts
        if facts.rank is not None and facts.role in ("rank", "other") and not facts.job:
            self._of_rank.setdefault(facts.rank, []).append(member)
        if facts.pid is not None:
            self._of_pid.setdefault(facts.pid, []).append(member)

    def _same(self, facts: RankFacts, layers: frozenset[str]) -> Member | None:
        if facts.role != "rank":
            return None
        if facts.rank is not None:
            candidates: Sequence[Member] = self._of_rank.get(facts.rank, [])
        else:
            candidates = self._of_pid.get(facts.pid, []) if facts.pid is not None else []
            candidates = candidates if len(candidates) == 1 else []
        return next((one for one in candidates if _agree(one, facts, layers)), None)


def _agree(known: Member, facts: RankFacts, layers: frozenset[str]) -> bool:
    hosts = {host.partition(".")[0] for host in (known.facts.host, facts.host) if host}
    return _sizes_agree(known.facts, facts) and len(hosts) < 2 and not known.layers & layers


def _sizes_agree(one: RankFacts, other: RankFacts) -> bool:
    return not one.world_size or not other.world_size or one.world_size == other.world_size
