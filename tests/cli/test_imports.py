"""`rankscope imports` on real programs: what it counts, shows and leaves alone."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from rankscope.cli.imports import run

PACKAGES = ROOT / ".envs/packages/bin/python"
TORCH = ROOT / ".envs/torch/bin/python"
LIBRARY = ROOT / "src/rankscope/native/librankscope.so"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native part is not built: python3 hatch_build.py")


def imports(*words: str | Path, cwd: Path | None = None, code: int = 0, **variables: str) -> tuple[str, str]:
    """What the command prints on stdout and stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "160", **variables}
    command = [sys.executable, "-m", "rankscope", "imports", *map(str, words)]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=110)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def shown(*words: str | Path) -> str:
    """What it prints of a recorded run, without another process."""
    with redirect_stdout(io.StringIO()) as out:
        assert run([str(word) for word in words]) == 0
    return out.getvalue()


def tables(
    *words: str | Path, cwd: Path | None = None, code: int = 0, **variables: str
) -> dict[str, list[dict[str, Any]]]:
    """The tables as rows; what has to be recorded first is so in another process."""
    whole = (*words, "--format", "json")
    out = shown(*whole) if cwd is None else imports(*whole, cwd=cwd, code=code, **variables)[0]
    return {
        table["name"]: [dict(zip([c["name"] for c in table["columns"]], row, strict=True)) for row in table["rows"]]
        for table in json.loads(out)["tables"]
    }


def needs(python: Path) -> Path:
    if not python.exists():
        pytest.skip(f"{python.parents[1].name} is missing: run make envs")
    return python


