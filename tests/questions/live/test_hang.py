"""Verdicts over made-up moments: who is guilty of what, and when it is too early to say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rankscope.model.records import Calling, Ending, Entered, Group, Moment, RankFacts
from rankscope.questions.live.hang import Verdict, verdict
from rankscope.questions.live.hang_report import places_table, sentence
from rankscope.questions.live.standing import Standing, paces, standing
from rankscope.questions.live.top import job_table, ranks_table

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
PATIENCE = 10 * SECOND

Op = tuple[str, float, float | None]  # name, start, end in seconds; None: under way


def rank(
    number: int,
    ops: Sequence[Op],
    at_s: float,
    *,
    group: str = "w",
    label: str = "WORLD",
    size: int = 4,
    ending: Ending = "running",
    **fields: object,
) -> Moment:
    """A rank that has entered these operations on one group, read at that second."""
    entered = [
        Entered(group, place, name, _ns(start), None if end is None else _ns(end), bytes=8)
        for place, (name, start, end) in enumerate(ops, 1)
    ]
    facts = RankFacts(host="a", pid=100 + number, rank=number, world_size=4, ending=ending, phase="steady")
    facts.ended_ns = _ns(max([0.0, *(op[1] for op in ops), *(op[2] for op in ops if op[2] is not None)]))
    made = Moment(facts, _ns(at_s), [Group(label, group, size=size, collectives=len(ops))], entered, calls=len(ops))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _ns(seconds: float) -> int:
    return START + int(seconds * SECOND)


def looked(ranks: Sequence[Sequence[Op]], at_s: float, nonblocking: bool = False, **endings: Ending) -> Standing:
    made = [rank(number, ops, at_s, ending=endings.get(f"r{number}", "running")) for number, ops in enumerate(ranks)]
    for one in made:
        for entered in one.entered:
            entered.nonblocking = nonblocking
    return standing(made)


def judged(ranks: Sequence[Sequence[Op]], at_s: float = 30.0, **endings: Ending) -> Verdict:
    return verdict(looked(ranks, at_s - 1, **endings), looked(ranks, at_s, **endings), PATIENCE)


DONE: Op = ("allreduce", 1.0, 1.1)
HELD: Op = ("allreduce", 2.0, None)


def named(found: Verdict) -> tuple[str, int | None, str, tuple[int, ...], tuple[int, ...]]:
    return found.kind, found.sequence, found.operation, found.guilty, found.waiting


def test_a_rank_outside_has_not_arrived() -> None:
    found = judged([[DONE, HELD]] * 3 + [[DONE]])
    assert named(found) == ("not_arrived", 2, "allreduce", (3,), (0, 1, 2))
    assert found.waited_ns == 28 * SECOND


@pytest.mark.parametrize(("at_s", "kind"), [(5.0, "no_hang"), (11.9, "no_hang"), (12.1, "not_arrived")])
def test_patience(at_s: float, kind: str) -> None:
    assert judged([[DONE, HELD]] * 3 + [[DONE]], at_s).kind == kind


def test_a_job_used_to_long_waits_is_given_longer() -> None:
    slow: Op = ("allreduce", 0.0, 20.0)
    held: Op = ("allreduce", 21.0, None)
    ranks = [[slow, held]] * 3 + [[slow]]
    assert judged(ranks, 80.0).kind == "no_hang"
    assert judged(ranks, 82.0).kind == "not_arrived"


def test_a_rank_that_does_something_else_is_slow_not_stuck() -> None:
    before, now = looked([[DONE, HELD]] * 3 + [[DONE]], 30), looked([[DONE, HELD]] * 3 + [[DONE]], 31)
    now.ranks[3].calls += 1
    assert verdict(before, now, PATIENCE).kind == "no_hang"


def test_a_collective_that_was_left_meanwhile_is_no_hang() -> None:
    before = looked([[DONE, HELD]] * 3 + [[DONE]], 30)
    now = looked([[DONE, ("allreduce", 2.0, 30.5), ("allreduce", 30.6, None)]] * 4, 31)
    assert verdict(before, now, PATIENCE).kind == "no_hang"


@pytest.mark.parametrize("ending", ["signalled", "vanished", "aborted"])
def test_a_dead_rank_needs_no_patience(ending: Ending) -> None:
    found = judged([[DONE, HELD], [DONE], [DONE, HELD], [DONE, HELD]], 3.0, r1=ending)
    assert named(found) == ("dead", 2, "allreduce", (1,), (0, 2, 3))


def test_a_rank_that_died_inside() -> None:
    assert named(judged([[DONE, HELD]] * 4, 3.0, r1="vanished"))[3] == (1,)


def test_a_rank_that_died_after_it_is_not_blamed_for_it() -> None:
    left: Op = ("allreduce", 2.0, 2.1)
    assert judged([[DONE, HELD], [DONE, left], [DONE, HELD], [DONE, HELD]], 3.0, r1="vanished").kind == "no_hang"


def test_different_operations_under_one_number() -> None:
    other: Op = ("broadcast", 2.0, None)
    found = judged([[DONE, HELD], [DONE, HELD], [DONE, other], [DONE, HELD]], 3.0)
    assert named(found) == ("skipped_or_order", 2, "allreduce", (2,), (0, 1, 3))
    assert found.instead == {2: "broadcast"}


def test_what_came_after_tells_skipping_from_another_order() -> None:
    a, b, c = (("reduce_a", 2.0, None), ("reduce_b", 2.1, None), ("reduce_c", 2.2, None))
    for own, kind in (([b, c], "skipped"), ([b, a, c], "order"), ([b], "skipped_or_order"), ([b, a], "order")):
        before, now = (looked([[a, b, c], [a, b, c], own, [a, b, c]], at, nonblocking=True) for at in (2.5, 3.0))
        found = verdict(before, now, PATIENCE)
        assert (found.kind, found.guilty, found.sequence) == (kind, (2,), 1)


def test_no_side_is_larger() -> None:
    other: Op = ("broadcast", 2.0, None)
    found = judged([[HELD], [HELD], [other], [other]], 3.0)
    assert (found.kind, found.guilty) == ("skipped_or_order", (0, 1, 2, 3))


def test_a_rank_that_ended_well_without_it_skipped_it() -> None:
    before, now = (looked([[DONE, HELD]] * 3 + [[DONE]], at, r3="exited") for at in (2.5, 3.5))
    now.ranks[3].facts.exit_code = 0
    assert named(verdict(before, now, PATIENCE)) == ("skipped", 2, "allreduce", (3,), (0, 1, 2))


def test_a_rank_without_a_file() -> None:
    assert named(judged([[HELD]] * 3)) == ("not_started", 1, "allreduce", (3,), (0, 1, 2))


def test_all_have_entered_and_none_leaves() -> None:
    assert named(judged([[HELD]] * 4)) == ("stalled", 1, "allreduce", (), (0, 1, 2, 3))
    assert judged([[HELD]] * 4, 6.0).kind == "no_hang"


def test_nonblocking_ones_that_all_have_begun_may_be_done() -> None:
    before, now = (looked([[HELD]] * 4, at, nonblocking=True) for at in (59, 60))
    assert verdict(before, now, PATIENCE).kind == "inconclusive"
    now.ranks[2].calls += 1
    assert verdict(before, now, PATIENCE).kind == "no_hang"


def test_a_nonblocking_one_that_somebody_has_not_begun() -> None:
    before, now = (looked([[DONE, HELD]] * 3 + [[DONE]], at, nonblocking=True) for at in (29, 30))
    assert named(verdict(before, now, PATIENCE)) == ("not_arrived", 2, "allreduce", (3,), (0, 1, 2))
    for waiting in (0, 1, 2):
        now.ranks[waiting].calls += 1
    assert verdict(before, now, PATIENCE).kind == "no_hang"


def two_groups(at_s: float) -> Standing:
    """Ranks 0 and 1 wait in one group for rank 2, which waits in another for rank 3, which computes."""
    held: list[Op] = [("allreduce", 2.0, None)]
    made = [rank(0, held, at_s, group="x", label="X", size=3), rank(1, held, at_s, group="x", label="X", size=3)]
    made += [rank(2, held, at_s, group="y", label="Y", size=2), rank(3, [], at_s, group="y", label="Y", size=2)]
    made[2].groups.append(Group("X", "x", size=3, collectives=0))
    return standing(made)


def test_who_waits_himself_is_not_guilty() -> None:
    found = verdict(two_groups(29), two_groups(30), PATIENCE)
    assert (found.kind, found.group, found.guilty, found.waiting) == ("not_arrived", "y", (3,), (2,))


def test_a_circle_over_two_groups() -> None:
    def at(second: float) -> Standing:
        held: list[Op] = [("allreduce", 2.0, None)]
        made = [rank(number, held, second, group="x", label="X") for number in (0, 1, 3)]
        made.append(rank(2, held, second, group="y", label="Y"))
        for one in made[:3]:
            one.groups.append(Group("Y", "y", size=4, collectives=0))
        made[3].groups.append(Group("X", "x", size=4, collectives=0))
        return standing(made)

    found = verdict(at(2.5), at(3), PATIENCE)
    assert (found.kind, found.group, found.guilty, found.waiting) == ("skipped_or_order", "x", (2,), (0, 1, 3))
    assert found.instead == {2: "allreduce #1 of Y"}


def test_nobody_in_a_collective() -> None:
    assert judged([[DONE]] * 4, 3.0).kind == "no_hang"
    found = judged([[DONE]] * 4, 60.0)
    assert found.kind == "inconclusive"
    assert "no rank has made a call for 58.9 s" in sentence(found, looked([[DONE]] * 4, 60.0))


def test_all_ended() -> None:
    assert judged([[DONE]] * 4, r0="vanished", r1="vanished", r2="vanished", r3="vanished").kind == "ended"


def test_who_died_first_when_all_are_gone() -> None:
    """Gloo ends every rank when one is gone."""
    failed: Op = ("all_reduce", 2.0, 2.5)
    ranks: list[list[Op]] = [[DONE, failed], [DONE], [DONE, failed], [DONE, failed]]
    endings: dict[str, Ending] = {"r0": "exited", "r1": "vanished", "r2": "exited", "r3": "exited"}
    found = judged(ranks, **endings)
    assert named(found) == ("died", 2, "all_reduce", (1,), (0, 2, 3))
    assert "rank 1 died (vanished: killed) before all_reduce #2 of WORLD, which ranks 0, 2-3 had entered" in sentence(
        found, looked(ranks, 30, **endings)
    )


def test_all_ended_alike_is_nobodys_fault() -> None:
    endings: dict[str, Ending] = {f"r{number}": "signalled" for number in range(4)}
    assert judged([[DONE, HELD], [DONE], [DONE, HELD], [DONE, HELD]], **endings).kind == "ended"


def test_sizes_must_agree_where_they_have_to() -> None:
    made = [looked([[HELD]] * 4, at) for at in (2.5, 3.0)]
    for one in made:
        one.records[2]["w", 1].bytes = 4096
    found = verdict(*made, PATIENCE)
    assert (found.guilty, found.instead) == ((2,), {2: "allreduce (4096 bytes)"})
    for one in made:
        for records in one.records.values():
            records["w", 1].name = "gather"
    assert verdict(*made, PATIENCE).kind == "no_hang"


def test_the_two_sides_of_an_intercommunicator_are_no_disagreement() -> None:
    made = [looked([[HELD]] * 4, at) for at in (2.5, 3.0)]
    for one in made:
        one.records[0]["w", 1].root, one.records[0]["w", 1].bytes = -4, 80
        for other in (1, 2, 3):
            one.records[other]["w", 1].root = 0
    assert verdict(*made, PATIENCE).kind == "no_hang"


def test_every_kind_has_its_sentence_and_places() -> None:
    now = looked([[DONE, HELD]] * 3 + [[DONE]], 30)
    found = judged([[DONE, HELD]] * 3 + [[DONE]])
    assert sentence(found, now) == (
        "Hang: ranks 0-2 waiting in allreduce #2 of WORLD for 28.0 s: rank 3 has not entered it: "
        "outside collectives; it last left allreduce #1 of WORLD"
    )
    rows = places_table(now, now, {3: "train.py:7 load"}, collapse=True).rows
    assert [row[0] for row in rows] == ["0-2", "3"]
    assert rows[1][-1] == "train.py:7 load"


def test_pace() -> None:
    """In one second: rank 3 comes 0.8 s late to one collective of 0.9 s."""

    def at(second: float) -> Standing:
        ended = second > 2
        made = []
        for number in range(4):
            start = 1.8 if number == 3 else 1.0
            ops: list[Op] = [("allreduce", start, 1.9)] if ended else []
            spent = (1.9 - start) * SECOND if ended else 0.0
            made.append(rank(number, ops, second, communication_ns=spent, steps=7 if ended else 5))
        return standing(made)

    before, now = at(1.0), at(2.0 + 1e-9)
    found = paces(before, now)
    assert found[0].communicating == pytest.approx(0.9)
    assert found[0].waiting == pytest.approx(0.8)
    assert found[0].transferring == pytest.approx(0.1)
    assert found[3].waiting == pytest.approx(0.0)
    assert found[3].waited_for == pytest.approx(1.0)
    assert found[3].steps_per_s == pytest.approx(2.0)
    job = job_table("job", now, verdict(before, now, PATIENCE), found)
    assert "3 (waits 0 % of the time, the others 80 %" in str(job.rows[0][10])
    table = ranks_table(now, verdict(before, now, PATIENCE), found, most_rows=2)
    assert [row[0] for row in table.rows] == [3, 0]
    assert table.notes == ["2 more ranks"]


def test_pace_of_a_process_group() -> None:
    """Its collectives run beside the program: under way half of the second, and no step tells more."""
    before = rank(0, [], 1.0, label="default_pg")
    now = rank(0, [("all_reduce", 0.5, 1.25), ("all_reduce", 1.2, 1.4), ("all_reduce", 1.9, None)], 2.0)
    for one in (before, now):
        one.groups[0].kind = "process_group"
    assert paces(standing([before]), standing([now]))[0].communicating == pytest.approx(0.5)
    before.steps, now.steps, now.step_shares = 3, 4, {"blocked": 0.3}
    assert paces(standing([before]), standing([now]))[0].communicating == pytest.approx(0.3)


def receiving(
    number: int, since_s: float, peer: int | None, at_s: float, name: str = "MPI_Recv_c", **more: object
) -> Moment:
    """A rank that has been in a receive since then, on the world."""
    call = Calling(name, _ns(since_s), "w", peer)
    return rank(number, [DONE], at_s, label="MPI_COMM_WORLD", calling=[call], **more)  # type: ignore[arg-type]


def messages(at_s: float = 30.0, **calls: tuple[float, int | None]) -> tuple[Verdict, str]:
    """Ranks r0 to r3: those with a call are in it since then, for that peer; the others do nothing."""

    def look(seconds: float) -> Standing:
        made = [
            receiving(n, *calls[f"r{n}"], seconds)
            if f"r{n}" in calls
            else rank(n, [DONE], seconds, label="MPI_COMM_WORLD")
            for n in range(4)
        ]
        return standing(made)

    found = verdict(look(at_s - 1), look(at_s), PATIENCE)
    return found, sentence(found, look(at_s))


def test_a_message_that_is_not_sent() -> None:
    found, told = messages(r0=(5.0, 2))
    assert named(found) == ("messages", None, "MPI_Recv", (2,), (0,)) and found.waited_ns == 25 * SECOND
    assert told.startswith("Hang: rank 0 has been in MPI_Recv from rank 2 for 25.0 s; rank 2: outside collectives; ")
    found, told = messages(at_s=12.0, r0=(5.0, 2))
    assert found.kind == "no_hang" and told.startswith(
        "No hang so far: rank 0 has been in MPI_Recv from rank 2 for 7.0 s"
    )


def test_the_end_of_a_chain_is_named_and_all_of_a_circle() -> None:
    found, _ = messages(r0=(5.0, 1), r1=(6.0, 3))
    assert named(found)[3:] == ((3,), (0, 1))
    found, told = messages(r0=(5.0, 1), r1=(6.0, 0))
    assert named(found)[3:] == ((0, 1), (0, 1)) and told.endswith("; they wait for each other")


def test_nobody_is_named_where_the_call_names_nobody() -> None:
    found, told = messages(r0=(5.0, -1), r1=(5.0, None))
    assert found.kind == "messages" and found.guilty == ()
    assert "MPI_Recv from any rank, rank 1 has been in MPI_Recv for" in told


def test_a_dead_sender_needs_no_patience_and_a_busy_one_is_no_hang() -> None:
    def look(seconds: float, calls: int, ending: Ending) -> Standing:
        sender = rank(1, [DONE], seconds, label="MPI_COMM_WORLD", ending=ending, calls=calls)
        return standing([receiving(0, 28.0, 1, seconds), sender])

    found = verdict(look(29.0, 5, "vanished"), look(30.0, 5, "vanished"), PATIENCE)
    assert named(found) == ("messages", None, "MPI_Recv", (1,), (0,))
    assert verdict(look(59.0, 5, "running"), look(60.0, 9, "running"), PATIENCE).kind == "no_hang"
    assert verdict(look(59.0, 5, "running"), look(60.0, 5, "running"), PATIENCE).kind == "messages"


def test_a_new_receive_is_no_old_one() -> None:
    before, now = (standing([receiving(0, at - 12.0, 1, at), rank(1, [DONE], at)]) for at in (59.0, 60.0))
    assert verdict(before, now, PATIENCE).kind != "messages"


def test_ranks_of_another_communicator_are_found_by_their_place() -> None:
    pair = [Group("MPI_COMM_WORLD/split#1", "p", size=2, my_rank=place) for place in (0, 1)]
    made = []
    for number, place in ((2, 0), (3, 1)):
        one = rank(number, [DONE], 30.0, calling=[Calling("MPI_Send", _ns(3.0), "p", 1 - place)])
        one.groups.append(pair[place])
        made.append(one)
    table = places_table(standing(made), standing(made), {}, collapse=False)
    assert [row[1] for row in table.rows][2:] == ["in MPI_Send to rank 3", "in MPI_Send to rank 2"]


def test_between_two_attempts_the_job_has_not_ended() -> None:
    ended = [rank(number, [("MPI_Bcast", 1.0, 2.0)], 30.0, ending="signalled") for number in range(2)]
    now = standing(ended, launcher_runs=True)
    found = verdict(now, now, PATIENCE)
    assert found.kind == "restarting" and "the launcher does" in sentence(found, now)
    for one in ended:
        one.facts.ending, one.facts.exit_code = "exited", 0
    assert verdict(now, now, PATIENCE).kind == "ended"  # what started them is about to end, too
