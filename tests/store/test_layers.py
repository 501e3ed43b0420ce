"""Layers and roles: words that are written down once and come out the same everywhere."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from mpis import ROOT
from rankscope import rank_file
from rankscope.model.records import COLLECTIVE_LAYERS, Layer, RankFacts, Role, Tally
from rankscope.model.tables import sql_list
from rankscope.rank_files.read import LAYERS
from rankscope.store.columns import records_table

PACKAGE = ROOT / "src" / "rankscope"
WORDS = [{str(word) for word in words} for words in (Layer, Role)]
# backends of torch and packages of Python, which happen to be called as a layer is
NO_LAYERS = {"agent/arrivals.py", "agent/fallback.py", "studies/allreduce.py", "studies/ddp.py", "studies/backends.py"}


def test_a_word_is_the_same_in_every_form() -> None:
    written = io.StringIO()
    csv.writer(written).writerow([Layer.CUDA_API])
    assert written.getvalue() == "cuda_api\r\n" and json.dumps([Layer.CUDA_API]) == '["cuda_api"]'
    assert f"{Layer.CUDA_API} {Layer.CUDA_API:>9}" == "cuda_api  cuda_api" and str(Role.RANK) == "rank"
    assert duckdb.execute("SELECT ?", [Layer.CUDA_API]).fetchall() == [("cuda_api",)]
    assert pa.array([Layer.CUDA_API, "cuda_api"]).to_pylist() == ["cuda_api"] * 2
    assert {"cuda_api": 1}[Layer.CUDA_API] == 1 and sql_list(COLLECTIVE_LAYERS) == "('mpi', 'nccl', 'gloo', 'oneccl')"


def test_tables_hold_plain_words() -> None:
    tallies = records_table("tallies", [0, 1], [Tally(Layer.MPI, "a", 1, 1.0), Tally("theirs", "b", 1, 1.0)])
    assert tallies["layer"].to_pylist() == ["mpi", "theirs"]
    facts = records_table("ranks", [0, 1], [RankFacts(), RankFacts(role="job 2")])
    assert [type(role) for role in facts["role"].to_pylist()] == [str, str]
    assert facts["role"].to_pylist() == ["rank", "job 2"]


def test_the_numbers_of_the_rank_file_are_these_layers() -> None:
    expected = {"IN_RANGE_GPU": "gpu", "IN_RANGE_API": "cuda_api", "IN_RANGE_NVTX": "nvtx"}
    assert LAYERS == ("", *(expected.get(one.name, one.name.lower()) for one in rank_file.LayerNumber))
    assert all(type(word) is str for word in LAYERS)


IN_SQL = re.compile(r"\b(?:layer|role) (?:NOT )?IN \(('\w+'(?:, '\w+')+)\)")


def lists_of_words(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Tuples, lists, sets and keys or values of dicts that hold two words or more, all of them ours; also in SQL."""
    text = path.read_text(encoding="utf-8")
    for found in IN_SQL.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1].replace("'", "").split(", ")
    for node in ast.walk(ast.parse(text)):
        groups = [node.elts] if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
        groups = [[key for key in node.keys if key], node.values] if isinstance(node, ast.Dict) else groups
        for group in groups:
            told = [one.value for one in group if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if len(told) > 1 and len(told) == len(group) and any(set(told) <= words for words in WORDS):
                yield node.lineno, told


def test_no_module_lists_layers_or_roles_by_itself() -> None:
    home = PACKAGE / "model" / "records.py"
    files = [path for path in PACKAGE.rglob("*.py") if "workloads" not in path.parts and path != home]
    names = {path: str(path.relative_to(PACKAGE)) for path in files}
    found = {f"{names[path]}:{line}": told for path in files for line, told in lists_of_words(path)}
    assert {place: told for place, told in found.items() if place.partition(":")[0] not in NO_LAYERS} == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('X = ("mpi", "nccl")', [["mpi", "nccl"]]),
        ('X = {"gpu": "kernel", "nvtx": "range"}', [["gpu", "nvtx"]]),
        ('X = ("mpi", "time")', []),
        ('X = ["rank", "other"]', [["rank", "other"]]),
        ('X = ("rank", "host")', []),
        ("X = \"SELECT 1 FROM tallies WHERE layer NOT IN ('mpi', 'gpu')\"", [["mpi", "gpu"]]),
    ],
)
def test_such_a_list_is_found(text: str, told: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert [words for _, words in lists_of_words(tmp_path / "module.py")] == told
