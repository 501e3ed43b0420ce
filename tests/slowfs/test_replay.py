"""Recorded operations are done again, by every client, where and how it was asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.api.import_replay import recorded
from rankscope.cli.imports_project import main as project
from rankscope.cli.imports_replay import main
from rankscope.formats import path_operations
from rankscope.formats import path_operations as strace_paths
from rankscope.formats.source import Source
from rankscope.model.imports import PathOperation
from rankscope.model.tables import Wrong
from rankscope.questions.imports.replay import replay_operations, replay_overview
from rankscope.slowfs.mount import Slowness
from rankscope.slowfs.replay import ReplayPlan, in_rounds, mapped, replay
from slow_file_system import skip_unless_runnable

# Two stats of a file two folders down, one of nothing, an open, a listing.
OPERATIONS = [
    PathOperation("stat", "/env/a/b/file", "ok", 2),
    PathOperation("stat", "/env/nothing", "ENOENT"),
    PathOperation("open", "/env/a/b/file", "ok", 1, 5000),
    PathOperation("list", "/env/a"),
    PathOperation("stat", "/elsewhere"),
]
LOG = """\
11 execve("/env/bin/python", ["python"], 0x7ffe /* 9 vars */) = 0
11 openat(AT_FDCWD, "/env/lib/x.so", O_RDONLY|O_CLOEXEC) = 3
11 newfstatat(3, "", {st_mode=S_IFREG|0644, st_size=1, ...}, AT_EMPTY_PATH) = 0
11 newfstatat(AT_FDCWD, "/env/a\\tb", 0x7ffc, 0) = -1 ENOENT (No such file or directory)
11 openat(AT_FDCWD, "/env/lib", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY <unfinished ...>
12 access("relative", R_OK)             = -1 ENOENT (No such file or directory)
11 <... openat resumed>)                = 4
12 newfstatat(4</env/lib>, "y.py", {st_mode=S_IFREG|0644, st_size=1, ...}, 0) = 0
12 readlink("/env/\\303\\244", "file", 4095) = 4
11 +++ exited with 0 +++
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "env"
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "b" / "file").write_bytes(bytes(5000))
    return made


def test_rounds_repeat_in_order() -> None:
    assert [one.operation for one in in_rounds(OPERATIONS)] == ["stat", "stat", "open", "list", "stat", "stat"]


def test_mapping_moves_what_is_below_and_leaves_the_rest_out() -> None:
    moved = mapped(OPERATIONS, "/env/", "/copy")
    assert [one.path for one in moved] == ["/copy/a/b/file", "/copy/nothing", "/copy/a/b/file", "/copy/a"]
    assert moved[0].times == 2
    assert mapped(OPERATIONS, "/en", "/copy") == []


def test_every_client_does_everything(folder: Path) -> None:
    replayed = replay(mapped(OPERATIONS, "/env", str(folder)), ReplayPlan(folder, clients=3))
    assert replayed.times.shape == (3, 5)
    assert (replayed.times["operation_ns"] > 0).all()
    begin, end, failed, otherwise, reads, size = replayed.clients.T
    assert (end > begin).all()
    assert [list(column) for column in (failed, otherwise, reads, size)] == [[1] * 3, [0] * 3, [1] * 3, [5000] * 3]
    assert (replayed.times["read_ns"] > 0).sum() == 3
    assert replayed.counters is None


def test_what_ends_otherwise_is_counted(folder: Path) -> None:
    shutil.rmtree(folder / "a")
    replayed = replay(mapped(OPERATIONS, "/env", str(folder)), ReplayPlan(folder, reads=False))
    assert replayed.clients[0][3] == 4  # all but the one that failed before
    assert "4 of 5 operations had another result" in replay_overview(replayed.clients, 1, 5).warnings[0]


