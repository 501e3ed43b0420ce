"""One file per rule: each says what could be better in a run, with evidence and what to do, or says nothing."""

from rankscope.questions.findings.table import COLUMNS, findings

__all__ = ["COLUMNS", "findings"]
