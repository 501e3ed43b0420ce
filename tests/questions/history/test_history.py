"""Series, changes of several figures at one place, and slow hosts, of runs that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rankscope.api.history import _columns
from rankscope.model.summaries import RunSummary
from rankscope.questions.history.history import Answer, ask, at_least, short_command
from rankscope.questions.history.page import verdict
from rankscope.questions.history.tables import by_table, history_table, regressions_table, screen_tables
from rankscope.store.history import table_of

HOUR = 3600 * 10**9


def asked(summaries: Sequence[RunSummary], **more: Any) -> Answer:
    return ask(_columns(table_of(summaries)), **more)


def run(at: int, step: float, host: str = "n0", **more: Any) -> RunSummary:
    standard: dict[str, Any] = {
        "project": "/p",
        "command": "torchrun train.py",
        "ranks": 8,
        "elapsed_ns": 1e12,
        "hosts": [host],
        "host_own_ns": [step],
    }
    return RunSummary(f"r{at:03}", at * HOUR, **{**standard, "step_ns": step, **more})


def noisy(seed: int, count: int, level: float = 100e6, noise: float = 0.01) -> list[float]:
    made: list[float] = (level * np.random.default_rng(seed).lognormal(0, noise, count)).tolist()
    return made


def rows(answer: Answer) -> list[dict[str, Any]]:
    table = regressions_table(answer)
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def test_runs_of_another_command_or_size_are_another_series() -> None:
    made = [run(at, step) for at, step in enumerate(noisy(1, 10))]
    made += [run(20 + at, step, command="torchrun other.py") for at, step in enumerate(noisy(2, 10, 300e6))]
    made += [run(40 + at, step, ranks=16) for at, step in enumerate(noisy(3, 10, 50e6))]
    answer = asked(made)
    assert sorted(one.name for one in answer.series) == ["other.py, 8 ranks", "train.py, 16 ranks", "train.py, 8 ranks"]
    assert answer.events == [] and all(row[-1] == "steady" for row in history_table(answer).rows)
    assert len(asked(made, by=("project",)).series) == 1


def test_a_regression_says_since_when_with_which_commit_and_what_else() -> None:
    made = [run(at, step, commit="a" * 40, exposed_ns=0.2 * step) for at, step in enumerate(noisy(4, 20))]
    slower = noisy(5, 12, 120e6)
    made += [
        run(20 + at, step, commit="b" * 40, exposed_ns=0.33 * step, libraries="torch 3")
        for at, step in enumerate(slower)
    ]
    (row,) = rows(asked(made))
    assert (row["what"], row["verdict"], row["run"], row["goes_on"]) == ("step", "worse", "r020", "yes")
    assert row["commit"] == "aaaaaaaaaa → bbbbbbbbbb" and row["chance"] < 1e-5
    assert "exposed communication +" in row["also"] and "libraries unknown → torch 3" in row["also"]
    assert row["low"] < 0.2 < row["high"] and (row["runs_before"], row["runs_since"]) == (20, 12)


def test_a_clearer_figure_tells_since_when_a_noisy_step_is_longer() -> None:
    """Communication doubles from run 60 on; where the step changed, its noise leaves several runs open."""
    random = np.random.default_rng(33)
    exposed = np.where(np.arange(120) < 60, 10e6, 16e6) * random.lognormal(0, 0.03, 120)
    steps = (90e6 + exposed) * random.lognormal(0, 0.03, 120)
    answer = asked([run(at, steps[at], exposed_ns=exposed[at], host_own_ns=[90e6]) for at in range(120)])
    assert [change.at for change in answer.series[0].changes["step_ns"]] == [56]
    (row,) = rows(answer)
    assert (row["what"], row["run"], row["runs_before"]) == ("step", "r060", 60)
    assert "exposed communication +" in row["also"]


@pytest.mark.parametrize("seed", [11, 24, 25])
def test_steps_inside_a_gradual_change_of_another_figure_are_no_regressions_of_their_own(seed: int) -> None:
    random = np.random.default_rng(seed)
    own = 100e6 * np.linspace(1, 1.1, 90) * random.lognormal(0, 0.01, 90)
    steps = own * 1.1 * random.lognormal(0, 0.025, 90)
    answer = asked([run(at, steps[at], host_own_ns=[own[at]]) for at in range(90)])
    kinds = {name: {change.gradual for change in changes} for name, changes in answer.series[0].changes.items()}
    assert (kinds["step_ns"], kinds["own_ns"]) == ({False}, {True})
    (row,) = rows(answer)
    assert (row["what"], row["kind"], row["verdict"]) == ("compute", "gradual", "worse") and "step +" in row["also"]


def test_less_goodput_is_worse_and_a_shorter_step_is_better() -> None:
    made = [run(at, step, goodput=0.9) for at, step in enumerate(noisy(6, 20))]
    made += [run(20 + at, step, goodput=0.9 - 0.001 * at) for at, step in enumerate(noisy(7, 20, 80e6))]
    made += [run(40 + at, step, goodput=0.6 - 0.001 * at) for at, step in enumerate(noisy(8, 20, 80e6))]
    found = {(row["what"], row["verdict"]) for row in rows(asked(made))}
    assert found == {("goodput", "worse"), ("step", "better")}


def test_what_is_not_known_is_unknown() -> None:
    answer = asked([run(at, step, project="", command="") for at, step in enumerate(noisy(9, 10))])
    assert answer.series[0].name == "unknown, 8 ranks"
    (row,) = by_table(answer, "commit").rows
    assert row[0] == "unknown" and row[6:] == (None, None, None)  # exposed, start-up, goodput


def test_runs_without_steps_and_few_runs_say_so() -> None:
    answer = asked([run(at, 1.0, step_ns=None, hosts=[], host_own_ns=[]) for at in range(3)])
    assert history_table(answer).rows[0][-1] == "too few runs (0 of 8)"
    assert regressions_table(answer).notes == [
        "Nothing can be said yet: no series has 8 runs, 4 on each side of a change."
    ]
    assert verdict(answer) == "No ongoing regression."


def test_a_host_that_is_slow_again_and_again_is_named_and_is_no_regression() -> None:
    """Jobs on one host each: n3 is 20 % slower, and at the end all of them happen to run there."""
    random = np.random.default_rng(10)
    hosts = [*random.choice(["n0", "n1", "n2", "n3"], 60).tolist(), *["n3"] * 12]
    made = [
        run(at, step * (1.2 if host == "n3" else 1.0), host)
        for at, (step, host) in enumerate(zip(noisy(11, 72), hosts, strict=True))
    ]
    answer = asked(made)
    assert [one.host for one in answer.slow_hosts] == ["n3"]
    assert 0.15 < answer.slow_hosts[0].slower < 0.25
    assert rows(answer) == []
    assert verdict(answer).endswith("Repeatedly slow: n3.")


def test_a_slow_host_of_jobs_on_several_hosts_is_told_by_its_own_time() -> None:
    made = []
    for at in range(12):
        hosts = [f"n{(at + one) % 6}" for one in range(3)]
        own = [110e6 if host == "n4" else 100e6 for host in hosts]
        made.append(run(at, 100e6, hosts=hosts, host_own_ns=own))
    assert [(one.host, one.runs, one.slow_runs) for one in asked(made).slow_hosts] == []  # 6 of 6 of 6 hosts: p = 0.09
    for at in range(12, 36):
        hosts = [f"n{(at + one) % 6}" for one in range(3)]
        own = [110e6 if host == "n4" else 100e6 for host in hosts]
        made.append(run(at, 100e6, hosts=hosts, host_own_ns=own))
    assert [(one.host, one.runs, one.slow_runs) for one in asked(made).slow_hosts] == [("n4", 18, 18)]


def test_a_move_to_other_hosts_is_told_with_the_regression() -> None:
    made = [run(at, step, "old") for at, step in enumerate(noisy(12, 20))]
    made += [run(20 + at, step, "new") for at, step in enumerate(noisy(13, 15, 130e6))]
    (row,) = rows(asked(made))
    assert "hosts old → new" in row["also"]


def test_the_chance_of_slow_runs_is_the_binomial() -> None:
    assert at_least(10, 10) == 1 / 1024 and at_least(10, 0) == 1.0
    assert abs(at_least(1001, 520) - at_least(1000, 520)) < 0.01  # the normal law goes on where the exact one ends


def test_one_screen_has_at_most_so_many_lines() -> None:
    made = []
    for one in range(30):
        made += [run(one * 100 + at, step, command=f"a{one}.py") for at, step in enumerate(noisy(one, 20))]
        made += [run(one * 100 + 20 + at, s, command=f"a{one}.py") for at, s in enumerate(noisy(one + 99, 20, 150e6))]
    tables = screen_tables(asked(made), "runs")
    assert sum(len(table.rows) + len(table.notes) + 4 for table in tables) <= 40
    assert tables[0].title.endswith("30 regressions (30 ongoing)")


def test_commands_are_called_by_their_script() -> None:
    assert short_command("mpirun -n 4 python /a/b/train.py --lr 1") == "train.py --lr 1"
    assert short_command("./solver input") == "solver input" and short_command("") == "unknown"
