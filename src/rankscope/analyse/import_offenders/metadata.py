"""The metadata of all installed packages is read at import: entry points, versions, pkg_resources."""

from __future__ import annotations

from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender

FEWEST = 5  # packages
SQL = r"""
    WITH mine AS (
        SELECT modules.name, operation, times,
            regexp_extract(path, '^(.*\.(dist-info|egg-info))(/|$)', 1) AS package
        FROM paths JOIN modules USING (process, module)
        WHERE cause = 'module' AND operation IN ('open', 'stat', 'list') AND module > 0)
    SELECT name, count(DISTINCT CASE WHEN operation = 'open' THEN package END), sum(times)::BIGINT
    FROM mine WHERE package <> '' GROUP BY name
    HAVING count(DISTINCT CASE WHEN operation = 'open' THEN package END) >= ? ORDER BY 3 DESC, 1 LIMIT 3"""


def metadata_scan(tables: Tables) -> list[Offender]:
    """One module opens files in the .dist-info of many packages."""
    return [
        Offender(
            "metadata_scan",
            f"{name} reads the metadata of {packages} installed packages while it is imported",
            "it asks for entry points or imports pkg_resources: replace pkg_resources by importlib.metadata, ask for "
            "the one package that is meant, or ask when the answer is needed",
            calls,
            [f"import_paths: {calls} operations in .dist-info and .egg-info folders"],
            f"module={name}",
        )
        for name, packages, calls in tables.query(SQL, [FEWEST])
    ]
