"""The docs say what the commands do, and their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest

import docs_site
from mpis import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
NO_PAGE = {"All tables", "When does each rank wait?"}  # the latter: the same where there are no steps
ANCHORED = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#?([^)\s]*)\)")
GENERATED = {"metrics.md", "schema.md", "rank-file.md", "environment.md"}  # they define, in the words of the code
SHORTEST_PART, MOST_ALIKE = 12, 0.5
OF_COMMANDS = {"What would it save?"}  # questions that a command answers, and no section of the page
MAKE_TARGET = re.compile(r"\bmake ([a-z][a-z-]+)")


def test_every_command_is_documented_with_its_help() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "docs_help.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there, and to a heading that it has."""
    found = [(target, anchor) for target, anchor in ANCHORED.findall(prose(page)) if "://" not in target + anchor]
    missing = [target for target, _ in found if target and not (page.parent / target).exists()]
    assert missing == []
    lost = [
        f"{target}#{anchor}"
        for target, anchor in found
        if anchor
        and (not target or target.endswith(".md"))
        and anchor not in anchors(page.parent / target if target else page)
    ]
    assert lost == []


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, by the rule of GitHub and MkDocs."""
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    ]
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_help_is_pasted_once() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    pasted = [usage for page in pages for usage in re.findall(r"^usage: rankscope \w+", page, re.M)]
    assert len(pasted) > 10 and len(pasted) == len(set(pasted))


def test_the_site_lists_every_page_once() -> None:
    """MkDocs itself is not needed for that: a line of the navigation ends with its page."""
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages)


def test_no_page_says_what_another_says() -> None:
    """No paragraph or row shares most of its word triples with one of another page, generated references aside."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in GENERATED]
    told = [(page, part, triples(part)) for page in pages for part in parts(page)]
    twice = [
        (one[0].name, other[0].name, one[1][:60])
        for one, other in combinations(told, 2)
        if one[0] != other[0] and len(one[2] & other[2]) > MOST_ALIKE * min(len(one[2]), len(other[2]))
    ]
    assert twice == [] and len(told) > 500


def parts(page: Path) -> list[str]:
    """Paragraphs, items of lists and rows of tables that are long enough to say something."""
    found = re.split(r"\n\s*\n|\n(?=[-|] |\d\. )", re.sub(r"^#.*$", "", prose(page), flags=re.MULTILINE))
    return [part for part in found if len(triples(part)) >= SHORTEST_PART]


def triples(part: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", re.sub(r"\]\([^)]*\)", "]", part).lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def test_the_recipe_names_our_dependencies() -> None:
    wanted = re.search(
        r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S
    )
    needed = set(re.findall(r'"([\w-]+)>=([\d.]+)', wanted[1] if wanted else ""))
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert len(needed) > 5
    assert needed == set(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):", type=\("build", "run"\)', page))


def test_pages_are_prepared_for_the_site() -> None:
    """Lists and tables begin after an empty line, and links out of docs/ lead to pages of the site or none."""
    assert docs_site.spaced("say:\n- a\n  b\n- c\nd:\n| e |") == "say:\n\n- a\n  b\n- c\nd:\n\n| e |"
    page = SimpleNamespace(
        file=SimpleNamespace(abs_src_path=str(ROOT / "docs/commands/top.md"), src_uri="commands/top.md")
    )
    text = (
        "[a](../../benchmarks/results/top.md#b) [c](../../Makefile) [d](hang.md)\n```text\n[a](../../Makefile)\n```\n"
    )
    assert docs_site.on_page_markdown(text, page) == (
        "[a](../measurements/top.md#b) c (`Makefile`) [d](hang.md)\n```text\n[a](../../Makefile)\n```\n"
    )
    drawn = docs_site.MERMAID.sub(docs_site.drawn, "```mermaid\ngraph LR\n    a --> b --> c\n    a --> c\n```")
    assert drawn.count("<rect") == 3 and drawn.count("<path") == 3 and drawn.count('x="300"') == 1


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strictly, and with nothing in it that a browser would ask the network for."""
    mkdocs = ROOT / ".envs" / "docs" / "bin" / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("MkDocs is missing: run make docs")
    command = [mkdocs, "build", "--strict", "--site-dir", tmp_path / "site"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")]
    assert len(pages) > 80
    assert [
        asked for page in pages for asked in re.findall(r'<(?:script|link|img|iframe)[^>]+"https?://[^"]+', page)
    ] == []


def test_every_question_of_the_page_has_a_page() -> None:
    """With its words as the title, its picture, and numbers of a real run."""
    sections = ROOT / "src" / "rankscope" / "questions" / "page"
    sources = "".join(path.read_text(encoding="utf-8") for path in sections.glob("*.py"))
    asked = set(re.findall(r'(?<!")"([A-Z][^"\n]*\?)"(?!")', sources)) - NO_PAGE
    folder = ROOT / "docs" / "questions"
    pages = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.md") if path.name != "index.md"}
    pages = {path: text for path, text in pages.items() if text.partition("\n")[0][2:] not in OF_COMMANDS}
    assert {text.partition("\n")[0].removeprefix("# ") for text in pages.values()} == asked and len(asked) == 13
    listed = set(LINK.findall((folder / "index.md").read_text(encoding="utf-8")))
    for path, text in pages.items():
        assert path.name in listed
        assert f"](../pictures/{path.stem}.png)" in text
        answer = re.search(r"<!-- answer: .*? -->\n```text\n(.+?)```", text, re.DOTALL)
        assert answer and len(answer[1].splitlines()) >= 3, path.name


def test_the_changelog_names_each_change_once() -> None:
    entries = re.findall(r"^- (.+?)(?=^- |^$|^#)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M | re.S)
    begun = [entry[:60] for entry in entries]
    assert len(begun) > 50 and [text for text in begun if begun.count(text) > 1] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_named_make_targets_exist(name: str) -> None:
    named = set(MAKE_TARGET.findall("\n".join(code_of((ROOT / name).read_text(encoding="utf-8")))))
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert named - rules == set()


def code_of(page: str) -> list[str]:
    """What a page sets as code: fenced blocks and words in backticks."""
    return re.findall(r"```.*?```|`[^`\n]+`", page, re.DOTALL)


def test_no_page_shows_a_warning_of_python_or_a_path_of_the_machine_it_was_made_on() -> None:
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = page.read_text()
        assert "RuntimeWarning" not in text and "site-packages/numpy" not in text, page


def test_the_demo_has_one_name_however_long_it_takes(tmp_path: Path) -> None:
    """With a clock that gives another second each time it is asked."""
    clock = tmp_path / "date"
    clock.write_text(f'#!/bin/sh\necho x >> {tmp_path}/asked\nwc -l < {tmp_path}/asked | tr -d " "\n')
    clock.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    assert len(set(re.findall(r"demo-(\d+)", done.stdout))) == 1
