"""The documents that people made by hand: where staging pays, how fast it grows, and what they do not support."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.foreign_files import shared
from mpis import ROOT
from questions.scaling.asking import loaded, scaled

START_TIMES = ROOT / "tests/formats/fixtures/start_times.md"
IMPORTS, TALLIES = "seeds/001_8c73be912ac6f8b8.txt", "seeds/000_90ed594572fc3da5.txt"
STAGED = ("--sum", "staged ccl=tmp tranfer+tmp  ccl", "--sum", "staged mpi4py=tmp tranfer+MPI4py tmp INIT")


@pytest.fixture
def imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    return loaded(shared(IMPORTS), tmp_path / "imports", capsys)


@pytest.mark.parametrize(
    ("place", "staged", "nodes"),
    [
        ("soft-CCL", "Total TMP- CCL", 160),  # by hand: 128 + 128 · (260.84 - 153.83) / (576.36 - 153.83) = 160.4
        ("soft-HVD", "TOTAL -TMP -HVD", 184),
        ("slash soft ccl", "staged ccl", 133),
        ("MPI4py slash soft init", "staged mpi4py", 95),
        ("MPI4py lustre init", "staged mpi4py", 512),  # 262.9 s in place, 265.5 s staged: the same
        ("lus-CCL", "Total TMP- CCL", None),
        ("lus  ccl", "staged ccl", None),
    ],
)
def test_where_staging_breaks_even(
    imports: Path, capsys: pytest.CaptureFixture[str], place: str, staged: str, nodes: int | None
) -> None:
    pattern = f"^({place}|{staged}) "
    _, tables = scaled(capsys, imports, *STAGED, "--series", pattern, "--against", f"^{staged}$")
    (row,) = tables["scale_break_even"]
    assert (row["first"], row["second"]) == (place, staged)
    if nodes is None:
        assert row["break_even"] is None and row["verdict"].startswith(f"never in range: {place} is faster at every")
    else:
        assert row["break_even"] == pytest.approx(nodes, abs=0.5)


def test_imports_in_place_grow_as_measured_and_are_not_foretold(
    imports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They turn back and forth by factors; what was staged does not change and may be foretold, but not for ever."""
    code, tables = scaled(capsys, imports, "--series", "^(soft|lus|tmp)-", "--to", "1024,131072")
    exponents = {row["series"]: row["exponent"] for row in tables["scale_laws"]}
    assert exponents["soft-CCL"] == pytest.approx(0.99, abs=0.01)  # ln(605.3 / 153.8) / ln 4
    assert exponents["soft-mpi4py"] == pytest.approx(1.12, abs=0.01)
    assert exponents["tmp-CCL"] == pytest.approx(0, abs=0.02)
    foretold = {(row["series"], row["scale"]) for row in tables["scale_projection"] if not row["refused"]}
    assert foretold == {(f"tmp-{name}", 1024) for name in ("CCL", "HVD", "mpi4py")} and code == 1


def test_known_laws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0.5 n, 4 + 0.02 n and 60 + 6 s, of which the last two are added up here: 0.5 n = 66 at 132 nodes."""
    folder = loaded(START_TIMES, tmp_path / "run", capsys)
    words = ("--sum", "staged=unpack+local-train", "--series", "^(home-train|staged|scratch-train) ", "--to", "1024")
    _, tables = scaled(capsys, folder, *words, "--against", "^staged$")
    laws = {row["series"]: row for row in tables["scale_laws"]}
    assert laws["home-train"]["exponent"] == pytest.approx(1) and laws["staged"]["exponent"] == pytest.approx(0)
    even = {row["first"]: row for row in tables["scale_break_even"]}
    assert even["home-train"]["break_even"] == pytest.approx(132)
    assert even["scratch-train"]["break_even"] is None


def test_first_all_reduces_grow_faster_than_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = loaded(shared("samples/aurora/all_reduce.md"), tmp_path / "run", capsys)
    code, tables = scaled(capsys, folder, "--series", "CCL Aurora", "--to", "2500,10000")
    exponents = {row["what"]: row["exponent"] for row in tables["scale_laws"]}
    assert 1.6 < exponents["First all_reduce"] < 1.7 and 0.5 < exponents["Second all_reduce"] < 0.8
    assert all(row["refused"] for row in tables["scale_projection"] if row["what"].startswith("First")) and code == 1


def test_rows_of_one_host_are_no_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The profiles' own headers count one host; nothing is foretold from them, however smooth they are."""
    folder = loaded(shared(TALLIES), tmp_path / "run", capsys)
    code, tables = scaled(capsys, folder, "--to", "512,1024")
    assert len(tables["scale_projection"]) == 36 and code == 1
    assert all("header counts 1 host" in row["refused"] for row in tables["scale_projection"])


def test_published_times_are_laid_over_measured_ones(
    imports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of one's own by ranks, and the published one by nodes of 12 ranks."""
    own = tmp_path / "own.md"
    rows = "".join(f"| {ranks} | {3 + ranks} |\n" for ranks in (1, 2, 4, 8, 16))
    own.write_text(f"# import time\n\n| Ranks | mine (s) |\n| --- | --- |\n{rows}")
    folder = loaded(own, tmp_path / "own", capsys)
    overlay = ("--overlay", shared(IMPORTS), "--overlay-series", "^soft-", "--ppn", "12")
    _, tables = scaled(capsys, folder, *overlay)
    laws = {row["series"]: row for row in tables["scale_laws"]}
    assert laws["mine (s)"]["law"] == "linear" and laws["soft-CCL (published)"]["largest"] == 512 * 12
    assert len(laws) == 1 + 3
