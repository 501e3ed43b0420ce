"""What the header of a rank file says of its process, and what should be said about the file."""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope import rank_file
from rankscope.model.records import PHASES, Ending, Note, RankFacts, Severity
from rankscope.rank_file import Flag, State
from rankscope.rank_files.chunks import RankFile
from rankscope.rank_files.clock import Clock

# ---------------------------------------------------------------------------------------------------------------------
# How a process ended, as far as its rank file and this machine can tell.
# plain numbers: members of enumerations are slow to look up where thousands of files are read
ABORTED, RUNNING, ENDED = int(Flag.MPI_ABORTED), int(State.RUNNING), int(State.EXITED)
REPLACED, SIGNALLED = int(State.REPLACED), int(State.SIGNALLED)
HEARD_WITHIN_NS = 10_000_000_000  # a process elsewhere counts as running when its last sign of life is this recent


@dataclass(frozen=True, slots=True)
class Here:
    """Where and when the reading happens; injectable so that tests decide."""

    host: str = field(default_factory=socket.gethostname)
    proc: Path = Path("/proc")
    now_ns: Callable[[], int] = time.time_ns

    def sees(self, namespace: int) -> bool:
        """Whether the processes of a pid namespace have the numbers here that they have there."""
        try:
            return namespace in (0, os.stat(f"{self.proc}/self/ns/pid").st_ino)
        except OSError:
            return True


def ending(header: Any, last_heard_ns: int, here: Here) -> Ending:
    """How the process ended; for one that left no end state, whether it still runs."""
    state, aborted = int(header["state"]), bool(int(header["flags"]) & ABORTED)
    if state == REPLACED:
        return "replaced"
    if state in (ENDED, SIGNALLED):
        return "aborted" if aborted else "exited" if state == ENDED else "signalled"
    if state != RUNNING:
        return "unknown"
    state_now = _running(header, last_heard_ns, here)
    return "aborted" if aborted and state_now != "running" else state_now


def _running(header: Any, last_heard_ns: int, here: Here) -> Ending:
    """On its own host the kernel knows; elsewhere, and in containers, only the last sign of life can speak."""
    if header["host"].decode("utf-8", "backslashreplace") == here.host and here.sees(int(header["pid_namespace"])):
        return "running" if _is_alive(header, here.proc) else "vanished"
    return "running" if here.now_ns() - last_heard_ns < HEARD_WITHIN_NS else "unknown"


def _is_alive(header: Any, proc: Path) -> bool:
    """Whether a process of this pid and this start time exists and is no zombie."""
    try:
        words = process_words(proc, int(header["pid"]))
        return words[0] not in "ZX" and int(words[19]) == int(header["start_jiffies"])
    except (OSError, ValueError, IndexError):
        return False


