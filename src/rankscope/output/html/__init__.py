"""A page about a run: one file that works offline."""

from rankscope.output.html.page import to_html

__all__ = ["to_html"]