@pytest.fixture(scope="module")
def json_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recording of `import json`, for several tests."""
    folder = tmp_path_factory.mktemp("json") / "run"
    imports("json", "--python", sys.executable, "--out", folder, cwd=folder.parent)
    return folder


def test_everything_adds_up(json_run: Path) -> None:
    told = tables(json_run, "--table", "imports", "--table", "import_modules", "--table", "import_causes")
    (total,) = told["imports"]
    modules = told["import_modules"]
    assert total["calls"] > 100 and total["modules"] >= 4 and total["path_operations"] >= total["distinct_paths"] > 0
    for name in ("calls", "opens", "stats", "reads", "mmaps", "failed", "missing", "read_bytes"):
        assert sum(row[f"self_{name}"] for row in modules) == total[name], name
        assert sum(row[name] for row in told["import_causes"]) == total[name], name
    names = {row["module"]: row for row in modules}
    assert names["json.decoder"]["parent"] == "json" and names["json"]["calls"] > names["json"]["self_calls"] > 0
    assert names["json"]["wall_ns"] >= names["json.decoder"]["wall_ns"] > 0


def test_counts_are_those_of_strace(json_run: Path, tmp_path: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    (total,) = tables(json_run, "--table", "imports")["imports"]
    if total["method"] != "dispatch":
        pytest.skip(f"metered by {total['method']}, which does not see all calls")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    log = tmp_path / "json.strace"
    done = subprocess.run(
        ["strace", "-f", "-c", "-o", str(log), sys.executable, "-c", "import json"],
        cwd=json_run.parent,
        env=environment,
    )
    if done.returncode:
        pytest.skip("strace may not trace here")
    opens = sum(int(found) for found in re.findall(r"(\d+)(?: +\d+)? openat$", log.read_text(), re.M))
    assert total["opens"] == pytest.approx(opens, rel=0.1, abs=12)
    subprocess.run(
        [sys.executable, "-m", "rankscope", "load", str(log), "--out", str(json_run)], env=environment, check=True
    )
    rows = {row["call"]: row for row in tables(json_run, "--table", "import_calls")["import_calls"]}
    assert rows["openat"]["strace_calls"] == opens and rows["openat"]["calls"] == total["opens"]


def test_ranks_that_are_not_there(json_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(json_run), "--rank", "7"]) == 2
    assert "no rank 7 in this run, which has rank 0" in capsys.readouterr().err
    assert tables(json_run, "--rank", "0", "--table", "imports")["imports"][0]["calls"] > 100


def test_times_beside_those_of_importtime(json_run: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-X", "importtime", "-c", "import json"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=json_run.parent)
    log = tmp_path / "json.importtime"
    log.write_text(told.stderr)
    load = [sys.executable, "-m", "rankscope", "load", str(log), "--out", str(json_run)]
    subprocess.run(load, env=environment, check=True, capture_output=True)
    rows = {row["module"]: row for row in tables(json_run, "--table", "import_modules")["import_modules"]}
    found = re.search(r"(\d+) \| +(\d+) \| +json\.decoder$", told.stderr, re.M)
    assert found and rows["json.decoder"]["importtime_self_ns"] == int(found[1]) * 1000
    assert rows["json.decoder"]["importtime_ns"] == int(found[2]) * 1000


def test_forms_of_one_run(json_run: Path) -> None:
    out = shown(json_run)
    assert "Import tree" in out and "json.decoder" in out and "Causes of the system calls" in out
    out = shown(json_run, "--table", "import_modules", "--format", "csv", "--sort", "calls")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["calls"]) for row in rows] == sorted((int(row["calls"]) for row in rows), reverse=True)
    assert "| json |" in shown(json_run, "--table", "import_modules", "--format", "markdown")
    box = json.loads(shown(json_run, "--format", "icicle"))
    check(box)
    shallow = tables(json_run, "--table", "import_tree", "--depth", "1")["import_tree"]
    assert {row["depth"] for row in shallow} == {0, 1}


def check(box: dict[str, Any]) -> None:
    assert box["calls"] == box["self_calls"] + sum(child["calls"] for child in box["children"])
    for child in box["children"]:
        check(child)


def test_the_report_shows_them_too(json_run: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "rankscope", "report", str(json_run), "--format", "json"]
    done = subprocess.run([*command, "--table", "import_tree"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "  json" in [row[0] for row in json.loads(done.stdout)["tables"][0]["rows"]]


def test_children_belong_to_the_module_that_starts_them(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text("import subprocess\nsubprocess.run(['/bin/true'])\n")
    told = tables(
        "starts", "--python", sys.executable, "--table", "import_tree", "--table", "import_offenders", cwd=tmp_path
    )
    names = [row["module"].strip() for row in told["import_tree"]]
    assert "true" in names and "starts" in names
    depths = {row["module"].strip(): row["depth"] for row in told["import_tree"]}
    assert depths["true"] == depths["starts"] + 1
    assert any("starts starts 1 program" in row["offender"] for row in told["import_offenders"])


def test_output_exit_code_and_folder_are_told(tmp_path: Path) -> None:
    program = "import sys, json; print('mine'); sys.exit(3)"
    out, err = imports("--out", "kept", "--", sys.executable, "-c", program, cwd=tmp_path, code=1)
    assert "mine" in err and "mine" not in out.splitlines() and "exit code 3" in err and "json" in out
    assert (tmp_path / "kept/run.json").exists()
    _, err = imports("json", "--out", "kept", cwd=tmp_path, code=2)
    assert "is not empty" in err
    _, err = imports("--", "no-such-program", cwd=tmp_path, code=2)
    assert err.endswith("rankscope: no-such-program ended with exit code 127; nothing was recorded\n")
    _, err = imports("--", "sh", "-c", "kill -9 $$", cwd=tmp_path, code=1)
    assert "ended with SIGKILL" in err
    _, err = imports("no_such_module", "--python", sys.executable, cwd=tmp_path, code=1)
    assert "no_such_module ended with exit code 1" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a-b"], "neither a run's folder nor the name of a module"),
        (["./nowhere"], "no such run"),
        (["json", "--", "true"], "not both"),
        (["json", "--without", "magic"], "--without magic: choose one of realpath"),
        (["json", "re", "--without", "realpath"], "--without and --cost need one command"),
        (["json", "--python", "/no/python"], "--python /no/python: does not start"),
        (["json", "--repeats", "0"], "--repeats 0"),
        (["json", "--depth", "-1"], "--depth"),
    ],
)
def test_wrong_words_are_told_in_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1 and out == ""


def test_without_a_cause(tmp_path: Path) -> None:
    for name in ("never", "mine", "here/below"):
        (tmp_path / name).mkdir(parents=True)
    for at in range(40):
        (tmp_path / f"mine/m{at}.py").write_text("")
    body = "import os\n" + "".join(f"import m{at}\n" for at in range(40))
    (tmp_path / "mine/asks.py").write_text(body + "for at in range(100): os.path.realpath(__file__)\n")
    words = ["asks", "--repeats", "2", "--table", "imports", "--without", "search", "--without", "realpath"]
    path = f"{tmp_path / 'never'}:{tmp_path / 'mine'}:{ROOT / 'src'}"
    words += ["--without", "module=m7", "--python", sys.executable]
    told = tables(*words, cwd=tmp_path / "here/below", PYTHONPATH=path)["import_saving"]
    rows = {row["without"]: row for row in told}
    assert list(rows) == ["nothing", "search", "realpath", "module=m7", "all of these"]
    parts = len(tmp_path.parts)
    assert rows["realpath"]["stats_saved"] >= 98 * parts and rows["realpath"]["calls_blamed"] >= 98 * parts
    assert rows["search"]["stats_saved"] >= 40 and rows["search"]["calls_blamed"] >= 40
    assert rows["module=m7"]["calls_blamed"] > 0 and rows["all of these"]["turns"] == 2
    assert rows["all of these"]["stats_saved"] >= rows["realpath"]["stats_saved"]


def test_what_metering_costs(tmp_path: Path) -> None:
    words = ("json", "--python", sys.executable, "--cost", "--repeats", "1", "--table", "imports")
    rows = tables(*words, cwd=tmp_path)["import_cost"]
    assert [row["recorded"] for row in rows] == ["nothing", "nothing, again", "time", "calls", "paths"]
    assert rows[0]["wall_ratio"] == rows[0]["cpu_ratio"] == 1 and all(row["wall_ns"] > 0 for row in rows)


def test_real_packages_side_by_side(tmp_path: Path) -> None:
    python = needs(PACKAGES)
    told = tables("numpy", "requests", "--python", python, cwd=tmp_path)
    rows = told["import_frameworks"]
    assert [row["total_of"] for row in rows] == ["Total numpy", "Total requests"]
    assert all(row["total_calls"] > row["openat_calls"] + row["stats_calls"] > 500 for row in rows)
    assert [row["framework"] for row in told["import_compared"]] == ["numpy", "requests"]
    assert {"numpy/import_offenders", "requests/import_offenders"} <= told.keys()


@pytest.mark.slow
def test_torch_and_its_realpath_storm(tmp_path: Path) -> None:
    python = needs(TORCH)
    told = tables("torch", "--python", python, "--without", "realpath", "--repeats", "1", cwd=tmp_path)
    assert "realpath_storm" in [row["rule"] for row in told["import_offenders"]]
    control, row = told["import_saving"]
    assert control["without"] == "nothing" and abs(control["calls_saved"]) < 100
    assert row["stats_saved"] > 5000 and row["calls_blamed"] > 5000
