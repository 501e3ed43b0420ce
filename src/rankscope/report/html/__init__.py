"""A page about a run: one file that works offline."""

from rankscope.report.html.document import to_html

__all__ = ["to_html"]
