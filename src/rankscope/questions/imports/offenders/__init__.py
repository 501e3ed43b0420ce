"""One file per rule: each names what makes imports expensive, with evidence and what to do, or is silent."""

from rankscope.questions.imports.offenders.table import COLUMNS, import_offenders

__all__ = ["COLUMNS", "import_offenders"]
