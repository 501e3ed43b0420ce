"""`rankscope publish`: which values it gives, to whom, and what happens where nobody takes them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from threading import Timer

import pytest

from mpis import ROOT, find_mpi
from output.publish.known_run import LATE, LATE_S, PARTS_S, STEP_S, STEPS, known_run
from questions.live.jobs import command, end_family, going
from questions.live.test_hang_mpi import started
from rankscope.api.publish import METRICS, JobMetrics, Outlet
from rankscope.cli import publish
from rankscope.model.metrics import Histogram, Kind, Metric, Snapshot, Undelivered
from rankscope.output.publish.prometheus import Scrapes, exposition
from rankscope.output.publish.trackers import flat

SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")


def samples(text: str) -> dict[tuple[str, str], float]:
    """By name and labels but the run's."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            found[name, re.sub(r'run="[^"]*",?', "", labels)] = float(value)
    return found


def published(folder: Path, *options: str) -> dict[tuple[str, str], float]:
    out = folder.parent / "metrics.prom"
    assert publish.run([str(folder), "--textfile", str(out), *options]) == 0
    return samples(out.read_text())


def test_every_value_of_a_run_is_right(tmp_path: Path) -> None:
    found = published(known_run(tmp_path / "run"))
    assert found["rankscope_ranks", 'state="exited"'] == found["rankscope_expected_ranks", ""] == 2
    assert found["rankscope_ranks", 'state="running"'] == found["rankscope_ranks", 'state="missing"'] == 0
    assert found["rankscope_steps_total", ""] == STEPS
    for part, seconds in PARTS_S.items():
        assert found["rankscope_step_part_seconds", f'part="{part}"'] == pytest.approx(seconds)
    for name in ("mean", "p50", "p99"):
        assert found[f"rankscope_step_{name}_seconds", ""] == pytest.approx(STEP_S)
    assert found["rankscope_step_duration_seconds_bucket", 'le="0.005"'] == 0
    assert found["rankscope_step_duration_seconds_bucket", 'le="0.02"'] == 2 * STEPS
    assert found["rankscope_step_duration_seconds_bucket", 'le="+Inf"'] == 2 * STEPS
    assert found["rankscope_step_duration_seconds_count", ""] == 2 * STEPS
    assert found["rankscope_step_duration_seconds_sum", ""] == pytest.approx(2 * STEPS * STEP_S)
    # one rank of two waits for the other
    assert found["rankscope_communication_wait_ratio", ""] == pytest.approx(LATE_S / STEP_S / 2)
    assert found["rankscope_communication_transfer_ratio", ""] == pytest.approx((0.002 - LATE_S) / STEP_S)
    assert found["rankscope_straggler_rank", ""] == LATE
    assert found["rankscope_straggler_wait_caused_ratio", ""] == 1
    assert found["rankscope_collectives_total", ""] == 2 * STEPS
    assert found["rankscope_hang", ""] == found["rankscope_restarts_total", ""] == 0
    assert found["rankscope_slowdown_ratio", ""] == 1
    # it ran for 10 s: 1 s until the first step, 1 s of steps, 8 s until the end
    assert found["rankscope_goodput_ratio", ""] == pytest.approx(0.1)
    wall = {labels: value for (name, labels), value in found.items() if name == "rankscope_wall_time_seconds"}
    assert sum(wall.values()) == pytest.approx(10)


def test_series_do_not_grow_with_the_ranks_unless_asked_for(tmp_path: Path) -> None:
    few, many = published(known_run(tmp_path / "two")), published(known_run(tmp_path / "forty", 40))
    assert few.keys() == many.keys()
    asked = published(tmp_path / "forty", "--per-rank")
    added = asked.keys() - many.keys()
    assert {name for name, _ in added} == {
        *("rankscope_rank_running", "rankscope_rank_steps_total", "rankscope_rank_step_mean_seconds"),
        *("rankscope_rank_communication_wait_ratio", "rankscope_rank_communication_transfer_ratio"),
    }
    assert len(added) == 5 * 40
    assert asked["rankscope_rank_steps_total", 'rank="39",host="node0"'] == STEPS


def test_each_step_is_counted_once_however_often_a_run_is_read(tmp_path: Path) -> None:
    job = JobMetrics(known_run(tmp_path / "run", done=30), per_rank=False)
    assert counted(job.look()) == 2 * 30
    assert counted(job.look()) == 2 * 30
    known_run(tmp_path / "longer", done=50)
    for path in (tmp_path / "longer").glob("ranks/*/*"):
        path.replace(tmp_path / "run" / "ranks" / path.parent.name / path.name)
    assert counted(job.look()) == 2 * 50


def counted(now: Snapshot) -> int:
    [found] = [point.value for point in now.points if isinstance(point.value, Histogram)]
    return found.count


