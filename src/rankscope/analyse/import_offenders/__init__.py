"""One file per rule: each names a cause of many calls or much time at import, with evidence and what to do, or is silent."""

from rankscope.analyse.import_offenders.table import COLUMNS, import_offenders

__all__ = ["COLUMNS", "import_offenders"]
