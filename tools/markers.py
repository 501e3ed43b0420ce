"""Text between two markers of a Markdown page, `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations


class MissingMarkers(Exception):
    """A page has no place for what should go into it."""


def fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def bounds(page: str, name: str) -> tuple[int, int]:
    """Where the text between the markers begins and ends."""
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    start, end = page.find(opening), page.find(closing)
    if start < 0 or end < start:
        raise MissingMarkers(f"no {opening.strip()} … {closing} in it")
    return start + len(opening), end


def between(page: str, name: str) -> str:
    start, end = bounds(page, name)
    return page[start:end].strip("\n")


def filled(page: str, name: str, text: str) -> str:
    """The page with the text between the markers replaced."""
    start, end = bounds(page, name)
    return f"{page[:start]}{text}\n{page[end:]}"
