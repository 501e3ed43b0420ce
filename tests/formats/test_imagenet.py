"""The imagenet example's log, in the old and the new form of its lines."""

from __future__ import annotations

import pytest

from formats.foreign_files import reading, warnings

NEW = """\
=> creating model 'resnet18'
Epoch: [0][  1/100]\tTime  4.000 ( 4.000)\tData  1.000 ( 1.000)\tLoss 7.0e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)
Epoch: [0][ 11/100]\tTime  0.100 ( 0.460)\tData  0.001 ( 0.100)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)
Epoch: [0][ 21/100]\tTime  0.110 ( 0.300)\tData  0.001 ( 0.060)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)
Test: [ 1/10]\tTime  0.500 ( 0.500)\tLoss 6.9e+00 (6.9e+00)\tAcc@1   1.00 (  1.00)
 *   Acc@1 1.000 Acc@5 5.000
Epoch: [1][  1/100]\tTime  2.000 ( 2.000)\tData  0.500 ( 0.500)\tLoss 6.5e+00 (6.5e+00)\tAcc@1   0.00 (  0.00)
"""
OLD = """\
Epoch: [0][0/3]\tTime 2.000 (2.000)\tData 1.000 (1.000)\tLoss 7.0 (7.0)\tPrec@1 0.000 (0.000)
Epoch: [0][1/3]\tTime 1.000 (1.500)\tData 0.000 (0.500)\tLoss 7.0 (7.0)\tPrec@1 0.000 (0.000)
Epoch: [0][2/3]\tTime 0.300 (1.100)\tData 0.000 (0.333)\tLoss 7.0 (7.0)\tPrec@1 0.000 (0.000)
"""


def test_new_lines() -> None:
    found = reading("imagenet", NEW)
    values = {(f.series, f.name, f.scale, f.statistic): f.value for f in found.figures}
    assert values["epoch 0", "iteration", 11, ""] == 100_000_000
    assert values["epoch 0", "iteration", 11, "mean"] == 460_000_000
    assert values["epoch 0", "data wait", 21, "mean"] == 60_000_000
    assert values["test after epoch 0", "iteration", 1, ""] == 500_000_000
    assert len(found.figures) == 2 * (2 * 4 + 1)
    totals = {(t.group, t.name): (t.calls, t.total_ns) for t in found.tallies}
    assert totals["epoch 0", "iteration"] == (21, pytest.approx(21 * 300_000_000))
    waits = {(t.group, t.name, t.within): (t.calls, t.total_ns) for t in found.range_tallies}
    assert waits["epoch 1", "data wait", "iteration"] == (1, 500_000_000)
    assert warnings(found) == []


def test_old_lines_count_from_zero() -> None:
    found = reading("imagenet", OLD)
    totals = {t.name: (t.calls, t.total_ns) for t in found.tallies}
    assert totals["iteration"] == (3, pytest.approx(3.3e9))
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("text", "before", "after", "said"),
    [
        (OLD, "1.000 (1.500)", "1.000 (1.200)", "file.txt:2: Time: a mean of 1.200 after 2 iterations"),
        (OLD, "0.300 (1.100)", "0.300 (2.100)", "file.txt:3: Time: a mean of 2.100"),
        (NEW, "0.110 ( 0.300)", "0.110 ( 0.100)", "file.txt:4: Time: a mean of 0.100 after 21 iterations"),
    ],
)
def test_means_that_do_not_fit(text: str, before: str, after: str, said: str) -> None:
    assert before in text
    found = warnings(reading("imagenet", text.replace(before, after)))
    assert any(one.startswith(said) for one in found), found


def test_lines_of_several_processes_are_not_summed() -> None:
    found = reading("imagenet", "\n".join(line for line in OLD.splitlines() for _ in range(2)))
    assert warnings(found) == []
    assert found.tallies == []
    assert len(found.figures) == 24
    assert "several processes" in found.notes[0].text
