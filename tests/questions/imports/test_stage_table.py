"""The table's numbers, worked out by hand."""

from __future__ import annotations

import pytest

from rankscope.questions.imports.staging import BothWays, StagingNotes, notes, staging

S = 10**9


def rank(import_s: float, waited_s: float = 0.0, exit_code: int = 0) -> dict[str, object]:
    return {"import_ns": int(import_s * S), "waited_ns": int(waited_s * S), "exit_code": exit_code}


def node(transfer_s: float, unpack_s: float, **more: object) -> dict[str, object]:
    times = {"transfer_ns": int(transfer_s * S), "unpack_ns": int(unpack_s * S), "ready_ns": 0, "waited_ns": 0}
    return {**times, "staged": True, "ended": True, "reason": "", "original_files": 0, "source": "shared", **more}


def two_nodes() -> BothWays:
    """Two rounds in place (last ranks 10 and 14 s), one staged round on two nodes."""
    return BothWays(
        in_place=[StagingNotes([rank(8), rank(10)]), StagingNotes([rank(14), rank(3)])],
        staged=[StagingNotes([rank(2, 5), rank(3, 4.5)], [node(4, 0.5, node="a"), node(3, 1, node="b", source="1,a")])],
    )


def test_one_scale() -> None:
    table, spread, nodes = staging([two_nodes()])
    (row,) = [dict(zip([column.name for column in table.columns], cells, strict=True)) for cells in table.rows]
    assert row == {
        "nodes": 2,
        "ranks": 2,
        "in_place_ns": 12 * S,  # median of 10 and 14
        "transfer_ns": 4 * S,
        "unpack_ns": 1 * S,
        "import_ns": 3 * S,
        "total_ns": 7.5 * S,
        "times_faster": 1.6,
        "starts": 1,  # (7.5 - 3) / (12 - 3)
    }
    assert table.warnings == []
    assert spread.rows[0] == ("transfer", "nodes", 3 * S, 3.5 * S, 4 * S)
    assert [cells[:2] for cells in nodes.rows] == [("a", "shared file"), ("b", "a peer")]


def test_starts_that_never_pay() -> None:
    compared = BothWays([StagingNotes([rank(2)])], [StagingNotes([rank(3, 4)], [node(1, 1)])])
    assert staging([compared])[0].rows[0][-1] is None


def test_doubts_are_told() -> None:
    compared = two_nodes()
    compared.staged[0].nodes[0] = node(4, 0.5, staged=False, reason="no space", ended=False)
    compared.staged[0].nodes[1] = node(4, 0.5, alone_because="refused", original_files=None, original_names=["x"])
    compared.in_place[0].ranks[0] = rank(8, exit_code=1)
    table, _, nodes = staging([compared])
    assert table.warnings == [
        "1 of 2 nodes ran in place: no space",
        "1 of 2 nodes did not find the others: refused",
        "1 nodes had not reported what came from the original place",
        "commands ended with exit codes 1: times may mean little",
    ]
    assert nodes.notes[0] == "Taken from the original place: x" and "does not count it" in nodes.notes[1]


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([(1, 5, 10), (4, 20, 10)], "in place is faster up to about 2 nodes, staging from there on"),
        ([(1, 20, 10), (3, 10, 20)], "staging is faster up to about 2 nodes, in place from there on"),
        ([(1, 5, 10), (4, 9, 10)], "never in range: in place is faster at every size from 1 to 4 nodes"),
        ([(8, 11, 10)], "never in range: staging is faster at 8 nodes, the only size measured"),
        ([(1, 5, 10), (2, 15, 10), (4, 5, 10)], "they meet at 1.5, 3 nodes; after the last one in place is faster"),
        ([(1, 5, 10), (2, 10.1, 10), (4, 15, 10)], "in place is faster up to about 2 nodes, staging from there on"),
    ],
)
def test_break_even(points: list[tuple[int, float, float]], said: str) -> None:
    rows = [(nodes, 0, in_place, 0, 0, 0, staged) for nodes, in_place, staged in points]
    assert notes(rows) == [f"Break-even: {said}"]
