"""Graphs: every measured point is drawn in its place, laws with their intervals, and nothing can act on the page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from questions.scaling.asking import loaded
from rankscope.cli.scale import run as scale
from rankscope.model.tables import Unit
from rankscope.output.html.graphs import NARROW, WIDE, Frame, to_svg, value_ticks
from rankscope.pictures import Curve, Graph
from rankscope.questions.scaling.growth import Series, growth
from rankscope.questions.scaling.scaling import graphs

SVG = "{http://www.w3.org/2000/svg}"


def linear(name: str, repeats: int = 1) -> Series:
    points = [(float(n), (1e9 + 2e8 * n) * (1 + 0.01 * at)) for n in (1, 2, 4, 8) for at in range(repeats)]
    return Series(name, "elapsed", "ns", "ranks", tuple(points))


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_all_points_of_all_series_are_drawn_and_more_is_higher(frame: Frame) -> None:
    (graph,) = graphs([growth(linear("one", 3)), growth(linear("two"))])
    root = ElementTree.fromstring(to_svg(graph, frame))
    first, second = root.findall(f"{SVG}g")
    circles = [(float(one.get("cx", 0)), float(one.get("cy", 0))) for one in first.findall(f"{SVG}circle")]
    assert len(circles) == 12 + 1  # and one beside the name
    assert len(second.findall(f"{SVG}polygon")) == 4 + 1 + 1  # the interval too
    drawn = sorted(circles[:12])
    assert drawn[0][0] == frame.left and drawn[-1][0] == frame.end and drawn[0][1] > drawn[-1][1]
    assert all(0 < y < frame.tall(2) for _, y in circles)
    assert drawn[3][0] - drawn[0][0] == pytest.approx(drawn[6][0] - drawn[3][0], abs=0.2)  # 1, 2, 4: equal steps


def test_the_law_is_drawn_to_where_it_may_be_asked() -> None:
    grown = [growth(linear("one"))]
    assert graphs(grown)[0].curves[0].fitted[-1][0] == pytest.approx(8)
    assert graphs(grown, [32])[0].curves[0].fitted[-1][0] == pytest.approx(32)
    assert graphs(grown, [1000])[0].curves[0].fitted[-1][0] == pytest.approx(8)  # too far: refused


def test_the_title_is_a_sentence_with_the_number_in_it() -> None:
    (graph,) = graphs([growth(linear("one")), growth(Series("flat", "elapsed", "ns", "ranks", ((1, 5e8), (8, 5e8))))])
    assert graph.title == "elapsed: one grows most, from 1.2 s at 1 to 2.6 s at 8 ranks"


def test_axes_have_titles_with_units_and_round_ticks() -> None:
    texts = [one.text for one in ElementTree.fromstring(to_svg(graphs([growth(linear("one"))])[0])).iter(f"{SVG}text")]
    assert "ranks (log)" in texts and "elapsed (s, log)" in texts and "1.00 s" in texts
    assert value_ticks(1.2, 2.6) == [1, 2, 5] and value_ticks(0.3, 7e6)[0] <= 0.3 and len(value_ticks(1e-9, 1e9)) <= 9


def test_without_a_law_there_are_points_and_no_interval() -> None:
    (graph,) = graphs([growth(Series("two", "w", "ns", "ranks", ((1, 5e8), (2, 7e8))))])
    assert graph.curves[0].fitted == [] and to_svg(graph).count("<circle") == 3


def test_hostile_names_stay_names() -> None:
    evil = Curve("</svg><script>alert(1)</script>\x1b[31m", [(1, 1.0), (2, 2.0)])
    text = to_svg(Graph("a & <b>", "<n>", '"y"', Unit.NUMBER, [evil]))
    assert ElementTree.fromstring(text) is not None and "<script" not in text and "\x1b" not in text


def test_values_that_no_logarithm_has_are_left_out() -> None:
    assert to_svg(Graph("t", "n", "y", Unit.NS, [Curve("zero", [(1, 0.0)])])) == ""
    one = to_svg(Graph("t", "n", "y", Unit.NS, [Curve("one", [(1, 0.0), (4, 5.0)])]))
    assert ElementTree.fromstring(one) is not None


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.md"
    rows = "".join(f"| {ranks} | {3 + ranks} |\n" for ranks in (1, 2, 4, 8, 16))
    own.write_text(f"# import time\n\n| Ranks | mine (s) |\n| --- | --- |\n{rows}")
    folder = loaded(own, tmp_path / "own", capsys)
    assert scale([str(folder), "--html", str(tmp_path / "page.html"), "--to", "32"]) == 0
    text = (tmp_path / "page.html").read_text()
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert text.count("<svg") == 2 and not re.search(r"\s(src|style|on\w+)=", markup)
    assert not [link for link in re.findall(r'href="([^"]*)"', markup) if not link.startswith("#")]
    assert re.search(r'<p class="verdict">[^<]* adds the most time: from 4 s at 1 to 19 s at 16 ranks', text)
    assert "Projected to 32 ranks</dt><dd>35 s</dd>" in text


def test_of_many_quantities_those_that_grow_most_are_drawn() -> None:
    """So that the first screen shows what it speaks of."""

    def series(what: str, unit: str, slope: float) -> Series:
        return Series("one", what, unit, "ranks", tuple((float(n), 1e9 + slope * n) for n in (1, 2, 4, 8)))

    times = [series(f"part {at}", "ns", 1e6 * at) for at in range(12)]
    found = [growth(one) for one in (*times, series("total", "ns", 1e9), series("speed", "1/s", 1e9))]
    drawn = [one.value_axis for one in graphs(found)]
    assert len(drawn) == 8 and {"total", "part 11", "speed"} <= set(drawn) and "part 0" not in drawn
    assert drawn == [one.series.what for one in found if one.series.what in drawn]