@pytest.mark.parametrize(
    ("cache", "lookups", "getattrs"),
    # a/b/file is looked up by two stats and an open, a by the listing, nothing by one; each stat asks for attributes
    [("none", 3 * 3 + 1 + 1, 2), ("positive", 3 + 1, 0), ("negative", 3 + 1, 0)],
)
def test_nodes_have_caches_of_their_own(folder: Path, cache: str, lookups: int, getattrs: int) -> None:
    skip_unless_runnable()
    operations = mapped(OPERATIONS, "/env", str(folder))
    replayed = replay(operations, ReplayPlan(folder, nodes=3, reads=False, slowness=Slowness(cache=cache)))
    assert len(replayed.clients) == 3
    assert replayed.counters is not None
    assert {name: replayed.counters[name] for name in ("lookup", "missing", "open", "opendir")} == {
        "lookup": 3 * lookups,
        "missing": 3,
        "open": 3,
        "opendir": 3,
    }
    # a listing may ask for the folder's attributes too
    assert 3 * getattrs <= replayed.counters["getattr"] <= 3 * (getattrs + 2)


def test_clients_of_a_slow_server_wait_for_their_turn(folder: Path) -> None:
    skip_unless_runnable()
    probes = [PathOperation("stat", f"{folder}/nothing{number}", "ENOENT") for number in range(50)]
    replayed = replay(probes, ReplayPlan(folder, clients=2, nodes=2, slowness=Slowness(operations_per_second=400)))
    wall_ns = replayed.clients[:, 1].max() - replayed.clients[:, 0].min()
    assert wall_ns >= 4 * 50 / 400 * 1e9 * 0.99


def test_percentiles_by_kind() -> None:
    kinds = [PathOperation("stat", "/x")] * 100 + [PathOperation("open", "/y")]
    operation_ns = np.array([[*range(1, 101), 5000]])
    table = replay_operations(kinds, operation_ns, np.zeros_like(operation_ns))
    by_name = {row[0]: row for row in table.rows}
    assert by_name["stat"][:4] == ("stat", 100, 5050, 50.5)
    assert by_name["open"][1:] == (1, 5000, 5000.0, 5000.0, 5000.0, 5000.0, 5000)
    assert by_name["all path operations"][1] == 101


def test_text_form_goes_out_and_in() -> None:
    odd = [PathOperation("stat", "/a\tb\\n\nc\\", "ok", 3, 0), *OPERATIONS]
    text = path_operations.to_text(odd)
    assert path_operations.is_path_operations(text.encode())
    assert path_operations.read(Source(Path("x"), content=text.encode())) == odd


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_path_goes_out_and_in(path: str) -> None:
    written = path_operations.escaped(path)
    assert not set("\n\t\r") & set(written)
    assert path_operations.unescaped(written) == path


@pytest.mark.parametrize("line", ["stat\tok\t1\t0", "dance\tok\t1\t0\t/x", "stat\tok\t0\t0\t/x", "stat\tok\tx\t0\t/x"])
def test_bad_lines_are_refused_with_their_place(line: str) -> None:
    content = f"{path_operations.HEADER}\n{line}\n".encode()
    with pytest.raises(Exception, match="x:2: "):
        path_operations.read(Source(Path("x"), content=content))


def test_a_log_of_strace_by_hand() -> None:
    found, relative = strace_paths.read_strace(Source(Path("log"), content=LOG.encode()))
    assert found == [
        PathOperation("exec", "/env/bin/python"),
        PathOperation("open", "/env/lib/x.so"),
        PathOperation("stat", "/env/a\tb", "ENOENT"),
        PathOperation("list", "/env/lib"),
        PathOperation("stat", "/env/lib/y.py"),
        PathOperation("readlink", "/env/ä"),
    ]
    assert relative == 1


@given(st.text(max_size=200))
def test_any_line_of_a_log_is_survived(rest: str) -> None:
    text = f'1 openat(AT_FDCWD, "{rest}\n1 stat("/a{rest}", 0) = 0\n1 <... openat resumed>) = {rest}\n'
    found, _ = strace_paths.read_strace(Source(Path("log"), content=text.encode("utf-8", "replace")))
    assert all(one.path.startswith("/") for one in found)


