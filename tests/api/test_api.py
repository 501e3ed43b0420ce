"""`import rankscope as rs`: the same numbers as the report, for programs and notebooks."""

from __future__ import annotations

import ast
import csv
import io
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rankscope as rs
from mpis import ROOT
from rankscope.api.schema import schema
from rankscope.cli.report import run as report
from rankscope.model.tables import Unit
from rankscope.questions.registry import ALIASES, QUESTIONS
from rankscope.store.cache import table_data, table_of
from runs.small_run import SECOND
from runs.step_runs import two_ranks

HEAVY = "{'re', 'typing', 'json', 'numpy', 'pyarrow', 'duckdb', 'rich', 'rankscope.model', 'importlib.util'}"
QUESTIONS_SOURCE = ROOT / "src" / "rankscope" / "questions"
EVIL = "MPI_<script>alert('1')</script>\x1b[2J"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return two_ranks(tmp_path / "run", EVIL)


def test_importing_it_loads_nothing_of_the_api() -> None:
    check = f"import sys, rankscope; print(sorted({HEAVY} & set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; before = set(sys.modules); sys.path.insert(0, 'src'); {check}"],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_a_table_has_what_the_report_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = rs.open(folder)
    assert report([str(folder), "--table", "routines", "--format", "csv"]) == 0
    shown = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    table = run.table("mpi")
    assert table.columns == list(shown[0]) and len(table) == len(shown) == 2
    assert [row["total_ns"] for row in shown] == [str(row["total_ns"]) for row in table]
    assert table["name"][0] == "MPI_Allreduce" and table.rows[0][:3] == ("MPI_Allreduce", 20, 3.0 * SECOND)
    assert table.units["total_ns"] == "ns"
    assert run.table("mpi", ranks=[1]).rows[0][:3] == ("MPI_Allreduce", 10, 2.0 * SECOND)


def test_tables_go_to_arrow_with_the_types_of_the_schema(folder: Path) -> None:
    run = rs.open(folder)
    for told in schema():
        if told.kind == "question" and not QUESTIONS[told.name].is_wide:
            arrow = run.table(told.name).to_arrow()
            assert arrow.column_names == [column.name for column in told.columns]
            for column, field in zip(told.columns, arrow.schema, strict=True):
                assert str(field.type) in column.type, (told.name, field)
    assert str(run.table("ranks").to_arrow().schema.field("rank").type) == "int64"


def test_tables_go_to_pandas_and_polars(folder: Path) -> None:
    python = ROOT / ".envs" / "packages" / "bin" / "python"
    if not python.exists():
        pytest.skip("pandas and polars are missing: run make envs")
    code = f"""import sys; sys.path += {sys.path!r}
import rankscope as rs
run = rs.open({str(folder)!r})
print(int(run.table("mpi").to_pandas().set_index("name").loc["MPI_Allreduce", "calls"]))
print(run.query("select sum(calls) as calls from tallies where name = 'MPI_Allreduce'").to_polars()["calls"].to_list())
"""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "20\n[20]\n", done.stderr


def test_without_pandas_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        rs.open(folder).table("mpi").to_pandas()


def test_queries_see_the_records(folder: Path) -> None:
    run = rs.open(folder)
    sql = "select rank, sum(total_ns) as total_ns from tallies join ranks using (process)"
    found = run.query(f"{sql} where name = ? group by rank order by rank", ["MPI_Allreduce"])
    assert found.rows == [(0, 1.0 * SECOND), (1, 2.0 * SECOND)] and found.units == {"rank": "name", "total_ns": "ns"}
    assert run.query("select sum(calls) as calls from tallies").to_arrow().schema.field("calls").type == "int64"
    assert run.query("select count(*) as events from EVENTS").rows == [(40,)]
    with pytest.raises(rs.BadQuery, match="nowhere"):
        run.query("select * from nowhere")
    assert run.query("create temp table mine (a int)").rows == run.query("select * from mine").rows == []


