"""Pages: one file each that works offline, and what a server of them shows."""

from rankscope.output.html.page import content, to_html
from rankscope.output.html.runs import list_content, run_list, said

__all__ = ["content", "list_content", "run_list", "said", "to_html"]
