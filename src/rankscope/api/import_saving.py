"""Runs a command with and without a cause of its imports' cost, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rankscope
from rankscope.api.run import Run
from rankscope.model.tables import Table, Tables
from rankscope.questions.imports.imports import BARE, Took, import_cost
from rankscope.questions.imports.saving import (
    Blame,
    Trial,
    blame_bytecode,
    blame_library_path,
    blame_module,
    blame_realpath,
    blame_search,
    import_saving,
)
from rankscope.questions.imports.search import search_entries
from rankscope.questions.imports.trees import Counts, import_trees

# ---------------------------------------------------------------------------------------------------------------------
# Starts a command under `rankscope run`, in a child process, to record its imports.
# Our own Python starts without the current folder on its path; the command's environment is left alone.
STARTER = "import sys; sys.path[0] = {folder!r}; from rankscope.cli import main; raise SystemExit(main())"


@dataclass(frozen=True, slots=True)
class CommandTook:
    """A command that was recorded, and what the kernel says it took, recording included."""

    folder: Path
    exit_code: int
    wall_ns: int
    cpu_ns: int


def import_command(python: str, module: str) -> list[str]:
    """What imports one module in a fresh Python."""
    return [python, "-c", f"import {module}"]


def record(
    command: Sequence[str], folder: Path, level: str, environment: Mapping[str, str] | None = None, silent: bool = False
) -> CommandTook:
    """Run the command to its end; what it prints goes to stderr, so that stdout holds our tables alone."""
    place = str(Path(rankscope.__file__).resolve().parents[1])
    options = ["--imports", level, "--quiet", "--out", str(folder)]
    line = [sys.executable, "-c", STARTER.format(folder=place), "run", *options, "--", *command]
    return run_to_end(line, folder, environment, silent)


def run_to_end(
    line: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, silent: bool = False
) -> CommandTook:
    """Start a program and wait for it; the kernel says what it and its children took."""
    sys.stderr.flush()
    output = subprocess.DEVNULL if silent else 2
    began_ns = time.monotonic_ns()
    with subprocess.Popen(line, env=environment, stdout=output, stderr=output if silent else None) as child:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_ns = time.monotonic_ns() - began_ns
    return CommandTook(folder, child.returncode, wall_ns, round((used.ru_utime + used.ru_stime) * 1e9))


# ---------------------------------------------------------------------------------------------------------------------
# Runs a command bare and recorded, in turns, to say what metering costs.
AGAIN = "nothing, again"  # what it differs by from the other bare run is noise
LEVELS = ("time", "calls", "paths")


def metering_cost(command: Sequence[str], repeats: int, folder: Path, say: Callable[[str], None]) -> Table:
    """Every level of --imports beside the bare command."""
    turns: dict[str, list[Took]] = {name: [] for name in (BARE, AGAIN, *LEVELS)}
    order = list(turns)
    for turn in range(repeats):
        say(f"round {turn + 1} of {repeats}: {len(order)} runs")
        for level in order:
            place = folder / f"cost-{turn}-{level}"
            if level in LEVELS:
                took = record(command, place, level, silent=True)
            else:
                took = run_to_end(command, place, silent=True)
            turns[level].append((took.wall_ns, took.cpu_ns))
        order = order[1:] + order[:1]  # nobody is always first
    return import_cost(turns)


# ---------------------------------------------------------------- import saving
CAUSES = ("realpath", "ld-library-path", "search", "bytecode", "module=NAME")
DIFFERS = "an import was made to fail, so the program may behave differently"
NOTHING = "there is nothing to switch off"


@dataclass(slots=True)
class Switch:
    """How one cause is switched off."""

    name: str
    blame: Blame
    set: dict[str, str] = field(default_factory=dict)  # variables
    unset: tuple[str, ...] = ()
    agent: list[str] = field(default_factory=list)  # lines of RANKSCOPE_WITHOUT
    note: str = ""
    primed: bool = False  # needs a run before those that count
    idle: bool = False  # there is nothing to switch off: not run

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        variables = {name: value for name, value in given.items() if name not in self.unset} | self.set
        if self.agent:
            variables["RANKSCOPE_WITHOUT"] = "\n".join(self.agent)
        return variables


def switch_of(name: str, tables: Tables, folder: Path, given: Mapping[str, str]) -> Switch:
    """What --without NAME means for this command, of which `tables` is the recording."""
    if name == "realpath":
        return Switch(name, blame_realpath(tables), agent=["realpath"])
    if name == "ld-library-path":
        idle = not given.get("LD_LIBRARY_PATH")
        note = f"LD_LIBRARY_PATH is not set: {NOTHING}" if idle else ""
        return Switch(name, blame_library_path(tables), unset=("LD_LIBRARY_PATH",), note=note, idle=idle)
    if name == "search":
        useless = [entry.path for entry in search_entries(tables) if entry.never_hit]
        note = f"switched off: {', '.join(useless)}" if useless else f"every sys.path entry is needed: {NOTHING}"
        agent = [f"search={path}" for path in useless]
        return Switch(name, blame_search(tables), agent=agent, note=note, idle=not useless)
    if name == "bytecode":
        prefix = {"PYTHONPYCACHEPREFIX": str(folder / "pycache")}
        note = "bytecode of all modules in a separate folder"
        return Switch(name, blame_bytecode(tables), prefix, ("PYTHONDONTWRITEBYTECODE",), note=note, primed=True)
    module = name.partition("=")[2]
    return Switch(name, blame_module(tables, module), agent=[f"module={module}"], note=DIFFERS)


def together(switches: Sequence[Switch]) -> Switch:
    """All of them at once: what one stops asking, another may have to ask."""
    combined = Switch("all of these", Blame(sum(switch.blame.calls for switch in switches)))
    for switch in switches:
        combined.set.update(switch.set)
        combined.unset += switch.unset
        combined.agent += switch.agent
        combined.primed = combined.primed or switch.primed
    return combined


CONTROL = "nothing"  # the same command once more in every turn: what differs then is noise


@dataclass(slots=True)
class Turns:
    """One way to run the command, and what each turn took."""

    environment: dict[str, str]
    counts: Counts = field(default_factory=Counts)
    exit_code: int = 0
    timed_exit_code: int = 0
    walls_ns: list[int] = field(default_factory=list)
    cpus_ns: list[int] = field(default_factory=list)

    def add(self, took: CommandTook) -> None:
        self.walls_ns.append(took.wall_ns)
        self.cpus_ns.append(took.cpu_ns)


Say = Callable[[str], None]


def saving(command: Sequence[str], causes: Sequence[str], repeats: int, base: Path, folder: Path, say: Say) -> Table:
    """The table of blame and saving; `base` is the recording with everything on."""
    given = dict(os.environ)
    tables = Run(base).store()
    switches = [Switch(CONTROL, Blame()), *(switch_of(name, tables, folder, given) for name in causes)]
    working = [switch for switch in switches[1:] if not switch.idle]
    if len(working) > 1:
        switches.append(together(working))
    first = Turns(given, counts_of(tables))
    ways = {
        at: _counted(command, switch, folder / f"without-{at}", say)
        for at, switch in enumerate(switches, 1)
        if not switch.idle
    }
    _take_turns(command, {0: first, **ways}, repeats, folder, say)
    idle = Turns(given, first.counts)
    return import_saving([_trial(switch, first, ways.get(at, idle)) for at, switch in enumerate(switches, 1)])


def _take_turns(command: Sequence[str], ways: dict[int, Turns], repeats: int, folder: Path, say: Say) -> None:
    order = list(ways)
    for turn in range(repeats):
        say(f"round {turn + 1} of {repeats}: {len(order)} runs")
        for at in order:
            took = record(command, folder / f"turn-{turn}-{at}", "time", ways[at].environment, silent=True)
            ways[at].add(took)
            ways[at].timed_exit_code = took.exit_code
        order = order[1:] + order[:1]  # nobody is always first


def _counted(command: Sequence[str], switch: Switch, folder: Path, say: Say) -> Turns:
    """Record once without the cause, to count."""
    say(f"without {switch.name}")
    turns = Turns(switch.environment(os.environ))
    if switch.primed:
        record(command, folder.with_name(folder.name + "-primed"), "off", turns.environment, silent=True)
    took = record(command, folder, "paths", turns.environment, silent=True)
    turns.exit_code = took.exit_code
    turns.counts = counts_of(Run(folder).store())
    return turns


def counts_of(tables: Tables) -> Counts:
    """The calls of the whole run."""
    counts = Counts()
    for tree in import_trees(tables):
        counts.add(tree.whole)
    return counts


def _trial(switch: Switch, first: Turns, way: Turns) -> Trial:
    before = (first.walls_ns, first.cpus_ns) if way.walls_ns else ([], [])
    return Trial(
        *(switch.name, switch.blame, first.counts, way.counts),
        *(before[0], way.walls_ns, before[1], way.cpus_ns),
        *(way.exit_code if way.walls_ns else first.timed_exit_code, first.timed_exit_code, switch.note),
    )