def test_every_table_can_be_asked_for_by_the_name_that_tables_lists(folder: Path) -> None:
    run = rs.open(folder)
    listed = [row["name"] for row in run.tables() if row["kind"] == "question"]
    assert listed == list(QUESTIONS) and set(ALIASES.values()) <= set(listed)
    for name in listed:
        assert run.table(str(name)).name
    for name in (row["name"] for row in run.tables() if row["kind"] == "records"):
        run.query(f'select * from "{name}"')
    assert all(row["answers"] for row in run.tables())


def test_findings_are_a_table(folder: Path) -> None:
    assert rs.open(folder).findings().name == "findings"


def test_the_log_is_read_when_a_question_needs_it(folder: Path) -> None:
    run = rs.open(folder)
    run.table("mpi")
    assert not run.store().has_events
    assert QUESTIONS["waiting"].reads_more_than_sums and len(run.table("waiting")) == 2
    assert run.store().has_events


def test_wrong_requests_are_told_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(rs.NoRun, match="no such run"):
        rs.open(tmp_path / "nowhere")
    run = rs.open(folder)
    with pytest.raises(rs.Wrong, match="no such table; choose one of findings"):
        run.table("routine")
    with pytest.raises(rs.Wrong, match="no rank 7 in this run, which has ranks 0-1"):
        run.table("mpi", ranks=[7])
    with pytest.raises(rs.Wrong, match="sort colour: no such column"):
        run.table("mpi", sort="colour")
    with pytest.raises(AttributeError, match="nothing"):
        rs.nothing  # noqa: B018


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_names_as_text(folder: Path) -> None:
    run = rs.open(folder)
    for made in (run.table("mpi"), run, run.query("select name from tallies")):
        tags = Tags()
        tags.feed(made._repr_html_())
        assert tags.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "b"}
    html = run.table("mpi")._repr_html_()
    tags = Tags()
    tags.feed(html)
    assert "MPI_<script>alert('1')</script>\\x1b[2J" in tags.text and "\x1b" not in html
    assert "\x1b" not in repr(run.table("mpi")) and "MPI routines" in repr(run.table("mpi"))


def test_long_tables_are_cut_where_they_are_shown_only(folder: Path) -> None:
    frame = rs.open(folder).query("select range as number from range(1000)")
    assert "950 more rows" in repr(frame) and "950 more rows" in frame._repr_html_()
    assert len(frame) == len(frame.rows) == frame.to_arrow().num_rows == 1000


def test_the_pages_of_columns_are_what_the_code_says() -> None:
    check = [sys.executable, ROOT / "tools" / "docs_schema.py", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"Version {rs.SCHEMA_VERSION} " in (ROOT / "docs" / "reference" / "schema.md").read_text()


def test_every_figure_of_an_answer_has_its_formula() -> None:
    tables = [table for table in schema() if table.kind == "question"]
    figures = [(table.name, column) for table in tables for column in table.columns if column.unit != Unit.NAME.value]
    assert len(figures) > 300
    assert [f"{table}.{column.name}" for table, column in figures if not column.formula] == []
    assert [f"{table}.{column.name}" for table, column in figures if "see " in column.formula] == []


def test_no_question_makes_a_figure_without_a_formula() -> None:
    """Also columns that only some runs have. Layouts are those of other tools, which explain them."""
    lacking, seen = [], 0
    for path in sorted(QUESTIONS_SOURCE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Column" and "layouts" not in path.parts:
                seen += 1
                is_told = len(call.args) > 3 or any(word.arg == "formula" for word in call.keywords)
                if not is_told and ast.unparse(call.args[1]) != "Unit.NAME":
                    lacking.append(f"{path.name}:{call.lineno}: {ast.unparse(call)}")
    assert seen > 500
    assert lacking == []


def test_formulas_go_with_a_table_into_json_and_through_the_cache(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = rs.open(folder).table("routines")
    assert frame.formulas["mean_ns"] == "`total_ns` ÷ `calls`"
    remembered = table_of(json.loads(json.dumps(table_data(frame.table))))
    assert remembered is not None and remembered.columns == tuple(frame.table.columns)
    assert report([str(folder), "--table", "routines", "--format", "json"]) == 0
    columns = json.loads(capsys.readouterr().out)["tables"][0]["columns"]
    assert {column["name"]: column["formula"] for column in columns} == frame.formulas
