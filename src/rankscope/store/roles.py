"""Which process of a run is which rank, of which attempt; which are its helpers, and which launched them.

What a process is called by its launcher comes first; where that leaves a choice, what it did decides: a process that
trains is the rank, whatever wraps it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from rankscope.model.records import PHASES, RankFacts, Role

# What a process did, most of a rank first.
TRAINED, COMMUNICATED, IMPORTED, NOTHING = range(4)
IMPORTS = PHASES.index("imports")
FAILED = ("signalled", "aborted", "vanished")
RAY_WORKER, RAY_NODE = "ray/_private/workers/", "ray/raylet/raylet"  # in the commands of Ray's processes


def activity(facts: RankFacts) -> int:
    """How much of a rank a process is by what it did: steps, or MPI with others; a part of that; torch loaded; none."""
    uses_mpi = facts.finalized is not None
    if facts.ended_steps or (uses_mpi and (facts.world_size or 1) > 1):
        return TRAINED
    reached = PHASES.index(facts.phase) if facts.phase in PHASES else 0
    if uses_mpi or facts.logged_collectives or reached > IMPORTS:
        return COMMUNICATED
    return IMPORTED if reached == IMPORTS or facts.devices else NOTHING


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
        parent = self.by_pid.get((facts.host, facts.parent_pid))
        if parent is None and facts.ancestor_pid is not None:
            parent = self.by_pid.get((facts.host, facts.ancestor_pid))
        return parent

    def precedence(self, facts: RankFacts) -> tuple[bool, int, bool, int, int]:
        """Smaller is more of a rank: own file, did more, was not replaced by exec, is nearer the top, came first."""
        depth = sum(1 for _ in self.ancestors(facts))
        return facts.second_hand, activity(facts), facts.ending == "replaced", depth, facts.started_ns or 0

    def topmost(self, processes: Sequence[RankFacts]) -> list[RankFacts]:
        """Those with none of the others above them."""
        others = {id(facts) for facts in processes}
        return [facts for facts in processes if not any(id(above) in others for above in self.ancestors(facts))]


def assign_roles(processes: Sequence[RankFacts]) -> None:
    """Set the role of every process; without any rank number the process that did most is rank 0 of 1."""
    family = _Family(processes)
    for facts in processes:
        if _is_stopped_by_ray(facts, family):
            facts.ending = "stopped"
    if processes and all(facts.rank is None for facts in processes):
        _number(processes, family)
    first_job = min((facts.job for facts in processes), default="")
    own_job = [facts for facts in processes if facts.job == first_job]
    earlier = _earlier_attempts([facts for facts in own_job if facts.rank is not None], family)
    attempts = {id(facts) for at in earlier for facts in _rank_processes(at, family).values()}
    past = {id(facts) for at in earlier for facts in at}
    chosen = _rank_processes([facts for facts in own_job if id(facts) not in past], family)
    ranks = [*chosen.values(), *(facts for facts in own_job if id(facts) in attempts)]
    launchers = {id(above) for facts in ranks for above in family.ancestors(facts) if above.rank is None}
    for facts in processes:
        if facts.rank is not None and chosen.get(facts.rank) is facts:
            facts.role = Role.RANK
        elif id(facts) in attempts:
            facts.role = Role.ATTEMPT
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


def _complete(facts: RankFacts, other: RankFacts) -> None:
    """What only another rank's file tells of a rank: mostly its host."""
    for name in ("host", "cpu", "switches"):
        if getattr(facts, name) in ("", None):
            setattr(facts, name, getattr(other, name))


# ---------------------------------------------------------------------------------------------------------------------
# Runs in which nobody has a rank number: one process, whatever wraps it, or workers that a program has started itself.
def _number(processes: Sequence[RankFacts], family: _Family) -> None:
    """Rank 0 is the process that did most; workers of one program that train side by side are ranks by their start."""
    present = [facts for facts in processes if facts.ending != "replaced"] or list(processes)
    most = min(activity(facts) for facts in present)
    doing = family.topmost([facts for facts in present if activity(facts) == most])
    if most == NOTHING or len(doing) < 2 or most != TRAINED:
        first = min(present if most == NOTHING else doing or present, key=family.precedence)
        first.rank, first.world_size, first.rank_source = 0, 1, "none"
        return
    for at in _in_turn(_main_program(doing)):
        for rank, facts in enumerate(at):
            facts.rank, facts.world_size, facts.rank_source = rank, len(at), "none"


def _main_program(processes: Sequence[RankFacts]) -> list[RankFacts]:
    """The processes of the program that made most steps."""
    programs: dict[str, list[RankFacts]] = {}
    for facts in processes:
        programs.setdefault(_program(facts), []).append(facts)
    return max(programs.values(), key=lambda those: sum(facts.ended_steps for facts in those))


