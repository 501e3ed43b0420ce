"""Which process of a run is which rank, which are its helpers, and which launched them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.model import RankFacts, Role


class _Family:
    """The processes of a run by parentage."""

    def __init__(self, processes: Sequence[RankFacts]) -> None:
        self.by_pid = {(facts.host, facts.pid): facts for facts in processes if facts.ending == "replaced"}
        self.by_pid |= {(facts.host, facts.pid): facts for facts in processes if facts.ending != "replaced"}

    def ancestors(self, facts: RankFacts) -> Iterator[RankFacts]:
        """The recorded ancestors, nearest first; pids used twice can make no endless walk."""
        seen = {facts.pid}
        parent = self._above(facts)
        while parent is not None and parent.pid not in seen:
            yield parent
            seen.add(parent.pid)
            parent = self._above(parent)

    def _above(self, facts: RankFacts) -> RankFacts | None:
        """Its parent, or the nearest ancestor above a parent that left no file."""
        found = self.by_pid.get((facts.host, facts.parent_pid))
        if found is None and facts.ancestor_pid is not None:
            found = self.by_pid.get((facts.host, facts.ancestor_pid))
        return found

    def precedence(self, facts: RankFacts) -> tuple[bool, bool, bool, int, int]:
        """Smaller is more of a rank: own file, used MPI, was not replaced by exec, is nearer the top, came first."""
        depth = sum(1 for _ in self.ancestors(facts))
        return facts.second_hand, facts.finalized is None, facts.ending == "replaced", depth, facts.started_ns or 0


def assign_roles(processes: Sequence[RankFacts]) -> None:
    """Set the role of every process; without any rank number the topmost process is rank 0 of 1."""
    family = _Family(processes)
    if processes and all(facts.rank is None for facts in processes):
        first = min(processes, key=family.precedence)
        first.rank, first.world_size, first.rank_source = 0, 1, "none"
    first_job = min((facts.job for facts in processes), default="")
    chosen = _rank_processes([facts for facts in processes if facts.job == first_job], family)
    launchers = {id(above) for facts in chosen.values() for above in family.ancestors(facts) if above.rank is None}
    for facts in processes:
        if facts.rank is not None and chosen.get(facts.rank) is facts:
            facts.role = Role.RANK
        elif facts.job != first_job:
            facts.role = f"job {facts.job}"
        elif facts.second_hand and facts.rank is not None:
            facts.role = Role.SUMMARY
            _complete(chosen[facts.rank], facts)
        else:
            facts.role = Role.LAUNCHER if id(facts) in launchers else Role.HELPER


def _rank_processes(processes: Sequence[RankFacts], family: _Family) -> dict[int, RankFacts]:
    chosen: dict[int, RankFacts] = {}
    for facts in processes:
        if facts.rank is not None:
            now = chosen.setdefault(facts.rank, facts)
            if now is not facts and family.precedence(facts) < family.precedence(now):
                chosen[facts.rank] = facts
    return chosen


def _complete(facts: RankFacts, told: RankFacts) -> None:
    """What only another rank's file tells of a rank: mostly its host."""
    for name in ("host", "cpu", "switches"):
        if getattr(facts, name) in ("", None):
            setattr(facts, name, getattr(told, name))