def test_trackers_get_the_steps_of_a_finished_run_one_by_one(tmp_path: Path) -> None:
    job = JobMetrics(known_run(tmp_path / "run"), per_rank=False)
    last = job.look()
    history = job.history()
    assert [one.step for one in history] == list(range(1, STEPS + 1))
    assert history[1].at_ns - history[0].at_ns == pytest.approx(STEP_S * 1e9, rel=1e-3)
    named = {"rankscope/step_mean_seconds": STEP_S}
    named |= {f"rankscope/step_part_seconds/{part}": seconds for part, seconds in PARTS_S.items()}
    assert flat(history[40]) == pytest.approx(named)
    assert flat(last)["rankscope/straggler_rank"] == LATE and "rankscope/run_info" not in flat(last)


def test_a_running_job_is_followed(tmp_path: Path) -> None:
    with started(find_mpi("openmpi"), "slow", tmp_path):
        done = command("publish", tmp_path / "run", "--textfile", tmp_path / "live.prom", "--once")
    assert done.code == 0, done.err
    found = samples((tmp_path / "live.prom").read_text())
    assert found["rankscope_ranks", 'state="running"'] == 4
    assert found["rankscope_straggler_rank", ""] == 2
    assert found["rankscope_communication_wait_ratio", ""] > 0.1
    assert found["rankscope_collectives_total", ""] > 8
    assert found["rankscope_memory_peak_bytes", ""] > 1e6


@pytest.mark.slow
def test_steps_of_a_running_job_are_counted_and_a_slow_down_is_told(rankscope: Path, tmp_path: Path) -> None:
    steps, mpi, out = 600, find_mpi("openmpi"), tmp_path / "live.prom"
    program = [mpi.python, Path(__file__).with_name("steps_mpi.py"), str(steps), "300"]
    argv = mpi.command(2, rankscope, "run", "--out", tmp_path / "run", *program)
    seen = [{("", ""): 0.0}]
    with going(argv, mpi.environment) as job:
        assert job.stdout is not None and job.stdout.readline().startswith("going")
        words = [sys.executable, "-m", "rankscope", "publish", tmp_path / "run", "--textfile", out, "--every", "1"]
        with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as publisher:
            while publisher.poll() is None:
                if out.exists() and (found := samples(out.read_text())) != seen[-1]:
                    seen.append(found)
                time.sleep(0.1)
        assert publisher.returncode == 0 and job.wait(60) == 0
    seen = [*seen[1:], samples(out.read_text())]
    done = [one.get(("rankscope_steps_total", ""), 0.0) for one in seen]
    assert done == sorted(done) and len(set(done)) > 5 and done[-1] == steps
    counts = [one.get(("rankscope_step_duration_seconds_count", ""), 0.0) for one in seen]
    assert counts == sorted(counts) and counts[-1] == 2 * steps
    forward_s = [one["rankscope_step_part_seconds", 'part="forward"'] for one in seen]
    assert 0.03 <= min(forward_s) < 0.06 <= max(forward_s)
    slower = [one["rankscope_slowdown_ratio", ""] for one in seen]
    assert slower[0] == 1 and slower[-1] > 1.5


@pytest.mark.slow
def test_a_hang_is_flagged_while_it_lasts(tmp_path: Path) -> None:
    out = tmp_path / "live.prom"
    argv = [sys.executable, "-m", "rankscope", "publish", tmp_path / "run", "--textfile", out, "--every", "1"]
    with started(find_mpi("openmpi"), "sleeps", tmp_path) as job:
        with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as publisher:
            deadline = time.monotonic() + 120
            while not out.exists() or not samples(out.read_text())["rankscope_hang", ""]:
                assert time.monotonic() < deadline and publisher.poll() is None
                time.sleep(0.2)
            end_family(job)
            assert publisher.wait(60) == 0
    found = samples(out.read_text())
    assert found["rankscope_hang", ""] == 0 and found["rankscope_ranks", 'state="failed"'] == 4


