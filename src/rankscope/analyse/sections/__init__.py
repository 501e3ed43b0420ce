"""One file per question of the page about a run: its words, pictures and tables; nothing where there is no data."""

from rankscope.analyse.sections.page import page_of

__all__ = ["page_of"]
