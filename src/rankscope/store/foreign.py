"""What was read from one foreign file, kept in the folder of a run as Parquet: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.model.records import BadFile, RankFacts, Reading, Role
from rankscope.store.columns import joined, reading_tables, records_table, schema_of

# ---------------------------------------------------------------- two tellings of one process become one
DEFAULTS = RankFacts()
LISTS = ("source", "tool", "versions")  # of these both are kept


def completed(facts: RankFacts, by: RankFacts) -> RankFacts:
    """The facts, with what they do not say taken from the other telling."""
    filled: dict[str, Any] = {}
    for each in fields(RankFacts):
        mine, other = getattr(facts, each.name), getattr(by, each.name)
        if each.name in LISTS:
            filled[each.name] = "; ".join(dict.fromkeys(part for part in (*_parts(mine), *_parts(other))))
        elif mine == getattr(DEFAULTS, each.name):
            filled[each.name] = other
    return replace(facts, **filled)


def _parts(text: str) -> list[str]:
    return [part for part in text.split("; ") if part]


# ---------------------------------------------------------------- which loaded process is which rank of the run
# A rank told by two files is one rank with two sources if they tell different layers of it (an MPI profile and a GPU
# trace) and nothing speaks against it: adding up two tellings of the same layer would count everything twice. Where
# the layers, hosts or world sizes clash, the second is a rank of another job: kept, but in no table of ranks. What
# one rank's file says of the others (second hand) stands for them only where they have no file of their own.
# what is said of the telling, not of the rank
ONLY_TOLD: dict[str, Any] = {"role": Role.RANK, "second_hand": False, "source": "", "tool": "", "versions": ""}


@dataclass(slots=True)
class RunMember:
    """One process of the run, from whichever files speak of it."""

    process: int
    facts: RankFacts
    layers: frozenset[str]


@dataclass(slots=True)
class Members:
    """The processes of a run, found by rank or by process id."""

    all: list[RunMember] = field(default_factory=list)
    _of_rank: dict[int, list[RunMember]] = field(default_factory=dict)
    _of_pid: dict[int, list[RunMember]] = field(default_factory=dict)
    _second_hand: list[RunMember] = field(default_factory=list)
    _sizes: set[int] = field(default_factory=set)  # world sizes of the run's job

    def begin(self, processes: Iterable[int], facts: Iterable[RankFacts], layers: frozenset[str]) -> None:
        """The recorded processes, whose roles are known."""
        for process, rank_facts in zip(processes, facts, strict=True):
            self._add(RunMember(process, rank_facts, layers))
            self._sizes |= {rank_facts.world_size} if rank_facts.world_size and rank_facts.role == Role.RANK else set()

    def place(self, facts: RankFacts, layers: frozenset[str]) -> int:
        """The process that a loaded one is, a new one if there was none."""
        if facts.second_hand and facts.rank is not None and not facts.job:
            return self._set_aside(facts, layers)
        if facts.job and facts.role == Role.RANK:
            facts.role = Role.OTHER
        known = self._same(facts, layers)
        if known is None:
            if facts.role == Role.RANK and facts.rank is not None and (self._own(facts.rank) or not self._fits(facts)):
                facts.role = Role.OTHER
            self._add(RunMember(self._next(), facts, layers))
            return self.all[-1].process
        # the facts of a file about the rank itself are more exact than a line in another rank's summary
        first, second = (known.facts, facts) if known.layers or not layers else (facts, known.facts)
        known.facts, known.layers = completed(first, second), known.layers | layers
        return known.process

    def settle(self) -> None:
        """Decide what has to wait until all are known."""
        for summary in self._second_hand:
            owners = self._own(summary.facts.rank or 0)
            if not self._fits(summary.facts) or (owners and not _sizes_agree(owners[0].facts, summary.facts)):
                summary.facts.role = Role.OTHER
            elif owners:
                summary.facts.role = Role.SUMMARY
                owners[0].facts = completed(owners[0].facts, replace(summary.facts, **ONLY_TOLD))
            else:
                self._of_rank[summary.facts.rank or 0] = [summary]
        self._number_unknown()

    def _number_unknown(self) -> None:
        """Processes of which no file says the rank: numbered as read where no rank is known, else left aside."""
        unknown = [member.facts for member in self.all if member.facts.role == Role.RANK and member.facts.rank is None]
        for number, facts in enumerate(unknown):
            if self._of_rank:
                facts.role = Role.HELPER
            else:
                facts.rank, facts.rank_source = number, "order of loading"

    def _own(self, rank: int) -> list[RunMember]:
        """What is known of a rank of the run's job."""
        return [member for member in self._of_rank.get(rank, []) if member.facts.role == Role.RANK]

    def _fits(self, facts: RankFacts) -> bool:
        """Whether a process can be of the run's job by that job's size, which the first process that has one tells."""
        if facts.world_size and not self._sizes and facts.role == Role.RANK:
            self._sizes.add(facts.world_size)
        return not facts.world_size or not self._sizes or facts.world_size in self._sizes

    def _set_aside(self, facts: RankFacts, layers: frozenset[str]) -> int:
        member = RunMember(self._next(), facts, layers)
        self.all.append(member)
        self._second_hand.append(member)
        return member.process

    def _next(self) -> int:
        return self.all[-1].process + 1 if self.all else 0

    def _add(self, member: RunMember) -> None:
        self.all.append(member)
        facts = member.facts
        if facts.rank is not None and facts.role in (Role.RANK, Role.OTHER) and not facts.job:
            self._of_rank.setdefault(facts.rank, []).append(member)
        if facts.pid is not None:
            self._of_pid.setdefault(facts.pid, []).append(member)

    def _same(self, facts: RankFacts, layers: frozenset[str]) -> RunMember | None:
        if facts.role != Role.RANK:
            return None
        if facts.rank is not None:
            candidates: Sequence[RunMember] = self._of_rank.get(facts.rank, [])
        else:
            candidates = self._of_pid.get(facts.pid, []) if facts.pid is not None else []
            candidates = candidates if len(candidates) == 1 else []
        return next((candidate for candidate in candidates if _agree(candidate, facts, layers)), None)