def process_words(proc: Path, pid: int) -> list[str]:
    """What the kernel says of a process, from its state on."""
    with open(f"{proc}/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode("ascii", "replace").split()


# ---------------------------------------------------------------- facts
SOURCES = {
    rank_file.RankSource.NONE: "none",
    rank_file.RankSource.OPENMPI: "Open MPI",
    rank_file.RankSource.TORCHRUN: "torchrun",
    rank_file.RankSource.SLURM: "Slurm",
    rank_file.RankSource.PMIX: "PMIx",
    rank_file.RankSource.HOROVOD: "Horovod",
    rank_file.RankSource.FLUX: "Flux",
    rank_file.RankSource.TORCH: "init_process_group",
    rank_file.RankSource.ONECCL: "oneCCL",
    rank_file.RankSource.JAX: "jax.distributed.initialize",
}
USAGE = (
    "user_ns",
    "system_ns",
    "max_rss_bytes",
    "voluntary_switches",
    "involuntary_switches",
    "minor_faults",
    "major_faults",
)


def _span(first: str, last: str) -> slice:
    """The bytes of a header from one member to another."""
    members = rank_file.HEADER.fields
    assert members is not None
    return slice(members[first][1], members[last][1] + members[last][0].itemsize)


# plain numbers: members of enumerations are slow to look up where thousands of files are read
STARTED, FINALIZED, EXITED = int(Flag.MPI_STARTED), int(Flag.MPI_FINALIZED), int(rank_file.State.EXITED)
LASTING = (_span("flags", "flags"), _span("pid", "start_jiffies"), _span("loaded", "loaded"), _span("host", "command"))
COUNTS = (
    *("lost_calls", "untracked_requests", "folded_groups", "lost_strings", "paused_calls"),
    *("short_processes", "short_failed", "short_cpu_ns"),
)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _command(header: Any) -> str:
    arguments = header["command"].tobytes().rstrip(b"\0").split(b"\0")
    text = shlex.join(_text(argument) for argument in arguments) if arguments != [b""] else ""
    return f"{text} ..." if header["flags"] & Flag.COMMAND_CUT else text


def facts_of(file: RankFile, clock: Clock, last_ticks: int, here: Here, known: KeptFacts | None = None) -> RankFacts:
    """What the header says now; of what seldom changes, that of an earlier look where it is the same."""
    header, usage = file.header, file.header["facts"]
    ended_ticks = int(header["ended_ticks"]) or last_ticks
    ended_ns = clock.unix_ns_at(ended_ticks)
    facts = (known or KeptFacts()).copy(file)
    how = ending(header, ended_ns, here)
    facts.ended_ns, facts.elapsed_ns = ended_ns, max(0, ended_ns - (facts.started_ns or 0))
    facts.ending, facts.exit_code, facts.end_signal = how, _exit_code(header, how), int(header["end_signal"]) or None
    facts.reaped_ns = clock.unix_ns_at(int(header["reaped_ticks"])) if header["reaped_ticks"] else None
    phase = int(header["phase"])
    facts.phase = PHASES[phase] if phase < len(PHASES) else ""
    facts.threads = int(usage["threads"]) or None
    facts.logged_collectives = int(header["log_written"]) % 2**63
    _add_mpi(facts, header, clock, ended_ticks)
    _add_usage(facts, header)
    _add_cost(facts, header, clock)
    return facts


class KeptFacts:
    """Who a process is, worked out anew only where its header says something else than before."""

    def __init__(self) -> None:
        self._told: list[bytes] = []
        self._lasting: dict[str, Any] = {}

    def copy(self, file: RankFile) -> RankFacts:
        raw = file.header.tobytes()
        parts = [raw[part] for part in LASTING]
        if parts != self._told:
            self._told, self._lasting = parts, _lasting(file)
        return RankFacts(**self._lasting)


def _lasting(file: RankFile) -> dict[str, Any]:
    header = file.header
    return {
        "host": _text(header["host"]),
        "pid": int(header["pid"]),
        "parent_pid": int(header["parent_pid"]),
        "ancestor_pid": int(header["ancestor_pid"]) or None,
        "attempt": int(header["attempt"]) or None,
        "rank": _known(header["rank"]),
        "local_rank": _known(header["local_rank"]),
        "world_size": _known(header["world_size"]) or int(header["launcher_world_size"]) or None,
        "rank_source": _source(int(header["rank_source"])),
        "command": _command(header),
        "executable": _text(header["executable"]),
        "started_ns": int(header["started_realtime_ns"]) or int(header["loaded"]["realtime_ns"]),
        "cpus_allowed": int(header["cpus_allowed"]) or None,
        "versions": _versions(header),
        "source": str(file.path),
    }


def _add_mpi(facts: RankFacts, header: Any, clock: Clock, ended_ticks: int) -> None:
    flags = int(header["flags"])
    if flags & STARTED:
        facts.finalized = bool(flags & FINALIZED)
        until = int(header["mpi_finalized_ticks"]) or ended_ticks
        facts.mpi_elapsed_ns = max(0, clock.ns(until - int(header["mpi_started_ticks"])))


def _add_usage(facts: RankFacts, header: Any) -> None:
    for name in USAGE:
        setattr(facts, name, int(header["facts"][name]) % 2**63)
    facts.runnable_ns = int(header["runnable_ns"]) % 2**63 or None


def _add_cost(facts: RankFacts, header: Any, clock: Clock) -> None:
    facts.setup_ns = clock.ns(int(header["setup_ticks"]))
    traced = int(header["trace_cost_milliticks"])
    facts.call_cost_ns = (int(header["call_cost_milliticks"]) + traced) / 1000 * clock.ns_per_tick
    facts.collective_cost_ns = (int(header["collective_cost_milliticks"]) + traced) / 1000 * clock.ns_per_tick
    facts.steps_cost_ns = clock.ns(1000 * int(header["steps_cost_kiloticks"]))
    facts.lost_ns = clock.ns(int(header["lost_ticks"]))
    for name in COUNTS:
        setattr(facts, name, int(header[name]) % 2**63)


def _known(number: Any) -> int | None:
    return int(number) if number >= 0 else None


def _source(number: int) -> str:
    if number not in set(rank_file.RankSource):
        return "unknown"
    return SOURCES.get(rank_file.RankSource(number), rank_file.RankSource(number).name)


def _exit_code(header: Any, how: str) -> int | None:
    if int(header["state"]) == EXITED:
        return int(header["exit_code"])
    return int(header["abort_code"]) if how == "aborted" else None


def _versions(header: Any) -> str:
    library = _text(header["mpi_version"]).strip().partition("\n")[0].partition(",")[0]
    parts = (f"rankscope {_text(header['rankscope_version'])}", " ".join(library.split()))
    return "; ".join(part for part in parts if part)


def notes_of(file: RankFile, clock: Clock, unwrapped: list[str], world_size: int | None) -> list[Note]:
    header, where = file.header, str(file.path)
    notes = [Note(f"not intercepted: {name}", Severity.NOTE, where) for name in unwrapped]
    if header["flags"] & Flag.SINGLETON:
        # the header keeps the numbers of the launcher, which tell the processes apart
        text = (
            f"the launcher announced {header['launcher_world_size']} ranks, MPI_COMM_WORLD has {world_size or 'fewer'}"
        )
        notes.append(Note(f"{text}: wrong mpirun for this MPI library?", Severity.WARNING, where))
    if header["flags"] & Flag.WENT_ON_UNRECORDED:
        notes.append(Note("not recorded: 1 × what this process went on as: another root", Severity.NOTE, where))
    if header["flags"] & Flag.MPI_UNKNOWN_KIND:
        named = " ".join(_text(header["mpi_version"]).split()) or "it does not say which"
        text = (
            f"the MPI library is of no kind that rankscope knows ({named[:80]}): its calls were passed on, not recorded"
        )
        notes.append(Note(text, Severity.WARNING, where))
    if header["flags"] & Flag.PAUSED:
        notes.append(Note("paused by MPI_Pcontrol(0) at the end", Severity.NOTE, where))
    if header["lost_peers"]:
        notes.append(
            Note(f"{header['lost_peers']} messages did not fit in the sent-to matrix", Severity.WARNING, where)
        )
    if not clock.known:
        notes.append(
            Note("ended before its clock could be calibrated: its times are left out", Severity.WARNING, where)
        )
    for kind in sorted(file.unknown_kinds()):
        notes.append(Note(f"chunks of unknown kind {kind} were left out", Severity.WARNING, where))
    return notes