def test_a_real_log_of_strace_is_replayed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is missing: install it")
    log = tmp_path / "log"
    code = f"import os; os.stat('{folder}/a/b/file'); os.path.exists('{folder}/nothing'); os.listdir('{folder}/a')"
    subprocess.run(["strace", "-f", "-o", log, sys.executable, "-I", "-S", "-c", code], check=True)
    assert main([str(log), "--folder", str(folder), "--clients", "2", "--format", "json"]) == 0
    overview, kinds = json.loads(capsys.readouterr().out)["tables"]
    row = dict(zip((column["name"] for column in overview["columns"]), overview["rows"][0], strict=True))
    assert (row["clients"], row["operations"], row["failed"], row["otherwise"]) == (2, 6, 2, 0)
    assert {row[0]: row[1] for row in kinds["rows"]} == {"list": 2, "stat": 4, "all path operations": 6}


def test_a_recorded_run_is_replayed_and_projected(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"import os; [os.stat('{folder}/a/b/file') for _ in range(5)]; os.path.exists('{folder}/nothing')"
    words = [sys.executable, "-m", "rankscope", "run", "--imports", "paths", "--out", tmp_path / "run"]
    subprocess.run([*words, sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True)
    assert main([str(tmp_path / "run"), "--folder", str(folder), "--format", "json"]) == 0
    overview, _ = json.loads(capsys.readouterr().out)["tables"]
    row = dict(zip((column["name"] for column in overview["columns"]), overview["rows"][0], strict=True))
    assert (row["operations"], row["failed"], row["otherwise"]) == (6, 1, 0)
    words = [str(tmp_path / "run"), "--folder", str(folder), "--server-ops", "10", "--nodes", "2", "--ppn", "3"]
    assert project([*words, "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    operations = {row[0]: row[3] for row in table["rows"]}
    # names: a, b, file; nothing
    expected = {"walk": 6 * (5 * 3 + 1 + 5), "none": 6 * 6, "positive": 6 * 4, "negative": 6 * 4, "node": 2 * 4}
    assert {cache: operations[cache] for cache in expected} == expected


class Recorded:
    """A run's tables, in memory."""

    def __init__(self) -> None:
        self.database = duckdb.connect()

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self.database.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: object = ()) -> dict[str, object]:
        raise NotImplementedError


def test_paths_of_a_run() -> None:
    tables = Recorded()
    with pytest.raises(Wrong, match="record it with rankscope run --imports paths"):
        recorded(tables, None)
    tables.query("CREATE TABLE ranks AS SELECT 7 AS process, 1 AS rank UNION ALL SELECT 3, 0")
    tables.query(
        "CREATE TABLE paths AS SELECT 7 AS process, 1 AS module, 'search' AS cause, 'stat' AS operation, "
        "'/env/x' AS path, 'ENOENT' AS result, 4 AS times, 0 AS bytes"
    )
    assert recorded(tables, None) == recorded(tables, 1) == [PathOperation("stat", "/env/x", "ENOENT", 4, 0)]
    with pytest.raises(Wrong, match="rank 0 has no paths"):
        recorded(tables, 0)


def test_wrong_usage_is_one_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "operations"
    file.write_text(path_operations.to_text(OPERATIONS))

    def told(*words: str | Path) -> str:
        assert main([str(word) for word in words]) == 1
        return capsys.readouterr().err

    assert told(file).endswith("name the folder to replay in with --folder\n")
    assert "name the folder they were recorded in with --from" in told(file, "--folder", folder)
    assert "need --slow" in told(file, "--folder", folder, "--from", "/env", "--latency", "1ms")
    (tmp_path / "words").write_text("just words\n")
    assert "neither a run, nor a text file of operations" in told(tmp_path / "words", "--folder", folder)
