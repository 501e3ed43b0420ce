"""Works out the what-ifs of a table of operations a second time, sharing no code with rankscope, and compares.

    python scripts/whatif_check.py TABLE.parquet [RUN [RANK ...]]

For tables whose ranks do one thing after the other (batches of sends and receives that begin and end together count as
one), as Megatron's schedules without interleaving do. The replay here knows no order of operations: it begins with
every start at 0 and moves starts and ends later until nothing changes. RUN is the table as `rankscope load` took it;
without it the table is loaded into a temporary folder. RANK ...: what these ranks cost, too.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import duckdb

CLOSE = 0.01  # of a step
HOLE = 1e-3  # of a step: a shorter hole between two operations hides no wait
MESSAGES = {"forward-send", "forward-recv", "backward-send", "backward-recv"}


def read(path: str) -> dict[int, dict[int, list[dict]]]:
    """Operations by step and rank, in the order of their starts; batches are one."""
    asked = f"""SELECT step, rank, stage, dp_rank, optype, start_ts::DOUBLE, (start_ts + duration)::DOUBLE,
        seq_id FROM '{path}' ORDER BY step, rank, start_ts, start_ts + duration"""
    steps: dict[int, dict[int, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for step, rank, stage, data, kind, start, end, sequence in duckdb.sql(asked).fetchall():
        mine = steps[step][rank]
        last = mine[-1] if mine else None
        if kind in MESSAGES and last and last["messages"] and (last["start"], last["end"]) == (start, end):
            last["messages"].append((kind, sequence))
            continue
        one = {
            "rank": rank,
            "stage": stage,
            "data": data,
            "kind": kind,
            "start": start,
            "end": end,
            "sequence": sequence,
        }
        one["messages"] = [(kind, sequence)] if kind in MESSAGES else []
        mine.append(one)
    return steps


def connect(ranks: dict[int, list[dict]]) -> None:
    """Give every operation its gap, its own time, and the operations whose start it waits for."""
    last_stage = max(one["stage"] for mine in ranks.values() for one in mine)
    ends = {}
    for mine in ranks.values():
        for at, one in enumerate(mine):
            one["before"] = mine[at - 1] if at else None
            one["gap"] = one["start"] - (mine[at - 1]["end"] if at else 0.0)
            one["waits"] = list(one.get("together", []))
            for kind, sequence in one["messages"]:
                ends[kind, one["stage"], one["data"], sequence] = one
    for mine in ranks.values():
        for one in mine:
            for kind, sequence in one["messages"]:
                way, what = kind.split("-")
                there = one["stage"] + (1 if (way == "forward") == (what == "send") else -1)
                other = ends.get(
                    (f"{way}-{'recv' if what == 'send' else 'send'}", there % (last_stage + 1), one["data"], sequence)
                )
                if other is not None:
                    one["waits"].append(other)
    together = defaultdict(list)
    for mine in ranks.values():
        for one in mine:
            if one["kind"] in ("params-all-gather", "grads-reduce-scatter", "grads-all-reduce"):
                together[one["kind"], one["stage"], one["sequence"]].append(one)
            elif one["kind"] == "embedding-grads-all-reduce":
                together[one["kind"], one["data"], one["sequence"]].append(one)
            elif one["kind"] == "optimizer-clip-main-grad":
                together[one["kind"], one["sequence"]].append(one)
    for members in together.values():
        for one in members:
            one["waits"] += members
    for mine in ranks.values():
        for one in mine:
            one["own"] = one["end"] - max([one["start"], *(other["start"] for other in one["waits"])])
            one["transfers"] = bool(one["waits"])


def fill_holes(steps: dict[int, dict[int, list[dict]]]) -> list[str]:
    """Where ranks wait without an operation: after their last pass, before the operation that follows it."""
    length = statistics.median(max(one["end"] for mine in ranks.values() for one in mine) for ranks in steps.values())
    holes = {(step, rank): hole(mine) for step, ranks in steps.items() for rank, mine in ranks.items()}
    place = {rank: (mine[0]["stage"], mine[0]["data"]) for rank, mine in next(iter(steps.values())).items()}
    groups = {f"stage {stage}": [r for r in place if place[r][0] == stage] for stage, _ in place.values()}
    groups |= {f"data-parallel rank {data}": [r for r in place if place[r][1] == data] for _, data in place.values()}
    groups["all ranks"] = list(place)
    filled: list[str] = []
    while True:
        found = []
        for name, members in groups.items():
            if name in filled or len(members) < 2:
                continue
            possible, late, waited, came = 0, 0.0, 0.0, 0.0
            for step in steps:
                ends, starts = ([holes[step, rank][at] for rank in members] for at in (0, 1))
                last = max(ends)
                possible += min(starts) >= last - HOLE * length
                waiting = [(last - end, start - last) for end, start in zip(ends, starts, strict=True) if end < last]
                late += statistics.median([after for _, after in waiting] or [0.0])
                waited += statistics.fmean([wait for wait, _ in waiting] or [0.0])
                came += last
            total = sum(max(holes[s, r][0] for r in members) - holes[s, r][0] for s in steps for r in members)
            if possible >= 0.95 * len(steps) and total > HOLE * length * len(steps) and late <= 0.25 * waited:
                found.append((came, name))
        if not found:
            return filled
        name = min(found)[1]
        filled.append(name)
        for step, ranks in steps.items():
            go = min(holes[step, rank][1] for rank in groups[name])
            together = []
            for rank in groups[name]:
                end, start, at = holes[step, rank]
                one = {**ranks[rank][at], "kind": f"unrecorded, {name}", "messages": [], "start": end}
                one["end"] = max(end, go)
                ranks[rank].insert(at, one)
                together.append(one)
                holes[step, rank] = one["end"], start, at + 1
            for one in together:
                one["together"] = together


def hole(mine: list[dict]) -> tuple[float, float, int]:
    """End of the last pass or message, start of what follows it, and where that is in the list."""
    at = 1 + max(
        at for at, one in enumerate(mine) if one["messages"] or one["kind"].endswith("-compute") or one["kind"] == "gc"
    )
    return max(one["end"] for one in mine[:at]), mine[at]["start"], at


def replay(ranks: dict[int, list[dict]]) -> float:
    """Start and end of all operations, by moving them later until nothing changes."""
    everything = [one for mine in ranks.values() for one in mine]
    for one in everything:
        one["new start"] = one["new end"] = 0.0
    while True:
        moved = False
        for one in everything:
            start = (one["before"]["new end"] if one["before"] else 0.0) + one["gap"]
            end = max([start, *(other["new start"] for other in one["waits"])]) + one["own"]
            if start > one["new start"] + 1e-9 or end > one["new end"] + 1e-9:
                one["new start"], one["new end"], moved = max(start, one["new start"]), max(end, one["new end"]), True
        if not moved:
            return max(one["new end"] for one in everything)


def key(one: dict) -> tuple:
    return one["kind"], one["sequence"], tuple(one["messages"])


def lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def without_stage(ranks: dict[int, list[dict]], stage: int) -> float:
    """Operations of a stage as long as the (lower) median of the same on the other stages."""
    others = defaultdict(list)
    for mine in ranks.values():
        for one in mine:
            if one["stage"] != stage and not one["transfers"]:
                others[key(one)].append(one["own"])
    return changed(
        ranks, lambda one: lower_median(others[key(one)]) if one["stage"] == stage and others[key(one)] else None
    )


def without_rank(ranks: dict[int, list[dict]], rank: int) -> float:
    """Operations of a rank as long as the (lower) median of the same on the other ranks of its stage."""
    others = defaultdict(list)
    for mine in ranks.values():
        for one in mine:
            if one["rank"] != rank and not one["transfers"]:
                others[one["stage"], key(one)].append(one["own"])

    def new(one: dict) -> float | None:
        known = others[one["stage"], key(one)] if one["rank"] == rank else []
        return lower_median(known) if known else None

    return changed(ranks, new)


def evened(ranks: dict[int, list[dict]], then_balanced: bool) -> float:
    """All passes of a kind on a stage as long as their mean; then that mean over the stages."""
    passes = [one for mine in ranks.values() for one in mine if one["kind"].endswith("-compute")]
    of_stage = defaultdict(list)
    for one in passes:
        of_stage[one["kind"], one["stage"]].append(one["own"])
    means = {what: statistics.fmean(values) for what, values in of_stage.items()}
    if then_balanced:
        shared = defaultdict(list)
        for (kind, _), value in means.items():
            shared[kind].append(value)
        means = {(kind, stage): statistics.fmean(shared[kind]) for kind, stage in means}
    return changed(ranks, lambda one: means.get((one["kind"], one["stage"])))


def balanced(ranks: dict[int, list[dict]]) -> float:
    """Work of a kind shared evenly between stages."""
    of_stage = defaultdict(lambda: defaultdict(list))
    for mine in ranks.values():
        for one in mine:
            if not one["transfers"]:
                of_stage[key(one)][one["stage"]].append(one["own"])

    def new(one: dict) -> float | None:
        if one["transfers"]:
            return None
        medians = {stage: lower_median(values) for stage, values in of_stage[key(one)].items()}
        own = medians[one["stage"]]
        return one["own"] * statistics.fmean(medians.values()) / own if own else one["own"]

    return changed(ranks, new)


def changed(ranks: dict[int, list[dict]], new) -> float:
    before = {id(one): one["own"] for mine in ranks.values() for one in mine}
    for mine in ranks.values():
        for one in mine:
            value = None if one["transfers"] else new(one)
            one["own"] = one["own"] if value is None else value
    took = replay(ranks)
    for mine in ranks.values():
        for one in mine:
            one["own"] = before[id(one)]
    return took


def ideal(steps: dict[int, dict[int, list[dict]]]) -> float:
    """All ranks of a stage as the one with the (lower) median of own time in all steps; then stages balanced."""
    totals, stage_of = defaultdict(float), {}
    for ranks in steps.values():
        for rank, mine in ranks.items():
            stage_of[rank] = mine[0]["stage"]
            totals[rank] += sum(one["gap"] + (0.0 if one["transfers"] else one["own"]) for one in mine)
    chosen = set()
    for stage in set(stage_of.values()):
        ranked = sorted((totals[rank], rank) for rank in stage_of if stage_of[rank] == stage)
        chosen.add(ranked[(len(ranked) - 1) // 2][1])
    took = []
    for ranks in steps.values():
        model = {(one["stage"], key(one)): (one["gap"], one["own"]) for rank in chosen for one in ranks[rank]}
        work = defaultdict(list)
        for (_, what), (_, own) in model.items():
            work[what].append(own)
        for mine in ranks.values():
            for one in mine:
                one["kept"] = one["gap"], one["own"]
                one["gap"], own = model.get((one["stage"], key(one)), (one["gap"], one["own"]))
                one["own"] = own if one["messages"] or not one["transfers"] else one["own"]
                if not one["transfers"]:
                    one["own"] = statistics.fmean(work[key(one)])
        took.append(replay(ranks))
        for mine in ranks.values():
            for one in mine:
                one["gap"], one["own"] = one["kept"]
    return statistics.fmean(took)


def asked(run: str, options: list[str]) -> dict[str, float]:
    command = [str(Path(sys.executable).parent / "rankscope"), "whatif", run, *options, "--format", "json"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    tables = told["tables"] if isinstance(told, dict) else told
    (table,) = [one for one in tables if one["name"] == "whatif"]
    names = [column["name"] if isinstance(column, dict) else column for column in table["columns"]]
    rows = [row if isinstance(row, dict) else dict(zip(names, row, strict=True)) for row in table["rows"]]
    return {row["change"]: row["step_ns"] / 1e9 for row in rows}


def main() -> int:
    path = sys.argv[1]
    steps = read(path)
    for name in fill_holes(steps):
        print(f"{name}: ranks wait for each other where the table has no operation")
    for ranks in steps.values():
        connect(ranks)
    recorded = {step: max(one["end"] for mine in ranks.values() for one in mine) for step, ranks in steps.items()}
    replayed = {step: replay(ranks) for step, ranks in steps.items()}
    worst = max(abs(replayed[step] - recorded[step]) / recorded[step] for step in steps)
    print(f"{len(steps)} steps, recorded {statistics.fmean(recorded.values()):.4f} s, replayed "
          f"{statistics.fmean(replayed.values()):.4f} s, worst step {100 * worst:.3f} %")  # fmt: skip
    stages = sorted({one["stage"] for ranks in steps.values() for mine in ranks.values() for one in mine})
    mine = {
        f"stage {stage} with no more work than the median stage": statistics.fmean(
            without_stage(ranks, stage) for ranks in steps.values()
        )
        for stage in stages
    }
    for rank in (rank for rank in next(iter(steps.values())) if len(sys.argv) > 3 and str(rank) in sys.argv[3:]):
        mine[f"rank {rank} as fast as its peers"] = statistics.fmean(without_rank(r, rank) for r in steps.values())
    mine["all work shared evenly by stages"] = statistics.fmean(balanced(ranks) for ranks in steps.values())
    mine["all micro-batches alike"] = statistics.fmean(evened(ranks, False) for ranks in steps.values())
    ideal_s = ideal(steps)
    with tempfile.TemporaryDirectory() as folder:
        run = sys.argv[2] if len(sys.argv) > 2 else f"{folder}/run"
        if len(sys.argv) < 3:
            subprocess.run([Path(sys.executable).parent / "rankscope", "load", path, "--out", run], check=True)
        options = [word for stage in stages for word in ("--without", f"stage={stage}")]
        options += [word for rank in sys.argv[3:] for word in ("--without", f"rank={rank}")]
        theirs = asked(run, [*options, "--balance", "stage", "--balance", "micro-batches", "--ideal"])
    name = next(words for words in theirs if words.startswith("ideal"))
    if name.endswith("and micro-batches"):  # where these differ in what they cost
        ideal_s = min(ideal_s, statistics.fmean(evened(ranks, True) for ranks in steps.values()))
    mine[name] = ideal_s
    apart = 0.0
    print(f"{'what if':80} {'here s':>9} {'rankscope s':>12} {'apart':>8}")
    for name, value in mine.items():
        apart = max(apart, abs(value - theirs[name]) / value)
        print(f"{name:80} {value:9.4f} {theirs[name]:12.4f} {100 * abs(value - theirs[name]) / value:7.2f} %")
    return int(apart > CLOSE or worst > 2 * CLOSE)


if __name__ == "__main__":
    sys.exit(main())