def _agree(known: RunMember, facts: RankFacts, layers: frozenset[str]) -> bool:
    hosts = {host.partition(".")[0] for host in (known.facts.host, facts.host) if host}
    return _sizes_agree(known.facts, facts) and len(hosts) < 2 and not known.layers & layers


def _sizes_agree(facts: RankFacts, other: RankFacts) -> bool:
    return not facts.world_size or not other.world_size or facts.world_size == other.world_size


# ---------------------------------------------------------------- foreign
FORMAT = 2  # before: no range_tallies, see add_loaded
ABOUT = "about.json"
FLUSH_ROWS = 100_000
MOST_PROCESSES = 1 << 18
LAYERED = ("tallies", "range_tallies", "events")
PROCESS_TABLES = (*LAYERED, "groups", "peers", "devices")
UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)


class LoadedFile:
    """Takes readings one by one; nothing of them can be seen before `finish`."""

    def __init__(self, run: Path, source: str) -> None:
        self.source = source
        self.processes: list[RankFacts] = []
        self.rows: dict[str, int] = {}
        self._layers: list[set[str]] = []
        self._told: set[int] = set()  # processes of which more is known than figures and notes
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_rows: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        (run / "loaded").mkdir(exist_ok=True)
        self.draft = Path(tempfile.mkdtemp(prefix=".making-", dir=run / "loaded"))
        self.draft.chmod(0o777 & ~_umask())  # others may read the run as they may its other folders

    def add(self, reading: Reading) -> None:
        """One more reading; a number that fits no table is an error of the file."""
        self._enter(reading)
        for note in reading.notes:
            note.tool = note.tool or reading.facts.tool or self.processes[-1].tool or "load"
        try:
            tables = reading_tables(len(self.processes) - 1, reading, events=True)
        except UNFIT as problem:
            raise self._unfit(problem) from None
        for name, table in tables.items():
            self._keep(name, table)
            if name in PROCESS_TABLES and table.num_rows:
                self._told.add(len(self.processes) - 1)
            if name in LAYERED:
                self._layers[-1].update(pc.unique(table["layer"]).to_pylist())

    def _enter(self, reading: Reading) -> None:
        if reading.continues and self.processes:
            self.processes[-1] = completed(reading.facts, self.processes[-1])
        else:
            self.processes.append(reading.facts)
            self._layers.append(set())
        if len(self.processes) > MOST_PROCESSES:
            raise BadFile(f"{self.source}: describes more than {MOST_PROCESSES} processes")

    def _unfit(self, problem: BaseException) -> BadFile:
        return BadFile(f"{self.source}: contains what fits no table ({' '.join(str(problem)[:200].split())})")

    def _keep(self, name: str, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._waiting.setdefault(name, []).append(table)
        self.rows[name] = self.rows.get(name, 0) + table.num_rows
        self._waiting_rows[name] = self._waiting_rows.get(name, 0) + table.num_rows
        if self._waiting_rows[name] >= FLUSH_ROWS:
            self._flush(name)

    def _flush(self, name: str) -> None:
        table = joined(self._waiting.pop(name))
        self._waiting_rows[name] = 0
        if name not in self._writers:
            self._writers[name] = pq.ParquetWriter(self.draft / f"{name}.parquet", schema_of(name), compression="zstd")
        self._writers[name].write_table(table)

    def settle(self) -> list[RankFacts]:
        """The processes, once all readings are in: who has but figures or notes is a document, not a process."""
        for at, facts in enumerate(self.processes):
            if at not in self._told and facts.rank is None and facts.pid is None:
                facts.role = Role.DOCUMENT
        return self.processes

    def finish(self, key: str, about: Mapping[str, Any]) -> None:
        """Write the rest, describe it, and put it in the place of what was there of the same content, the key."""
        for name in list(self._waiting):
            self._flush(name)
        self._close()
        pq.write_table(self._ranks(), self.draft / "ranks.parquet", compression="zstd")
        description = {"format": FORMAT, "source": self.source, **about, "rows": self.rows}
        (self.draft / ABOUT).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        _put(self.draft, self.draft.with_name(key))

    def _ranks(self) -> pa.Table:
        try:
            table = records_table("ranks", list(range(len(self.processes))), self.processes)
        except UNFIT as problem:
            raise self._unfit(problem) from None
        layers = [sorted(str(layer) for layer in layer_set) for layer_set in self._layers]
        return table.append_column("layers", pa.array(layers, pa.list_(pa.string())))

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def abandon(self) -> None:
        """Leave no trace."""
        self._close()
        shutil.rmtree(self.draft, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _put(draft: Path, final: Path) -> None:
    old = final.with_name(f".old-{final.name}-{os.getpid()}")
    if final.exists():
        final.rename(old)
    draft.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def loaded_folders(run: Path) -> list[tuple[Path, dict[str, Any]]]:
    """What is loaded in a run, each with its description, in the order of loading."""
    folders = [(path.parent, _about(path)) for path in run.glob(f"loaded/[!.]*/{ABOUT}")]
    return sorted(
        folders, key=lambda folder: (_number(folder[1], "loaded_ns"), _number(folder[1], "place"), folder[0].name)
    )


@dataclass(slots=True)
class FileNames:
    """By folder of what was loaded: the name its file was loaded under, and the name that tells it from others."""

    called: dict[Path, str] = field(default_factory=dict)
    labels: dict[Path, str] = field(default_factory=dict)


def file_names(folders: Sequence[Path]) -> FileNames:
    """Files of equal names, loaded from different folders, get as much of their paths as it takes."""
    names = FileNames()
    paths: dict[str, dict[str, list[Path]]] = {}  # by name, by path
    for folder in folders:
        called = names.called[folder] = names.labels[folder] = _called(folder)
        paths.setdefault(called, {}).setdefault(str(_about(folder / ABOUT).get("source") or called), []).append(folder)
    for same in (same for same in paths.values() if len(same) > 1):
        for path, label in zip(same, told_apart(list(same)), strict=True):
            names.labels.update(dict.fromkeys(same[path], label))
    return names


def _called(folder: Path) -> str:
    sources = pq.read_table(folder / "ranks.parquet", columns=["source"])["source"].to_pylist()
    return next((source for source in sources if source), "")


def told_apart(paths: Sequence[str]) -> list[str]:
    """The ends of different paths, as long as it takes to tell them apart."""
    parts = [path.split("/") for path in paths]
    length = next(length for length in range(1, max(map(len, parts)) + 1) if _differ(parts, length))
    return ["/".join(part[-length:]) for part in parts]


def _differ(parts: Sequence[Sequence[str]], length: int) -> bool:
    return len({tuple(part[-length:]) for part in parts}) == len(parts)


def _about(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        description = None
    return description if isinstance(description, dict) else {}


def _number(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name)
    return value if type(value) is int else 0


def remove_replaced(run: Path, source: str, key: str) -> bool:
    """Drop what an earlier version of the same file gave; true if there was one."""
    old = [folder for folder, about in loaded_folders(run) if about.get("source") == source and folder.name != key]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return bool(old)
