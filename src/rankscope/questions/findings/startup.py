"""The way to the first step takes long, or one rank holds up all others on it."""

from __future__ import annotations

from statistics import median

from rankscope.model.tables import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.run.coverage import ENDED_BY_RAY
from rankscope.questions.run.overview import run_elapsed_ns
from rankscope.questions.steps.phases import Waterfall, waterfalls
from rankscope.questions.steps.startup import UNTIL, Part, startup_parts
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
    sentence = (
        f"{len(alone)} processes run as {len(alone)} jobs of one rank each: the launcher does not match the MPI library"
    )
    library = "; ".join(row[0] for row in tables.query("SELECT DISTINCT versions FROM ranks WHERE versions <> ''")[:2])
    action = f"start the job with the mpirun that belongs to the library in use ({library})"
    evidence = f"coverage: MPI_COMM_WORLD is smaller than the launcher's size on rank {ranges(alone)}"
    return [Finding("wrong_launcher", sentence, action, [evidence])]


def incomplete_coverage(tables: Tables) -> list[Finding]:
    """Ranks that left no file, files that cannot be read, calls that had no room."""
    missing = _missing(tables)
    bad = int(tables.query("SELECT bad_files FROM run")[0][0])
    evidence = [f"coverage: {text}" for text in missing]
    if bad:
        evidence.append(f"coverage: {counted(bad, 'file')} could not be read")
    sql = """SELECT coalesce(sum(lost_calls), 0)::BIGINT,
        (SELECT coalesce(sum(calls), 0)::BIGINT FROM tallies WHERE kind = 'call') FROM ranks WHERE role = 'rank'"""
    lost, recorded = tables.query(sql)[0]
    if lost > LOST_SHARE * (lost + recorded):
        evidence.append(f"coverage: {lost} of {lost + recorded} calls did not fit in the files")
    if not evidence:
        return []
    action = "record again with all ranks under `rankscope run`"
    if not tables.query("SELECT 1 FROM ranks WHERE role = 'rank' AND tool = '' LIMIT 1"):
        action = "load the files of all ranks together (`rankscope load FILE …`)"
    if lost and not missing and not bad:
        action = "record with a larger --size"
    return [Finding("incomplete_coverage", "Part of the job was not recorded: sums are too small", action, evidence)]


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
        OR (ending = 'exited' AND exit_code <> 0)) AND NOT {ended_by_ray} GROUP BY ALL ORDER BY 5, 1"""


def failed_ranks(tables: Tables) -> list[Finding]:
    """Ranks that ended with an error; who was stopped by SIGINT or SIGTERM has not failed itself."""
    endings = tables.query(ENDED.format(ended_by_ray=ENDED_BY_RAY))
    failed = [row for row in endings if row[0] != "signalled" or row[2] not in DELIBERATE]
    if not failed:
        return []
    size = tables.query("SELECT count(*) FROM ranks WHERE role = 'rank'")[0][0]
    first, *others = (f"{ending_text(*row[:3])} on {_which(row[3], size)}" for row in failed)
    action = "look at the last lines the program printed; the numbers here cover the time before the failure"
    ordered = [*failed, *(row for row in endings if row not in failed)]
    evidence = [f"coverage: ended: {ending_text(*row[:3])} on rank {ranges(row[3])}" for row in ordered]
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
WHEN = {
    "start": "before Python starts",
    "interpreter": "in the interpreter",
    "imports": "in imports",
    "before init": "between imports and init",
    "init": "in init",
    "after init": "between init and the first collective",
    "before steps": "before the first step",
}
HEAVIEST_SQL = """
    SELECT name, median(wall_ns) FROM (
        SELECT process, name, sum(wall_ns) AS wall_ns FROM modules JOIN ranks USING (process)
        WHERE role = 'rank' AND parent = 0 AND module > 0 GROUP BY process, name)
    GROUP BY name ORDER BY 2 DESC, 1 LIMIT 1"""


def slow_start(tables: Tables) -> list[Finding]:
    """The longest phase before the first step, if it is long; the first collective has a rule of its own."""
    ranks = waterfalls(tables)
    phases = {name: _lengths(ranks, name) for name in ACTIONS}
    slowest = max(phases, key=lambda name: median(phases[name]) if phases[name] else 0.0, default="")
    if not ranks or not phases.get(slowest):
        return []
    typical, elapsed = median(phases[slowest]), median(waterfall.elapsed_ns for waterfall in ranks)
    if typical < SLOW_NS or typical < NOTICEABLE * elapsed:
        return []
    longest = max(ranks, key=lambda waterfall: waterfall.segments.get(slowest, 0))
    parts = _explanations(tables) if slowest in UNTIL else []
    most = parts[0] if parts and parts[0].median_ns >= 0.5 * typical else None
    run_ns = run_elapsed_ns(tables) or elapsed  # as in the column `share`
    saved_ns = most.median_ns if most else typical
    of_run = f" ({100 * saved_ns / run_ns:.0f} % of the run)"
    breakdown = (
        f"{slowest}: {seconds(typical)} on the median rank, {seconds(longest.segments[slowest])} on rank {longest.rank}"
    )
    return [
        Finding(
            "slow_start",
            f"Start-up is slow: {seconds(typical)} {WHEN[slowest]}"
            + (f", {seconds(saved_ns)} of it{of_run} in {_said(most)}" if most else of_run),
            EXPLAINING[most.name] if most else ACTIONS[slowest],
            [
                f"phases: {breakdown}",
                *(f"startup: {seconds(part.median_ns)} {_said(part)}" for part in parts),
                *(heaviest_import(tables) if slowest == "imports" else []),
            ],
            saved_ns,
            once=True,
        )
    ]


# What explains a phase that only says when it was, with what to do about it.
EXPLAINING = {
    "later imports": "import it only where it is needed, or put the Python environment on a local disk, or bundle it",
    "CUDA context": "keep the driver loaded between jobs (nvidia-persistenced), and show each rank only its own GPU "
    "(CUDA_VISIBLE_DEVICES)",
    "CUDA until first work": "keep the driver loaded between jobs (nvidia-persistenced), and show each rank only its "
    "own GPU (CUDA_VISIBLE_DEVICES)",
    "loading GPU code": "load it as it is needed (CUDA_MODULE_LOADING=LAZY), from a local disk, and keep CUDA's cache "
    "of compiled kernels (CUDA_CACHE_PATH) between jobs",
    "NCCL init": "name the network interface (NCCL_SOCKET_IFNAME), and create fewer communicators",
}
NOTICEABLE_PART_NS = 0.25e9


def _explanations(tables: Tables) -> list[Part]:
    """The longest first."""
    known = [part for part in startup_parts(tables) if part.name in EXPLAINING]
    return sorted((part for part in known if part.median_ns > NOTICEABLE_PART_NS), key=lambda part: -part.median_ns)


def _said(part: Part) -> str:
    what = part.longest[2]
    return f"{part.name} ({what})" if what else part.name


def heaviest_import(tables: Tables) -> list[str]:
    """The module of which the imports of the median rank take longest, with all that it imports."""
    rows = tables.query(HEAVIEST_SQL)
    return [f"import_tree: {name} takes {seconds(wall_ns)} with all that it imports" for name, wall_ns in rows]


def _lengths(ranks: list[Waterfall], name: str) -> list[int]:
    return [waterfall.segments[name] for waterfall in ranks if waterfall.segments.get(name)]


def first_collective(tables: Tables) -> list[Finding]:
    """The first collective costs every rank much: connections, topology, compilation; waiting is left out."""
    ranks = waterfalls(tables)
    lengths = _lengths(ranks, "first collective")
    if len(lengths) < 2 or len(lengths) < len(ranks):
        return []
    # the rank that came last waited for nobody: its time is the cost
    cost, elapsed = min(lengths), median(waterfall.elapsed_ns for waterfall in ranks)
    name = next(
        (waterfall.names["first collective"] for waterfall in ranks if waterfall.names.get("first collective")),
        "collective",
    )
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
