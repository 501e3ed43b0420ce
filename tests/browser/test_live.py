"""Pages of a server: the list and the page of a running job follow it, and the reader stays where he is."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankscope.api.pages as pages
from browser.chromium import Chromium
from browser.pages import FILLED, UNFOLDED
from rankscope.api.pages import PageServer
from rankscope.rank_file import Part, State
from runs.small_run import SECOND, mpi_rank, write_run
from runs.step_runs import steps

ENDED = "document.getElementById('live')?.textContent.startsWith('Ended')"
# whether it is scrolled and where a part is on the screen, what is open, filtered, chosen, left out, zoomed and focused
HERE = """JSON.stringify([scrollY > 300, Math.round(document.querySelector('#timeline h2').getBoundingClientRect().top),
    document.querySelector('#table-routines').open, document.querySelector('#table-routines input').value,
    document.querySelectorAll('#table-routines tbody tr').length,
    document.querySelector('#step_times .controls .count').textContent,
    document.querySelector('#steps .legend button').ariaPressed,
    document.querySelector('#timeline canvas').dataset.view, document.activeElement.type,
    document.documentElement.dataset.mark])"""
STEPS = "document.querySelector('#table-step_times .rows .count').textContent"


def write(folder: Path, count: int, **header: object) -> Path:
    made = []
    for rank in range(2):
        writer = mpi_rank(rank, 2, **header)
        lengths = [{Part.FORWARD: 20.0 + rank, Part.BACKWARD: 30.0, Part.OPTIMIZER: 5.0}] * count
        writer.steps(steps(lengths))
        for at in range(10):
            writer.tally(f"MPI_Routine{at}", 10, SECOND // 10, bytes=80, size_class=4)
        made.append(writer)
    return write_run(folder, *made, expected_ranks=2, command=["python", "train.py"])


def running() -> dict[str, object]:
    """The header of a rank that runs: it is this very process."""
    with open("/proc/self/stat") as file:
        jiffies = int(file.read().rpartition(")")[2].split()[19])
    here = socket.gethostname().encode()
    return {"state": State.RUNNING, "host": here, "pid": os.getpid(), "start_jiffies": jiffies, "ended_ticks": 0}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    monkeypatch.setattr(pages, "LEAST_REFRESH_S", 1)
    monkeypatch.setattr(pages, "REFRESH_TIMES", 0)
    monkeypatch.setattr(pages, "LIST_REFRESH_S", 1)
    made = PageServer(tmp_path)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def evaluate(code: str) -> dict[str, Any]:
    return {"do": "evaluate", "code": code}


def test_a_running_page_takes_over_newer_steps_and_the_reader_stays(
    chromium: Chromium, server: PageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "live", 40, **running())
    usual = server.site.answer

    def answer(path: str) -> pages.Answer:
        """When the reader has done all that he does, the job goes on, and ends."""
        if path == "/go-on":
            shutil.rmtree(run)
            write(run, 80)
        return usual(path)

    monkeypatch.setattr(server.site, "answer", answer)
    told = chromium.ask(
        server.address,
        {"do": "visit", "path": "/run/live"},
        evaluate("document.documentElement.style.scrollBehavior = 'auto'"),  # not on its way yet when it is looked at
        FILLED,
        UNFOLDED,
        {"do": "drag", "selector": "#step_times .u-over", "from": 0.2, "to": 0.6},
        {"do": "click", "selector": "#steps .legend button"},
        {"do": "click", "selector": "#timeline canvas"},
        {"do": "wheel", "selector": "#timeline canvas", "turn": -200},
        {"do": "type", "selector": "#table-routines input", "text": "Routine3"},
        evaluate("document.documentElement.dataset.mark = 'not loaded again'"),
        evaluate("document.querySelector('#timeline').scrollIntoView({ behavior: 'instant' })"),
        evaluate("scrollBy({ top: 40, behavior: 'instant' })"),
        evaluate(STEPS),
        evaluate(HERE),
        evaluate("fetch('/go-on').then(() => true)"),
        {"do": "wait", "code": ENDED},
        FILLED,
        evaluate(HERE),
        evaluate(STEPS),
        quiet=False,
    )
    assert told.errors == []
    *_, steps_before, before, _, _, _, after, steps_after = told.answers
    assert json.loads(before)[2:5] == [True, "Routine3", 1] and json.loads(before)[6] == "false"
    assert after == before
    assert (steps_before, steps_after) == ("38 rows", "78 rows")  # without two of warm-up


def test_the_list_follows_its_runs(chromium: Chromium, server: PageServer, tmp_path: Path) -> None:
    """What is read of a run comes in by itself: the step, its curve, what it began with."""
    write(tmp_path / "live", 40, **running())
    write(tmp_path / "done", 30)
    entry = "document.querySelector('#run-{}')"
    filled = " && ".join(f"{entry.format(name)}?.querySelector('svg')" for name in ("live", "done"))
    told = chromium.ask(
        server.address,
        {"do": "wait", "code": f"{filled} && true"},
        evaluate(f"{entry.format('done')}.innerText"),
        evaluate(f"{entry.format('live')}.innerText"),
        evaluate(
            "[document.documentElement.scrollWidth <= innerWidth, document.querySelector('nav').checkVisibility()]"
        ),
        quiet=False,
        width=390,
    )
    assert told.errors == []
    _, done, live, (fits, navigation) = told.answers
    assert "ENDED" in done and "train.py" in done and "55.5 ms per step" in done and "2 ranks" in done
    assert "RUNNING" in live and fits and not navigation
