"""What makes the other numbers doubtful: ranks that do not know of each other, and what was not seen."""

from __future__ import annotations

from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding
from rankscope.questions.wording import counted, ranges

LOST_SHARE = 0.01


def wrong_launcher(tables: Tables) -> list[Finding]:
    """Processes that were started as ranks of one job and each believe to be alone."""
    sql = """SELECT rank FROM notes JOIN ranks USING (process)
        WHERE contains(text, 'wrong mpirun for this MPI library?') AND role <> 'launcher' ORDER BY rank"""
    alone = [row[0] for row in tables.query(sql) if row[0] is not None]
    if len(alone) < 2:
        return []
    told = (
        f"{len(alone)} processes run as {len(alone)} jobs of one rank each: the launcher is not that of the MPI library"
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
    action = "record anew with all ranks under `rankscope run`"
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
