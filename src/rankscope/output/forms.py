"""The forms in which tables can be shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.model.tables import Table
from rankscope.output.csv import to_csv
from rankscope.output.json import to_json
from rankscope.output.markdown import to_markdown

FORMS: dict[str, Callable[[Sequence[Table]], str]] = {"csv": to_csv, "json": to_json, "markdown": to_markdown}