def _program(facts: RankFacts) -> str:
    """What it runs: its script or module, without the arguments, which may count the workers."""
    try:
        words = shlex.split(facts.command)
    except ValueError:
        words = facts.command.split()
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "")
    return os.path.basename(script) if "-c" not in words[1:3] else facts.command


def _in_turn(processes: Sequence[RankFacts]) -> list[list[RankFacts]]:
    """Those that overlap in time together, in the order of their start; of turns that ended well the longest only."""
    turns: list[list[RankFacts]] = []
    for facts in sorted(processes, key=lambda facts_of: facts_of.started_ns or 0):
        if turns and any(not _over_before(earlier, facts) for earlier in turns[-1]):
            turns[-1].append(facts)
        else:
            turns.append([facts])
    if any(all(not _ended_badly(facts) for facts in turn) for turn in turns[:-1]):
        return [max(turns, key=lambda turn: sum(facts.ended_steps for facts in turn))]
    return turns


def _over_before(earlier: RankFacts, later: RankFacts) -> bool:
    return earlier.ending != "running" and (earlier.ended_ns or 0) <= (later.started_ns or 0)


def _ended_badly(facts: RankFacts) -> bool:
    return facts.ending in FAILED or (facts.ending == "exited" and bool(facts.exit_code))


def _is_stopped_by_ray(facts: RankFacts, family: _Family) -> bool:
    """Ray ends its workers with exit code 1 or a signal when their program ends; that one says how the job went."""
    if RAY_WORKER not in facts.command or not (facts.exit_code == 1 or facts.end_signal in (9, 15)):
        return False
    programs = [above for above in family.ancestors(facts) if RAY_NODE not in above.command]
    return any(above.ending == "exited" and above.exit_code == 0 for above in programs)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that were started anew: by torchrun, which counts, or by whoever repeats what has failed.
def _earlier_attempts(ranked: Sequence[RankFacts], family: _Family) -> list[list[RankFacts]]:
    """The processes of all attempts but the last, those of each together; sets `attempt` where there are several."""
    numbers = {facts.attempt or 0 for facts in ranked}
    if len(numbers) < 2 and len({facts.rank for facts in ranked}) == len(ranked):
        return []
    starts = family.topmost([facts for facts in ranked if not facts.second_hand and facts.ending != "replaced"])
    attempts = _attempts(starts)
    if len(attempts) < 2:
        return []
    _carry_over(attempts)
    if not _is_counted(starts) and not _come_all_again(attempts):
        return []
    number = {id(facts): at for at, those in enumerate(attempts, 1) for facts in those}
    for facts in ranked:
        lineage = [number[id(process)] for process in (facts, *family.ancestors(facts)) if id(process) in number]
        facts.attempt = lineage[0] if lineage else len(attempts)
    return [[facts for facts in ranked if facts.attempt == at] for at in range(1, len(attempts))]


def _is_counted(starts: Sequence[RankFacts]) -> bool:
    return len({facts.attempt for facts in starts}) > 1


def _come_all_again(attempts: Sequence[Sequence[RankFacts]]) -> bool:
    """Whether the last attempt has all ranks of those before: else it is another job, or only a part of one."""
    last = {facts.rank for facts in attempts[-1]}
    return all(facts.rank in last for at in attempts for facts in at)


def _attempts(starts: Sequence[RankFacts]) -> list[list[RankFacts]]:
    """A new one begins where the launcher counts on, or where a rank comes again after one has failed."""
    attempts: list[list[RankFacts]] = []
    count = 0
    for facts in sorted(starts, key=lambda rank_facts: (rank_facts.attempt or 0, rank_facts.started_ns or 0)):
        now = attempts[-1] if attempts else []
        counts_on = (facts.attempt or 0) > count and bool(now)
        if not attempts or counts_on or _comes_again(facts, now):
            attempts.append([])
        attempts[-1].append(facts)
        count = facts.attempt or 0
    return attempts


def _comes_again(facts: RankFacts, attempt: Sequence[RankFacts]) -> bool:
    before = [other for other in attempt if other.rank == facts.rank]
    has_failed = any(_ended_badly(other) for other in attempt)
    return bool(before) and has_failed and all(_over_before(earlier, facts) for earlier in before)


def _carry_over(attempts: list[list[RankFacts]]) -> None:
    """Ranks that nobody counts and that went on while another was started anew belong to the last attempt."""
    last = attempts[-1]
    began = min((facts.started_ns or 0 for facts in last), default=0)
    ranks = {facts.rank for facts in last}
    for at in attempts[:-1]:
        for facts in [other for other in at if other.attempt is None and other.rank not in ranks]:
            if facts.ending == "running" or (facts.ended_ns or 0) > began:
                at.remove(facts)
                last.append(facts)
