"""Blame beside saving, from trials whose numbers are known, and what each switch does inside Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from questions.imports.test_import_offenders import bytecode_run, loader_run, search_run
from rankscope.api.import_saving import switch_of, together
from rankscope.questions.imports.imports import import_cost
from rankscope.questions.imports.saving import (
    Blame,
    Trial,
    blame_bytecode,
    blame_library_path,
    blame_module,
    blame_realpath,
    blame_search,
    import_saving,
)
from rankscope.questions.imports.trees import Counts
from runs.import_runs import MS, HandFilled, small_run

START = Path(__file__).parents[3] / "src/rankscope/agent/start"


def test_the_saving_is_the_median_of_neighbouring_runs() -> None:
    trial = Trial(
        "realpath",
        Blame(800, 8e6),
        Counts(calls=1000, stats=900, opens=50),
        Counts(calls=700, stats=600, opens=50),
        before_wall_ns=[100, 300, 110],
        after_wall_ns=[90, 250, 108],
        before_cpu_ns=[50, 60, 70],
        after_cpu_ns=[40, 40, 40],
    )
    control = Trial("nothing", Blame(), trial.before, trial.before, [100, 300, 110], [100, 295, 109])
    table = import_saving([control, trial])
    assert table.rows[0] == ("nothing", 1000, 0, 0, 0, 0, None, 1, 5, None, 110, 3)
    assert table.rows[1] == ("realpath", 1000, 800, 300, 300, 0, 8e6, 10, 8, 20, 110, 3) and not table.warnings
    assert len(table.notes) == 1
    control.after_wall_ns = [90, 295, 109]
    assert import_saving([control, trial]).notes[0] == "realpath: the difference in wall time is within the noise"


def test_cost_is_the_median_of_ratios_of_neighbours() -> None:
    table = import_cost({"nothing": [(100, 10), (300, 20), (200, 40)], "calls": [(110, 20), (600, 20), (230, 60)]})
    assert table.rows[0] == ("nothing", 200, 20, 1.0, 1.0, 3)
    assert table.rows[1] == ("calls", 230, 20, 1.15, 1.5, 3)


def test_a_program_that_fails_without_it_is_told() -> None:
    trial = Trial("module=json", Blame(10, 1.0), Counts(calls=9), Counts(calls=5), exit_code=1)
    assert "ends with exit code 1 instead of 0" in import_saving([trial]).warnings[0]
    assert import_saving([trial]).rows[0][7:10] == (None, None, None)  # nothing was timed


def test_blame_of_each_cause() -> None:
    run = search_run()
    run.calls(1, "search", "newfstatat", 10, total_ns=20_000)
    assert blame_search(run) == Blame(101, 101 * 2000.0)
    run = loader_run(":".join(f"/opt/d{folder}" for folder in range(31)))
    run.calls(1, "loader", "openat", 4, total_ns=12_000)
    assert blame_library_path(run) == Blame(271, 271 * 3000.0)
    assert blame_bytecode(bytecode_run("EROFS")) == Blame(36, 0.0)
    assert blame_module(small_run(), "slow") == Blame(321, 795 * MS)
    assert blame_module(small_run(), "absent") == Blame(0, 0)
    assert blame_realpath(small_run()) == Blame(0, 0.0)


def test_switches_change_the_environment(tmp_path: Path) -> None:
    given = {"LD_LIBRARY_PATH": "/x", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/h"}
    run = search_run()
    search = switch_of("search", run, tmp_path, given)
    assert search.environment(given) == {**given, "RANKSCOPE_WITHOUT": "search=/never"}
    assert switch_of("ld-library-path", run, tmp_path, given).environment(given).keys() == given.keys() - {
        "LD_LIBRARY_PATH"
    }
    cached = switch_of("bytecode", run, tmp_path, given)
    assert cached.environment(given)["PYTHONPYCACHEPREFIX"] == str(tmp_path / "pycache") and cached.primed
    both = together([search, switch_of("module=json", run, tmp_path, given), cached])
    assert both.environment(given)["RANKSCOPE_WITHOUT"] == "search=/never\nmodule=json"
    assert "PYTHONDONTWRITEBYTECODE" not in both.environment(given) and both.blame.calls == 101
    nothing = switch_of("ld-library-path", HandFilled(), tmp_path, {})
    assert nothing.idle and nothing.note == "LD_LIBRARY_PATH is not set: there is nothing to switch off"
    assert switch_of("search", HandFilled(), tmp_path, {}).idle and not search.idle


def python_without(causes: str, program: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(START), "RANKSCOPE_WITHOUT": causes}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_real_paths_from_memory_are_the_real_ones(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("")
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "a/b/up").symlink_to("../../link/file")
    (tmp_path / "loop").symlink_to("loop")
    ends = ["a", "a/b/file", "link/file", "link/up", "a/../link", "gone/x", "loop/x", "a//b/./file", "link/", ""]
    paths = [f"{tmp_path}/{end}" for end in ends] + ["/", "link", ".", "//tmp"]
    program = f"import os, pathlib; print([os.path.realpath(p) for p in {paths!r} * 2], os.path.realpath(b'/'))"
    bare = python_without("", program, tmp_path)
    assert python_without("realpath", program, tmp_path) == bare and str(tmp_path / "a/b/file") in bare
    program = (
        f"import os\ntry: os.path.realpath({str(tmp_path)!r} + '/gone/x', strict=True)\nexcept OSError: print('told')"
    )
    assert python_without("realpath", program, tmp_path) == "told"


def test_a_module_or_a_folder_can_be_switched_off(tmp_path: Path) -> None:
    program = "try: import json\nexcept ModuleNotFoundError as e: print(e)\nimport string"
    assert "json" in python_without("module=json", program, tmp_path)
    (tmp_path / "mine.py").write_text("print('imported')")
    program = "import mine"
    assert python_without("realpath", program, tmp_path) == "imported"
    program = "try: import mine\nexcept ModuleNotFoundError as e: print(e)"
    assert python_without(f"search={tmp_path}", program, tmp_path) == "No module named 'mine'"


@pytest.mark.parametrize("causes", ["realpath", "module=nosuch\nrealpath", ""])
def test_other_programs_run_as_before(causes: str, tmp_path: Path) -> None:
    assert python_without(causes, "import json, inspect; print(json.dumps([1]))", tmp_path) == "[1]"
