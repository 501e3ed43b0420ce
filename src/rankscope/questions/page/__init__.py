"""One file per question of the page about a run: its words, pictures and tables; nothing where there is no data."""

from rankscope.questions.page.page import page_of
from rankscope.questions.page.section import PageOptions

__all__ = ["PageOptions", "page_of"]
