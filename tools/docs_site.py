"""MkDocs' hooks for the site: pages from outside docs/, their links, and what Python-Markdown reads differently."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/results/**/*.md", "benchmarks/results/**/*.png")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)]*)?\)")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LIST_ITEM, TABLE_ROW = re.compile(r"(?:[-*]|\d+\.) "), re.compile(r"\|")


def site_path(path: Path) -> str | None:
    """Where a file of the repository is in the site, if it is."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if any(path in ROOT.glob(pattern) for pattern in OUTSIDE):
        return "measurements/" + name.removeprefix("benchmarks/results/").lower().replace("readme.md", "index.md")
    return "index.md" if name == "README.md" else None


def on_files(files: Any, config: Any, **_: Any) -> Any:
    from mkdocs.structure.files import File  # type: ignore[import-not-found] # only in MkDocs' own environment

    for path in (path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        files.append(File.generated(config, site_path(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = Path(page.file.abs_src_path)
    markdown = MERMAID.sub(drawn, markdown)
    return outside_fences(markdown, lambda text: spaced(LINK.sub(lambda link: linked(link, source, page), text)))


# ---------------------------------------------------------------------------------------------------------------------
# Diagrams: Material would fetch Mermaid's script from the network, so the one graph that there is is drawn here.
MERMAID = re.compile(r"^```mermaid\ngraph LR\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW = 104, 26, 150, 44


def drawn(graph: re.Match[str]) -> str:
    """A graph from left to right: each box in the column after the last of those that point to it."""
    chains = [line.split() for line in graph[1].splitlines()]
    edges = sorted({(a, b) for words in chains for a, b in pairwise(words[::2])})
    names = sorted({name for edge in edges for name in edge})
    columns = dict.fromkeys(names, 0)
    for _ in names:
        for begin, end in edges:
            columns[end] = max(columns[end], columns[begin] + 1)
    place = {
        name: (
            columns[name] * COLUMN,
            ROW * sum(columns[other] == columns[name] for other in names[: names.index(name)]),
        )
        for name in names
    }
    wide, high = (max(at[axis] for at in place.values()) for axis in (0, 1))
    lines = [
        f'<path d="M{place[a][0] + BOX_WIDTH} {place[a][1] + BOX_HEIGHT / 2} C{place[a][0] + COLUMN} '
        f"{place[a][1] + BOX_HEIGHT / 2} {place[b][0] - COLUMN + BOX_WIDTH} {place[b][1] + BOX_HEIGHT / 2} "
        f'{place[b][0]} {place[b][1] + BOX_HEIGHT / 2}" fill="none" stroke="currentColor" opacity=".35"/>'
        for a, b in edges
    ]
    boxes = [
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="var(--md-code-bg-color)" '
        f'stroke="currentColor"/><text x="{x + BOX_WIDTH / 2}" y="{y + 17}" text-anchor="middle" font-size="13" '
        f'fill="currentColor">{name}</text>'
        for name, (x, y) in place.items()
    ]
    frame = f'viewBox="-2 -2 {wide + BOX_WIDTH + 4} {high + BOX_HEIGHT + 4}" role="img" aria-label="import graph"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{"".join(lines + boxes)}</svg>\n'


# ---------------------------------------------------------------------------------------------------------------------
def outside_fences(markdown: str, change: Any) -> str:
    """The page with everything but its code blocks changed."""
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(markdown[at:])])


def linked(link: re.Match[str], source: Path, page: Any) -> str:
    """The link as the site has it; only its text where the file is in the repository and not in the site."""
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    path = Path(os.path.normpath(source.parent / target))
    place = site_path(path) if path.exists() else target
    if place is None:
        return text if text.startswith("`") else f"{text} (`{path.relative_to(ROOT).as_posix()}`)"
    if path.exists():
        target = os.path.relpath(place, Path(page.file.src_uri).parent)
    return f"{image}[{text}]({target}{anchor})"


def spaced(text: str) -> str:
    """An empty line before each list and table, which Python-Markdown wants and others do not."""
    lines: list[str] = []
    for line in text.split("\n"):
        above = lines[-1] if lines else ""
        for begins in (LIST_ITEM, TABLE_ROW):
            is_first = begins.match(line) and above and not above[0].isspace() and not begins.match(above)
            if is_first and not (begins is LIST_ITEM and in_list(lines)):
                lines.append("")
        lines.append(line)
    return "\n".join(lines)


def in_list(lines: list[str]) -> bool:
    """Whether the paragraph above belongs to a list item."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if LIST_ITEM.match(line):
            return True
    return False
