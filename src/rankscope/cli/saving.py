"""Runs a command with and without a cause of its imports' cost, in turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.analyse.import_blame import (
    Blame,
    blame_bytecode,
    blame_library_path,
    blame_module,
    blame_realpath,
    blame_search,
)
from rankscope.analyse.import_data import Counts, import_trees
from rankscope.analyse.import_saving import Trial, import_saving
from rankscope.analyse.import_search import search_entries
from rankscope.cli.importing import Recorded, record
from rankscope.model import Table, Tables

CAUSES = ("realpath", "ld-library-path", "search", "bytecode", "module=NAME")
DIFFERS = "an import was made to fail: the program may do something else then"
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

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        made = {name: value for name, value in given.items() if name not in self.unset} | self.set
        if self.agent:
            made["RANKSCOPE_WITHOUT"] = "\n".join(self.agent)
        return made


def switch_of(name: str, tables: Tables, folder: Path, given: Mapping[str, str]) -> Switch:
    """What --without NAME means for this command, of which `tables` is the recording."""
    if name == "realpath":
        return Switch(name, blame_realpath(tables), agent=["realpath"])
    if name == "ld-library-path":
        note = "" if given.get("LD_LIBRARY_PATH") else f"LD_LIBRARY_PATH is not set: {NOTHING}"
        return Switch(name, blame_library_path(tables), unset=("LD_LIBRARY_PATH",), note=note)
    if name == "search":
        useless = [entry.path for entry in search_entries(tables) if entry.never_hit]
        note = f"switched off: {', '.join(useless)}" if useless else f"every entry of sys.path is of use: {NOTHING}"
        return Switch(name, blame_search(tables), agent=[f"search={path}" for path in useless], note=note)
    if name == "bytecode":
        prefix = {"PYTHONPYCACHEPREFIX": str(folder / "pycache")}
        note = "bytecode of all modules in one folder of its own"
        return Switch(name, blame_bytecode(tables), prefix, ("PYTHONDONTWRITEBYTECODE",), note=note, primed=True)
    module = name.partition("=")[2]
    return Switch(name, blame_module(tables, module), agent=[f"module={module}"], note=DIFFERS)


def together(switches: Sequence[Switch]) -> Switch:
    """All of them at once: what one stops asking, another may have to ask."""
    made = Switch("all of these", Blame(sum(one.blame.calls for one in switches)))
    for one in switches:
        made.set.update(one.set)
        made.unset += one.unset
        made.agent += one.agent
        made.primed = made.primed or one.primed
    return made


@dataclass(slots=True)
class Turns:
    """One way to run the command, and what each turn took."""

    environment: dict[str, str]
    counts: Counts = field(default_factory=Counts)
    exit_code: int = 0
    walls_ns: list[int] = field(default_factory=list)
    cpus_ns: list[int] = field(default_factory=list)

    def add(self, one: Recorded) -> None:
        self.walls_ns.append(one.wall_ns)
        self.cpus_ns.append(one.cpu_ns)


Open = Callable[[Path], Tables]
Say = Callable[[str], None]


def saving(
    command: Sequence[str], causes: Sequence[str], repeats: int, base: Path, folder: Path, open_tables: Open, say: Say
) -> Table:
    """The table of blame and saving; `base` is the recording with everything on."""
    given = dict(os.environ)
    tables = open_tables(base)
    switches = [switch_of(name, tables, folder, given) for name in causes]
    if len(switches) > 1:
        switches.append(together(switches))
    first = Turns(given, counts_of(tables))
    ways = [_counted(command, one, folder / f"without-{at}", open_tables, say) for at, one in enumerate(switches)]
    for turn in range(repeats):
        say(f"turn {turn + 1} of {repeats}: {len(ways) + 1} runs")
        order = list(enumerate([first, *ways]))
        for at, way in order if turn % 2 == 0 else reversed(order):  # what drifts meanwhile falls on all alike
            one = record(command, folder / f"turn-{turn}-{at}", "time", way.environment, silent=True)
            way.add(one)
            first.exit_code = one.exit_code if at == 0 else first.exit_code
    return import_saving([_trial(switch, first, way) for switch, way in zip(switches, ways, strict=True)])


def _counted(command: Sequence[str], switch: Switch, folder: Path, open_tables: Open, say: Say) -> Turns:
    """Record once without the cause, to count."""
    say(f"without {switch.name}")
    made = Turns(switch.environment(os.environ))
    if switch.primed:
        record(command, folder.with_name(folder.name + "-primed"), "off", made.environment, silent=True)
    one = record(command, folder, "paths", made.environment, silent=True)
    made.exit_code = one.exit_code
    made.counts = counts_of(open_tables(folder))
    return made


def counts_of(tables: Tables) -> Counts:
    """The calls of the whole run."""
    made = Counts()
    for tree in import_trees(tables):
        made.add(tree.whole)
    return made


def _trial(switch: Switch, first: Turns, way: Turns) -> Trial:
    return Trial(
        *(switch.name, switch.blame, first.counts, way.counts),
        *(first.walls_ns, way.walls_ns, first.cpus_ns, way.cpus_ns),
        *(way.exit_code, first.exit_code, switch.note),
    )
