"""The way to the first step takes long, or one rank holds up all others on it."""

from __future__ import annotations

from statistics import median

from rankscope.analyse.waterfall import Waterfall, waterfalls
from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds

SLOW_NS = 5e9
NOTICEABLE = 0.1  # of the elapsed time
ACTIONS = {
    "start": "look at what runs before Python: containers, modules, the launcher",
    "interpreter": "look at site-packages and .pth files on a slow file system",
    "imports": "put the Python environment on a local disk, or bundle it: every rank reads thousands of files",
    "before init": "look at what the program does before it initialises communication: data, downloads, models",
    "init": "look at the rendezvous: name resolution, the launcher, one late rank",
    "after init": "look at what the program does before its first collective: data, models, compilation",
    "before steps": "look at what the program does before its first step: data, models, compilation",
}
HEAVIEST_SQL = """
    SELECT name, median(wall_ns) FROM (
        SELECT process, name, sum(wall_ns) AS wall_ns FROM modules JOIN ranks USING (process)
        WHERE role = 'rank' AND parent = 0 AND module > 0 GROUP BY process, name)
    GROUP BY name ORDER BY 2 DESC, 1 LIMIT 1"""


def slow_start(tables: Tables) -> list[Finding]:
    """The longest phase before the first step, if it is long; the first collective has a rule of its own."""
    found = waterfalls(tables)
    phases = {name: _lengths(found, name) for name in ACTIONS}
    slowest = max(phases, key=lambda name: median(phases[name]) if phases[name] else 0.0, default="")
    if not found or not phases.get(slowest):
        return []
    typical, elapsed = median(phases[slowest]), median(one.elapsed_ns for one in found)
    if typical < SLOW_NS or typical < NOTICEABLE * elapsed:
        return []
    longest = max(found, key=lambda one: one.segments.get(slowest, 0))
    told = (
        f"{slowest}: {seconds(typical)} on the median rank, {seconds(longest.segments[slowest])} on rank {longest.rank}"
    )
    return [
        Finding(
            "slow_start",
            f"The start is slow: {slowest} takes {seconds(typical)}, {typical / elapsed:.0%} of the run",
            ACTIONS[slowest],
            [f"phases: {told}", *(heaviest_import(tables) if slowest == "imports" else [])],
            typical,
        )
    ]


def heaviest_import(tables: Tables) -> list[str]:
    """The module of which the imports of the median rank take longest, with all that it imports."""
    found = tables.query(HEAVIEST_SQL)
    return [f"import_tree: {name} takes {seconds(wall_ns)} with all that it imports" for name, wall_ns in found]


def _lengths(found: list[Waterfall], name: str) -> list[int]:
    return [one.segments[name] for one in found if one.segments.get(name)]


def first_collective(tables: Tables) -> list[Finding]:
    """The first collective costs every rank much: connections, topology, compilation; waiting is left out."""
    found = waterfalls(tables)
    lengths = _lengths(found, "first collective")
    if len(lengths) < 2 or len(lengths) < len(found):
        return []
    # the rank that came last waited for nobody: its time is the cost
    cost, elapsed = min(lengths), median(one.elapsed_ns for one in found)
    name = next((one.names["first collective"] for one in found if one.names.get("first collective")), "collective")
    if cost < 1e9 or cost < 0.02 * elapsed:
        return []
    return [
        Finding(
            "first_collective",
            f"The first {name} takes {seconds(cost)} on every rank at least",
            "it sets up connections: name the network interface, lower the number of connections, or warm up once "
            "and keep the processes",
            [f"phases: first collective {seconds(cost)} to {seconds(max(lengths))}"],
            float(cost),
        )
    ]
