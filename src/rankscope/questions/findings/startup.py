"""The way to the first step takes long, or one rank holds up all others on it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.run.overview import run_elapsed_ns
from rankscope.questions.steps.phases import Waterfall, waterfalls
from rankscope.questions.wording import counted, ending_text, ranges

# ---------------------------------------------------------------------------------------------------------------------
# What makes the other numbers doubtful: ranks that do not know of each other, and what was not seen.
LOST_SHARE = 0.01


def wrong_launcher(tables: Tables) -> list[Finding]:
    """Processes that were started as ranks of one job and each believe to be alone."""
    sql = """SELECT rank FROM notes JOIN ranks USING (process)
        WHERE contains(text, 'wrong mpirun for this MPI library?') AND role <> 'launcher' ORDER BY rank"""
    alone = [row[0] for row in tables.query(sql) if row[0] is not None]
    if len(alone) < 2:
        return []
    told = (
        f"{len(alone)} processes run as {len(alone)} jobs of one rank each: the launcher does not match the MPI library"
    )
    library = "; ".join(row[0] for row in tables.query("SELECT DISTINCT versions FROM ranks WHERE versions <> ''")[:2])
    action = f"start the job with the mpirun that belongs to the library in use ({library})"
    evidence = f"coverage: MPI_COMM_WORLD is smaller than the launcher promised on rank {ranges(alone)}"
    return [Finding("wrong_launcher", told, action, [evidence])]


def incomplete_coverage(tables: Tables) -> list[Finding]:
    """Ranks that left no file, files that cannot be read, calls that had no room."""
    missing = _missing(tables)
    bad = int(tables.query("SELECT bad_files FROM run")[0][0])
    evidence = [f"coverage: {text}" for text in missing]
    if bad:
        evidence.append(f"coverage: {counted(bad, 'file')} could not be read")
    sql = """SELECT coalesce(sum(lost_calls), 0)::BIGINT,
        (SELECT coalesce(sum(calls), 0)::BIGINT FROM tallies WHERE kind = 'call') FROM ranks WHERE role = 'rank'"""
    lost, kept = tables.query(sql)[0]
    if lost > LOST_SHARE * (lost + kept):
        evidence.append(f"coverage: {lost} of {lost + kept} calls had no room in the files")
    if not evidence:
        return []
    action = "record again with all ranks under `rankscope run`"
    if not tables.query("SELECT 1 FROM ranks WHERE role = 'rank' AND tool = '' LIMIT 1"):
        action = "load the files of all ranks together (`rankscope load FILE …`)"
    if lost and not missing and not bad:
        action = "record with a larger --size"
    return [Finding("incomplete_coverage", "Not all of the job was seen: sums are too small", action, evidence)]


def _missing(tables: Tables) -> list[str]:
    seen = {row[0] for row in tables.query("SELECT rank FROM ranks WHERE role = 'rank'")}
    sizes = [row[0] for row in tables.query("SELECT expected_ranks FROM run WHERE expected_ranks IS NOT NULL")]
    sizes += [row[0] for row in tables.query("SELECT max(world_size) FROM ranks WHERE role = 'rank'") if row[0]]
    size = min(max(sizes, default=0), 10_000_000)
    gone = set(range(size)) - seen
    return [f"of {counted(size, 'rank')}, {len(gone)} left no file: {ranges(gone)}"] if gone else []


DELIBERATE = (2, 15)  # SIGINT, SIGTERM: somebody stopped the job, or its launcher the ranks that were left
ENDED = """
    SELECT ending, exit_code, end_signal, list(rank ORDER BY rank), min(ended_ns) FROM ranks
    WHERE role = 'rank' AND tool = '' AND rank IS NOT NULL AND (ending IN ('signalled', 'aborted')
        OR (ending = 'exited' AND exit_code <> 0)) GROUP BY ALL ORDER BY 5, 1"""


def failed_ranks(tables: Tables) -> list[Finding]:
    """Ranks that ended with an error; who was stopped by SIGINT or SIGTERM has not failed itself."""
    found = tables.query(ENDED)
    failed = [row for row in found if row[0] != "signalled" or row[2] not in DELIBERATE]
    if not failed:
        return []
    size = tables.query("SELECT count(*) FROM ranks WHERE role = 'rank'")[0][0]
    first, *others = (f"{ending_text(*row[:3])} on {_which(row[3], size)}" for row in failed)
    action = "look at the last lines that the program printed; the numbers here cover the time before that"
    told = [*failed, *(row for row in found if row not in failed)]
    evidence = [f"coverage: ended: {ending_text(*row[:3])} on rank {ranges(row[3])}" for row in told]
    return [Finding("failed_ranks", f"The job failed: {'; then '.join([first, *others])}", action, evidence)]


def _which(ranks: list[int], size: int) -> str:
    if len(ranks) == size > 1:
        return f"all {size} ranks"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"


# ---------------------------------------------------------------- startup
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
    parts = _parts(tables) if slowest in UNTOLD else []
    imports = next((part for part in parts if part.name == "imports" and part.ns >= 0.5 * typical), None)
    whole = run_elapsed_ns(tables) or elapsed  # as in the column `share`
    told = (
        f"{slowest}: {seconds(typical)} on the median rank, {seconds(longest.segments[slowest])} on rank {longest.rank}"
    )
    return [
        Finding(
            "slow_start",
            f"Start-up is slow: {slowest} takes {seconds(typical)}, {typical / whole:.0%} of the run"
            + (f": {imports.said}" if imports else ""),
            LATE_IMPORTS if imports else ACTIONS[slowest],
            [
                f"phases: {told}",
                *(part.evidence for part in parts),
                *(heaviest_import(tables) if slowest == "imports" else []),
            ],
            imports.ns if imports else typical,
            once=True,
        )
    ]


UNTOLD = ("before init", "after init", "before steps")  # which only say when, not what
LATE_IMPORTS = "import it only where it is needed, or put the Python environment on a local disk, or bundle it"
# From the end of torch's import to the first step: what the first thread imports, and the start of CUDA. Times of
# modules count from the start of their process.
LATE_SQL = """
    WITH spans AS (
        SELECT process, any_value(ranks.started_ns) AS started_ns,
            max(at_ns) FILTER (marks.name = 'import_end') AS since_ns,
            min(at_ns) FILTER (marks.name = 'first_step_begin') AS until_ns,
            min(at_ns) FILTER (marks.name = 'cuda_begin') AS cuda_ns,
            min(at_ns) FILTER (marks.name = 'gpu_begin') AS gpu_ns
        FROM marks JOIN ranks USING (process) WHERE role = 'rank' GROUP BY process),
    late AS (
        SELECT process, name, wall_ns FROM modules JOIN spans USING (process)
        WHERE parent = 0 AND module > 0 AND thread = 0 AND started_ns + begin_ns BETWEEN since_ns AND until_ns),
    sums AS (
        SELECT process, sum(wall_ns) AS ns, arg_max(name, wall_ns) AS name, max(wall_ns) AS most FROM late GROUP BY 1)
    SELECT median(coalesce(ns, 0)), mode(name), median(coalesce(most, 0)), median(greatest(gpu_ns - cuda_ns, 0))
    FROM spans LEFT JOIN sums USING (process) WHERE since_ns IS NOT NULL AND until_ns IS NOT NULL"""


@dataclass(slots=True)
class _Part:
    """Something that is known of a phase which says only when it was."""

    name: str
    ns: float
    said: str
    evidence: str


def _parts(tables: Tables) -> list[_Part]:
    made = []
    for imports_ns, module, most_ns, cuda_ns in tables.query(LATE_SQL):
        if imports_ns and module and imports_ns > 0.05 * SLOW_NS:
            said = f"{seconds(most_ns)} of it import {module}"
            rest = f"{module} {seconds(most_ns)} of {seconds(imports_ns)} of imports between torch's and the first step"
            made.append(_Part("imports", float(imports_ns), said, f"import_tree: {rest}"))
        if cuda_ns and cuda_ns > 0.05 * SLOW_NS:
            rest = f"{seconds(cuda_ns)} from the first use of CUDA to the first work of a GPU"
            made.append(_Part("CUDA", float(cuda_ns), rest, f"marks: {rest}"))
    return made


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
            f"The first {name} takes at least {seconds(cost)} on every rank",
            "it sets up connections: name the network interface, lower the number of connections, or warm up once "
            "and keep the processes",
            [f"phases: first collective {seconds(cost)} to {seconds(max(lengths))}"],
            float(cost),
            once=True,
        )
    ]