# ---------------------------------------------------------------- destinations that cannot be used, or do not answer
@pytest.mark.parametrize(
    ("option", "value", "module", "extra"),
    [
        ("--otlp", "http://127.0.0.1:4318", "opentelemetry.sdk.metrics", "otlp"),
        ("--otlp", "grpc://127.0.0.1:4317", "opentelemetry.sdk.metrics", "otlp"),
        ("--mlflow", "http://127.0.0.1:5000", "mlflow.entities", "mlflow"),
        ("--wandb", "folder", "wandb", "wandb"),
    ],
)
def test_a_missing_library_is_one_line_that_says_how_to_get_it(
    option: str,
    value: str,
    module: str,
    extra: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert publish.run([str(known_run(tmp_path / "run")), option, value]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert f"pip install 'rankscope[{extra}]'" in told.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "name a destination"),
        (["--otlp", "collector:4317"], "give http://HOST:4318 or grpc://HOST:4317"),
        (["--textfile", "/nowhere/run.prom"], "/nowhere/run.prom: no such folder"),
        (["--prometheus", "70000"], "ports go from 0 to 65535"),
        (["--textfile", "x", "--every", "0"], "give --every more than 0"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish.run([str(known_run(tmp_path / "run")), *options]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1


def test_no_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.run([str(tmp_path / "none"), "--textfile", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    known_run(tmp_path / "made")
    Timer(1.0, lambda: (tmp_path / "made").rename(tmp_path / "run")).start()
    assert publish.run([str(tmp_path / "run"), "--textfile", str(tmp_path / "x"), "--wait", "60"]) == 0


class Deaf:
    """A destination that takes nothing until it is told to."""

    name = "deaf"

    def __init__(self) -> None:
        self.asked, self.hears = 0, False

    def send(self, now: Snapshot) -> None:
        self.asked += 1
        if not self.hears:
            raise Undelivered("connection refused")

    def finish(self, last: Snapshot, history: object) -> None:
        self.send(last)


def test_who_does_not_answer_is_told_once_and_asked_ever_more_rarely() -> None:
    clock, said, deaf = [0.0], list[str](), Deaf()
    outlet = Outlet(deaf, said.append, 10.0, clock=lambda: clock[0], sleep=lambda pause_s: None)
    asked_at = []
    while clock[0] < 3600:
        before = deaf.asked
        outlet.send(NOTHING)
        asked_at += [clock[0]] if deaf.asked > before else []
        clock[0] += 10
    assert asked_at[:6] == [0, 10, 30, 70, 150, 310] and asked_at[-1] - asked_at[-2] == 300
    assert said == ["deaf: connection refused; trying again"]
    deaf.asked = 0
    outlet.finish(NOTHING, list)
    assert deaf.asked == 3 and outlet.failures  # which makes the exit code 1
    deaf.hears = True
    outlet.finish(NOTHING, list)
    assert not outlet.failures and said[1:] == [f"deaf: delivered again, after {len(asked_at) + 3} failures"]


NOTHING = Snapshot("run", 0, 1, None, [])


def test_scrapes_are_answered_on_this_machine_alone(tmp_path: Path) -> None:
    with Scrapes(publish.LOCAL, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(server.name, timeout=30)
        last = JobMetrics(known_run(tmp_path / "run"), per_rank=False).look()
        server.send(last)
        with urllib.request.urlopen(server.name, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().decode() == exposition(last)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.name.replace("metrics", "run.json"), timeout=30)
        server.shutdown()


def test_nothing_about_the_command_or_its_folder_goes_out(tmp_path: Path) -> None:
    folder = known_run(tmp_path / "run", command=b"python\0train.py\0--key\0SECRET\0")
    told = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**told, "command": ["mpirun", "SECRET"], "cwd": "/home/SECRET"}))
    last = JobMetrics(folder, per_rank=True).look()
    assert "SECRET" not in repr(last) and str(tmp_path) not in exposition(last)


# ---------------------------------------------------------------- what is promised elsewhere
def names() -> set[str]:
    """All that Prometheus may see."""
    found = {one.prometheus_name for one in METRICS}
    histograms = [one.prometheus_name for one in METRICS if one.kind is Kind.HISTOGRAM]
    return found | {f"{name}_{end}" for name in histograms for end in ("bucket", "sum", "count")}


@pytest.mark.parametrize("file", ["rankscope.json", "alerts.yml"])
def test_dashboard_and_alerts_ask_for_what_is_published(file: str) -> None:
    asked = set(re.findall(r"\brankscope_\w+", (ROOT / "examples" / "grafana" / file).read_text()))
    assert asked and asked <= names()


def test_every_metric_of_a_job_is_on_the_dashboard() -> None:
    board = (ROOT / "examples" / "grafana" / "rankscope.json").read_text()
    missing = {one.prometheus_name for one in METRICS if "rank" not in one.attributes} - set(
        re.findall(r"\brankscope_\w+?(?=_bucket\b|\b)", board)
    )
    # shown as quantiles of the histogram; what ran is in the list of runs
    assert missing == {"rankscope_step_p50_seconds", "rankscope_step_p99_seconds", "rankscope_run_info"}


def test_the_documentation_lists_what_is_published() -> None:
    page = (ROOT / "docs" / "commands" / "publish.md").read_text()
    for one in METRICS:
        assert row(one) in page.splitlines(), row(one)


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{name}`" for name in metric.attributes)
    names = f"`{metric.name}` | `{metric.prometheus_name}`"
    return f"| {names} | {metric.kind.value} | {metric.unit} | {labels or '–'} | {metric.about} |"
