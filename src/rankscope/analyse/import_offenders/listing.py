"""A module lists directories again and again."""

from __future__ import annotations

from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender

FEWEST = 50
SQL = """
    SELECT modules.name, sum(times)::BIGINT, count(DISTINCT path), arg_max(path, times)
    FROM paths JOIN modules USING (process, module)
    WHERE cause = 'module' AND operation = 'list' AND module > 0
    GROUP BY modules.name HAVING sum(times) >= ? ORDER BY 2 DESC, 1 LIMIT 3"""


def listing_storm(tables: Tables) -> list[Offender]:
    """os.listdir, os.walk or glob in a module's own code, many times."""
    return [
        Offender(
            "listing_storm",
            f"{name} lists directories {times} times while it is imported, {distinct} distinct ones",
            f"look for glob, os.walk or os.listdir at the top level of {name}: let it ask when it needs the answer",
            times,
            [f"import_paths: most of all {path}"],
            f"module={name}",
        )
        for name, times, distinct, path in tables.query(SQL, [FEWEST])
    ]
