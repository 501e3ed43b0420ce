"""The first screen: key figures that the tables have, one step, what to do; what is missing comes before all."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from browser.chromium import Chromium
from browser.pages import FILLED, page_of_run, text_of
from rankscope.api.run import Run
from rankscope.questions.wording import seconds
from runs.small_run import SECOND, mpi_rank, write_run

FIGURES = """Object.fromEntries([...document.querySelectorAll('.figures div')].map((one) => one.innerText.split('\\n'))
    .map(([name, value, detail]) => [name, detail ? [value, detail] : value]))"""
BOTTOMS = """['.figures', '.first .picture', '#findings li:first-child', '#step_times h2'].map((one) =>
    document.querySelector(one).getBoundingClientRect().bottom)"""


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


def test_figures_are_those_of_the_tables(chromium: Chromium, runs: dict[str, Path], page: Path) -> None:
    figures = chromium.ask(page, evaluate(FIGURES)).answers[0]
    run = Run(runs["mpi"])
    parts, phases = (run.table(name) for name in ("step_parts", "phase_ranks"))
    step, exposed = (mean(parts[name]) for name in ("step_ns", "exposed_ns"))
    [p99] = [row["p99_ns"] for row in run.table("steps") if (row["rank"], row["name"]) == ("all", "step")]
    assert figures["Step"] == [seconds(step), f"p99 {seconds(p99)}"]
    assert figures["Exposed communication"] == f"{100 * exposed / step:.0f} %"
    own = [row["step_ns"] - row["exposed_ns"] for row in parts]
    assert figures["Imbalance"] == f"{max(own) / mean(own):.2f}"
    until = [name for name in phases.columns if name.endswith("_ns") and name != "elapsed_ns"]
    until = until[: until.index("first_step_ns") + 1]
    assert figures["Start-up"] == seconds(sum(mean(cell or 0 for cell in phases[name]) for name in until))
    assert figures["GPU busy"] == "–"


def test_all_of_it_is_on_the_first_screen(chromium: Chromium, page: Path) -> None:
    bottoms = chromium.ask(page, FILLED, evaluate(BOTTOMS), width=1440, height=900).answers[1]
    assert max(bottoms) < 900


def test_what_to_do_is_on_the_first_screen_of_a_telephone(chromium: Chromium, page: Path) -> None:
    bottom = "document.querySelector('#findings li summary').getBoundingClientRect().bottom"
    assert chromium.ask(page, FILLED, evaluate(bottom), width=390, height=844).answers[1] < 844


def test_without_steps_the_largest_are_the_key_figures(chromium: Chromium, tmp_path: Path) -> None:
    ranks = [mpi_rank(rank, 2) for rank in range(2)]
    for made in ranks:
        made.tally("MPI_Allreduce", 10, SECOND, bytes=80, size_class=4)
    figures = chromium.ask(page_of_run(write_run(tmp_path / "run", *ranks)), evaluate(FIGURES)).answers[0]
    assert figures["MPI_Allreduce"] == ["2 s", "above 99 % of MPI time"] and "–" not in figures.values()


def test_evidence_opens_in_place(chromium: Chromium, page: Path) -> None:
    """The rows that prove a finding, under its sentence, and the same as in the table itself."""
    name = evaluate("document.querySelector('.proof').dataset.table")
    proof = "document.querySelector('.proof')"
    rows = f"[...{proof}.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
    click = {"do": "click", "selector": ".proof summary"}
    opened = {"do": "wait", "code": f"{proof}.querySelector('tbody tr') !== null"}
    _, table, _, _, in_place = chromium.ask(page, FILLED, name, click, opened, evaluate(rows)).answers
    own = chromium.ask(page, FILLED, evaluate(text_of(table))).answers[1]
    assert in_place == [list(row.values()) for row in own]


@pytest.mark.parametrize("expected", [2, 3])
def test_what_is_missing_is_the_first_line(chromium: Chromium, tmp_path: Path, expected: int) -> None:
    run = write_run(tmp_path / "run", mpi_rank(0, expected), mpi_rank(1, expected), expected_ranks=expected)
    told = evaluate("document.querySelector('main').innerText.split('\\n')[0]")
    first = chromium.ask(page_of_run(run), told).answers[0]
    assert first.startswith("INCOMPLETE: 1 of 3 ranks not recorded") if expected == 3 else first == "Imbalance"


def test_the_navigation_stays(chromium: Chromium, page: Path) -> None:
    links = evaluate("[...document.querySelectorAll('nav a')].map((one) => one.textContent)")
    scroll = evaluate("scrollTo({ top: 2000, behavior: 'instant' })")
    top = evaluate("[scrollY, document.querySelector('nav').getBoundingClientRect().top]")
    names, _, (scrolled, at) = chromium.ask(page, FILLED, links, scroll, top).answers[1:]
    expected = "What to do,Steps,Communication,Ranks,GPU,Memory,Start-up,Details"
    assert names == expected.split(",") and scrolled > 1000 and at == 0


def test_a_legend_leaves_parts_out(chromium: Chromium, page: Path) -> None:
    """The axis then goes to the sum of the others."""
    entry = ".first .legend button"
    ticks = evaluate("document.querySelector('.first .legend button').ariaPressed")
    _, before, _, after, _, again = chromium.ask(
        page, FILLED, ticks, {"do": "click", "selector": entry}, ticks, {"do": "click", "selector": entry}, ticks
    ).answers
    assert (before, after, again) == ("true", "false", "true")
