"""make test-foreign itself: what it calls ours, what it calls flaky, and that nothing it starts outlives it."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from foreign import run
from foreign.jobs import run_unit, without_warnings
from foreign.suites import HERE, MODES, OUTCOMES_FILE, Unit
from foreign.table import write_table

TESTS = """
import os, unittest
class T(unittest.TestCase):
    def test_same(self): pass
    def test_skipped(self): self.skipTest("always")
    def test_ours(self): self.assertNotIn("librankscope", os.environ.get("LD_PRELOAD", ""))
unittest.main()
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rankscope: Path) -> Path:
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run, "TABLE", tmp_path / "table.md")
    return tmp_path / "results"


def python_unit(*arguments: str, **fields: object) -> Unit:
    return Unit("own", "unit", (sys.executable, *arguments), 60, **fields)  # type: ignore[arg-type]


def test_a_test_that_fails_only_recorded_is_ours(tmp_path: Path, results: Path) -> None:
    script = tmp_path / "tests.py"
    script.write_text(TESTS)
    result = run.compare(python_unit(str(HERE / "outcomes.py"), OUTCOMES_FILE, str(script)), MODES["default"])
    assert result["outcomes"] == {"passed": 2, "skipped": 1}
    assert list(result["ours"]) == ["__main__.T.test_ours"]
    assert set(result["ours"]["__main__.T.test_ours"]["bare"]) == {"passed"}
    assert set(result["ours"]["__main__.T.test_ours"]["recorded"]) == {"failed"}
    assert not result["flaky"] and result["rank_files"]


def test_output_that_is_never_the_same_is_not_ours(results: Path) -> None:
    unit = python_unit("-c", "import time; print(time.time_ns()); raise SystemExit(3)", compares_output=True)
    result = run.compare(unit, MODES["default"])
    assert result["end"] == "exit 3" and not result["ours"] and list(result["flaky"]) == ["stdout"]


def test_a_test_of_time_is_shown_and_is_not_ours(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "tests.py"
    script.write_text(TESTS)
    timed = {("own", "unit", "__main__.T.test_ours"): "it has to be slow"}
    monkeypatch.setattr(run, "TIMED", timed)
    monkeypatch.setattr("foreign.table.TIMED", timed)
    unit = python_unit(str(HERE / "outcomes.py"), OUTCOMES_FILE, str(script))
    run.compare_all([(unit, MODES["default"])], time.monotonic() + 60)
    assert write_table(results, {}, tmp_path / "table.md") == 0
    shown = (tmp_path / "table.md").read_text().partition("## Tests of how long calls take\n")[2]
    line = "`__main__.T.test_ours` (default): bare 4 × 'passed'; recorded 4 × 'failed' (it has to be slow)"
    assert shown.startswith(f"- own unit: {line}\n")


def test_a_run_without_a_rank_file_is_a_difference(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "tests.py"
    script.write_text(TESTS.replace('"librankscope"', '"nothing"'))
    monkeypatch.setattr("foreign.jobs.RANKSCOPE", "env")
    monkeypatch.setattr("foreign.jobs.command_of", lambda unit, mode, scratch: list(unit.command))
    result = run.compare(python_unit(str(HERE / "outcomes.py"), OUTCOMES_FILE, str(script)), MODES["default"])
    assert list(result["ours"]) == ["(recorded)"]


def test_the_time_limit_ends_what_left_the_process_group(tmp_path: Path) -> None:
    program = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(300)
"""
    begun = time.monotonic()
    ended = run_unit(Unit("own", "unit", (sys.executable, "-c", program), 3), None)
    assert ended.end == "time limit" and time.monotonic() - begun < 60
    assert not Path("/proc", (tmp_path / "child").read_text(), "exe").exists()


def test_the_table_counts_and_names_what_is_ours(tmp_path: Path, results: Path) -> None:
    unit = python_unit("-c", "import os; print('LD_PRELOAD' in os.environ)", compares_output=True)
    run.compare_all([(unit, MODES["default"])], time.monotonic() + 60)
    assert write_table(results, {}, tmp_path / "table.md") == 1
    table = (tmp_path / "table.md").read_text()
    assert "| own | – | default | 1 | 3 | – | – | 2 | 1 | 0 |" in table
    assert "- own unit: `stdout` (default): bare 4 × 'False'; recorded 4 × 'True'" in table


def test_another_checkout_goes_on_from_the_committed_results(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = [(python_unit("-c", "print(1)", compares_output=True), MODES["default"])]
    run.compare_all(planned, time.monotonic() + 60)
    write_table(results, {}, tmp_path / "table.md")
    table = (tmp_path / "table.md").read_text()
    shutil.rmtree(results)
    capsys.readouterr()
    run.compare_all(planned, time.monotonic() + 60)
    assert not results.exists() and not capsys.readouterr().out
    write_table(results, {}, tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text() == table and "| own | – | default | 1 | 3 | – | – | 3 | 0 | 0 |" in table


def test_lines_of_ours_are_kept_without_the_paths_of_this_machine() -> None:
    err = "theirs /a/b\nrankscope: not recording: /home/me/prog needs libasan.so.8; (/lib/ld-musl.so.1): use another\n"
    rest, ours = without_warnings(err)
    assert rest == "theirs /a/b\n"
    assert ours == ["rankscope: not recording: PATH needs libasan.so.8; (PATH): use another"]


def test_what_was_skipped_is_tried_again_once_its_program_is_there(results: Path) -> None:
    run.compare_all([(python_unit("-c", "pass", skip="no such program"), MODES["default"])], time.monotonic() + 60)
    write_table(results, {}, run.TABLE)
    assert "no such program" in run.TABLE.read_text()
    run.compare_all([(python_unit("-c", "pass"), MODES["default"])], time.monotonic() + 60, keep=True)
    write_table(results, {}, run.TABLE)
    assert "no such program" not in run.TABLE.read_text()
