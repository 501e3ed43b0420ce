"""Each rule fires where it should, with evidence and an action, and is silent where it should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mpis import ROOT
from questions.stragglers.simulated import Case, write_case
from rankscope.formats.nvprof import read as read_nvprof
from rankscope.formats.nvprof_damaged import read as read_damaged
from rankscope.formats.source import Source
from rankscope.model.records import Layer, RangeTally, RankFacts, Reading, Tally
from rankscope.model.tables import Tables
from rankscope.questions.findings.communication import (
    data_parallel,
    exposed_communication,
    pickled_objects,
    tiny_collectives,
)
from rankscope.questions.findings.finding import Finding
from rankscope.questions.findings.gpu import gpu_sums
from rankscope.questions.findings.startup import (
    failed_ranks,
    first_collective,
    heaviest_import,
    incomplete_coverage,
    slow_start,
    wrong_launcher,
)
from rankscope.questions.findings.steps import checkpointing, compiling, data_bound, gc_bound, stalled
from rankscope.questions.findings.stragglers import host_imbalance, oversubscribed, straggler
from rankscope.questions.findings.table import COLUMNS, MOST, RULES, findings, findings_of, not_looked_for
from rankscope.rank_file import Flag, LayerNumber, MarkKind, Part, State
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.import_runs import small_run
from runs.loaded import run_of, shared_file
from runs.small_run import MILLI, SECOND
from runs.step_runs import log, opened, rank, steps

MS = 1e6
LATE = Case(4, "data loading", 2, 6.0 * MILLI, steps=60)


def simulated(folder: Path, case: Case) -> Tables:
    return open_run(write_case(folder / "run", case, np.random.default_rng(3)), read_rank_file)


def only(found: list[Finding]) -> Finding:
    (one,) = found
    assert one.action and one.evidence
    return one


def test_straggler(tmp_path: Path) -> None:
    one = only(straggler(simulated(tmp_path, LATE)))
    assert one.title.startswith("Rank 2 (node0) is late by ") and one.title.endswith("per step: data loading")
    assert one.saved_ns == pytest.approx(58 * 6.0 * MS, rel=0.1)
    assert "data loader" in one.action


def test_no_straggler(tmp_path: Path) -> None:
    assert straggler(simulated(tmp_path, Case(4))) == []


def pattern(folder: Path, step: Sequence[tuple[int, float, float]], count: int = 40, late_ms: float = 0.0) -> Tables:
    """Two ranks in step: (bytes, compute ms, collective ms); rank 1 may come later to all."""
    made = [rank(number, 2) for number in range(2)]
    for number, one in enumerate(made):
        now, calls = 1_000.0, [("MPI_Bcast", 100, 999.0, 1_000.0)]
        for size, compute, communication in list(step) * count:
            late = late_ms * number
            leave = now + compute + late_ms + communication
            calls.append(("MPI_Allreduce", size, now + compute + late, leave))
            now = leave
        log(one, calls)
    return opened(folder, *made)


def test_exposed_communication(tmp_path: Path) -> None:
    one = only(exposed_communication(pattern(tmp_path, [(1 << 20, 6.0, 4.0)])))
    assert one.title == "Exposed transfer takes 4 ms of each 10 ms step (40 %)"
    assert one.saved_ns == pytest.approx(40 * 4 * MS)


def test_a_title_says_why_less_is_saved_than_a_step_loses(tmp_path: Path) -> None:
    """There are 4 ms of compute to overlap the 6 ms with, no more."""
    [one] = findings_of(pattern(tmp_path, [(1 << 20, 4.0, 6.0)]))
    assert one.title == (
        "Exposed transfer takes 6 ms of each 10 ms step (60 %); overlapping it would save 4 ms per step: "
        "there is too little compute to hide all of it"
    )
    assert one.saved_ns == pytest.approx(40 * 4 * MS, rel=0.03)


def test_the_title_of_exposed_transfer_is_the_mean_of_the_ranks(tmp_path: Path) -> None:
    """One moves data for 2 ms, the other for 4: the first screen shows the mean of both, and so does the title."""
    made = [rank(number, 2) for number in range(2)]
    for number, one in enumerate(made):
        now, calls = 1_000.0, [("MPI_Bcast", 100, 999.0, 1_000.0)]
        for _ in range(40):
            leave = now + 6 + (4 if number else 2)
            calls.append(("MPI_Allreduce", 1 << 20, now + 6, leave))
            now += 10
        log(one, calls)
    one = only(exposed_communication(opened(tmp_path, *made)))
    assert re.fullmatch(r"Exposed transfer takes 3 ms of each \S+ ms step \(30 %\)", one.title)
    assert one.loss_ns == pytest.approx(3 * MS)
    assert one.evidence[0].startswith("step_parts: exposed transfer is 2 ms to 4 ms by rank")


def test_waiting_is_no_exposed_communication(tmp_path: Path) -> None:
    assert exposed_communication(pattern(tmp_path, [(1 << 20, 6.0, 0.5)], late_ms=4.0)) == []


def test_without_matched_collectives_all_that_blocks_is_named(tmp_path: Path) -> None:
    """One of three ranks left no file: wait and transfer cannot be separated."""
    made = [rank(number, 3) for number in range(2)]
    for one in made:
        calls = [("MPI_Allreduce", 1 << 20, 1_000.0 + 10 * at + 6, 1_010.0 + 10 * at) for at in range(40)]
        log(one, [("MPI_Bcast", 100, 999.0, 1_000.0), *calls])
    one = only(exposed_communication(opened(tmp_path, *made)))
    assert one.title == "Every rank is blocked in communication for at least 4 ms of each 10 ms step (40 %)"
    assert "every rank must be recorded" in one.action and one.saved_ns == pytest.approx(40 * 4 * MS, rel=0.05)


@pytest.mark.parametrize(
    ("world", "said"), [(1, "there is no other rank to wait for"), (2, "every rank must be recorded")]
)
def test_a_job_of_one_rank_is_not_asked_for_more_of_them(world: int, said: str, tmp_path: Path) -> None:
    made = rank(0, world)
    calls = [("MPI_Allreduce", 1 << 20, 1_000.0 + 10 * at + 6, 1_010.0 + 10 * at) for at in range(40)]
    log(made, [("MPI_Bcast", 100, 999.0, 1_000.0), *calls])
    one = only(exposed_communication(opened(tmp_path, made)))
    assert one.title.startswith("The rank is blocked in communication for at least 4 ms") and said in one.action


def test_savings_are_shares_of_the_steps_and_of_the_run(tmp_path: Path) -> None:
    """A trial of a few steps has a long start: what counts for a longer job is the share of its steps."""
    [row] = findings(pattern(tmp_path, [(1 << 20, 6.0, 4.0)])).rows
    by_name = dict(zip((column.name for column in COLUMNS), row, strict=True))
    assert by_name["rule"] == "exposed_communication" and by_name["steps_share"] == pytest.approx(0.4, rel=0.02)
    assert by_name["share"] < by_name["steps_share"]


def test_a_summary_of_a_gpu_profiler() -> None:
    """Of sums alone: communication and copies by their share of all that the GPUs did."""
    names = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL": 6.0, "gemm": 3.0, "[CUDA memcpy HtoD]": 1.0}
    tallies = [Tally(Layer.GPU, name, 10, ms * MS) for name, ms in names.items()]
    run = run_of([Reading(RankFacts(rank=at, tool="nvprof"), tallies=tallies) for at in range(2)])
    one = only(gpu_sums(run))
    assert one.title == "Communication kernels take 60 % of GPU time, 6 ms per rank" and one.saved_ns == 6 * MS
    assert one.evidence == ["gpu: 12 ms of 20 ms, summed over 2 ranks"]


def test_a_kernel_whose_time_a_damaged_summary_does_not_tell_is_left_out() -> None:
    tallies = [Tally(Layer.GPU, "gemm", 10, None), Tally(Layer.GPU, "[CUDA memcpy HtoD]", 1, 4 * MS)]
    one = only(gpu_sums(run_of([Reading(RankFacts(rank=0, tool="nvprof_damaged"), tallies=tallies)])))
    assert one.title == "Copies take 100 % of GPU time, 4 ms per rank"


def test_tiny_collectives(tmp_path: Path) -> None:
    one = only(
        tiny_collectives(pattern(tmp_path, [(1 << 20, 5.0, 1.0), *([(1000 + at, 0.01, 0.1) for at in range(20)])]))
    )
    assert one.title == "801 collectives of at most 4 KiB, 20 per step, mostly MPI_Allreduce"
    assert one.saved_ns == pytest.approx(801 * 0.1 * MS * 7 / 8, rel=0.02)
    assert "few large buffers" in one.action


def test_negotiation_has_its_own_advice(tmp_path: Path) -> None:
    one = only(tiny_collectives(pattern(tmp_path, [(1 << 20, 5.0, 1.0), *([(8, 0.1, 0.1)] * 20)])))
    assert "HOROVOD_CYCLE_TIME" in one.action


def test_large_collectives_are_not_tiny(tmp_path: Path) -> None:
    assert tiny_collectives(pattern(tmp_path, [(1 << 20, 0.1, 0.1)] * 20)) == []


def started(number: int, import_s: float, collective_s: float = 0.01) -> RankFileWriter:
    made = rank(number, 2, ended_ticks=30 * SECOND)
    moments = [
        (MarkKind.IMPORT_BEGIN, 0.1, "torch"),
        (MarkKind.IMPORT_END, 0.1 + import_s, "torch"),
        (MarkKind.FIRST_COLLECTIVE_BEGIN, 0.2 + import_s, "all_reduce"),
        (MarkKind.FIRST_COLLECTIVE_END, 0.2 + import_s + collective_s, "all_reduce"),
        (MarkKind.FIRST_STEP_BEGIN, 0.3 + import_s + collective_s, ""),
        (MarkKind.FIRST_STEP_END, 0.4 + import_s + collective_s, ""),
    ]
    made.marks(*((kind, round(at * SECOND), what) for kind, at, what in moments))
    return made


def test_slow_start(tmp_path: Path) -> None:
    one = only(slow_start(opened(tmp_path, started(0, 8.0), started(1, 10.0))))
    assert one.title == "Start-up is slow: 9 s in imports (29 % of the run)"
    assert "10 s on rank 1" in one.evidence[0]
    assert one.saved_ns == 9e9


def test_the_module_of_a_slow_start_is_named() -> None:
    assert heaviest_import(small_run()) == ["import_tree: app takes 900 ms with all that it imports"]


def test_no_slow_start(tmp_path: Path) -> None:
    run = opened(tmp_path, started(0, 1.0), started(1, 1.0))
    assert slow_start(run) == first_collective(run) == []


def test_first_collective_is_what_the_last_rank_pays(tmp_path: Path) -> None:
    one = only(first_collective(opened(tmp_path, started(0, 1.0, 5.0), started(1, 4.0, 2.0))))
    assert one.title == "The first all_reduce takes at least 2 s on every rank"
    assert one.saved_ns == 2e9


def test_waiting_for_a_late_rank_is_no_cost_of_the_first_collective(tmp_path: Path) -> None:
    assert first_collective(opened(tmp_path, started(0, 1.0, 3.1), started(1, 4.0, 0.1))) == []


def test_wrong_launcher(tmp_path: Path) -> None:
    alone = [rank(number, 2, flags=Flag.SINGLETON | Flag.MPI_STARTED, launcher_world_size=2) for number in range(2)]
    one = only(wrong_launcher(opened(tmp_path, *alone)))
    assert "2 processes run as 2 jobs of one rank each" in one.title and one.saved_ns is None


def test_a_job_of_one_rank_has_the_right_launcher(tmp_path: Path) -> None:
    assert wrong_launcher(opened(tmp_path, rank(0, 1))) == []


def test_incomplete_coverage(tmp_path: Path) -> None:
    one = only(incomplete_coverage(opened(tmp_path, rank(0, 4), rank(2, 4), expected_ranks=4)))
    assert one.evidence == ["coverage: of 4 ranks, 2 left no file: 1, 3"]


def test_lost_calls_ask_for_more_room(tmp_path: Path) -> None:
    made = rank(0, 1, lost_calls=50)
    made.tally("MPI_Send", 950, SECOND)
    assert only(incomplete_coverage(opened(tmp_path, made))).action == "record with a larger --size"


def test_complete_coverage(tmp_path: Path) -> None:
    made = rank(0, 1, lost_calls=5)
    made.tally("MPI_Send", 995, SECOND)
    assert incomplete_coverage(opened(tmp_path, made, expected_ranks=1)) == []


def test_calls_inside_ranges_do_not_hide_lost_ones() -> None:
    """50 of 4,050 calls are more than one in a hundred, however often the kept ones are told again by range."""
    again = [RangeTally("cuda_api", "launch", 4000, SECOND, within="app/step")]
    given = Reading(RankFacts(rank=0, lost_calls=50), tallies=[Tally("cuda_api", "launch", 4000, SECOND)])
    given.range_tallies = again
    assert only(incomplete_coverage(run_of([given]))).evidence == [
        "coverage: 50 of 4050 calls did not fit in the files"
    ]


def hosts(folder: Path, forward_ms: Sequence[float]) -> Tables:
    """Two ranks on each host; a step is 20 ms on all, what is not forward is blocked in backward."""
    made = []
    for number, own in enumerate(forward_ms):
        one = rank(number, len(forward_ms), host=f"node{number // 2}".encode())
        parts = {Part.FORWARD: own, Part.BACKWARD: 20.0 - own}
        one.steps(steps([parts] * 30, [{Part.BACKWARD: 20.0 - own}] * 30))
        made.append(one)
    return opened(folder, *made)


def test_host_imbalance_names_the_host_and_not_its_ranks(tmp_path: Path) -> None:
    run = hosts(tmp_path, [10, 10.2, 14, 14.1, 10.1, 10])
    one = only(host_imbalance(run))
    assert one.title.startswith("Host node1 is slow: its ranks 2-3 need ")
    assert one.saved_ns == pytest.approx(28 * 3.8 * MS)
    assert straggler(run) == []


def test_one_slow_rank_is_no_slow_host(tmp_path: Path) -> None:
    assert host_imbalance(hosts(tmp_path, [10, 10.2, 14, 10.1, 10.1, 10])) == []


def busy(folder: Path, runnable_ms: float, ranks: int, cpus: int, cpu_ms: float = 8.0) -> Tables:
    made = []
    for number in range(ranks):
        one = rank(number, ranks, cpus_allowed=cpus, facts={"threads": 9})
        times = {"runnable_ns": [runnable_ms * MS] * 30, "process_cpu_ns": [cpu_ms * MS] * 30}
        one.steps(steps([{Part.FORWARD: 10.0}] * 30, **times))
        made.append(one)
    return opened(folder, *made)


def test_oversubscribed(tmp_path: Path) -> None:
    """Four ranks use 0.8 CPUs each and would use 0.2 more."""
    one = only(oversubscribed(busy(tmp_path, 2.0, ranks=4, cpus=3)))
    told = "4 ranks on node0 wait for a CPU for 20 % of each step: they need 4.0 CPUs and have 3"
    assert one.title == told and "fewer ranks" in one.action
    assert one.saved_ns == pytest.approx(28 * 2 * MS)


def test_other_programs_take_the_cpus(tmp_path: Path) -> None:
    one = only(oversubscribed(busy(tmp_path, 2.0, ranks=4, cpus=8)))
    assert "other programs" in one.title and "other programs" in one.action


def test_idle_threads_want_no_cpu(tmp_path: Path) -> None:
    assert oversubscribed(busy(tmp_path, 0.1, ranks=4, cpus=4)) == []


def test_oversubscribed_without_steps(tmp_path: Path) -> None:
    """Plain MPI: two ranks had no CPU for 4 of 10 s, 8 of them between MPI_Init and MPI_Finalize; the run takes 11."""
    facts = {"user_ns": 6 * SECOND}
    made = [
        rank(number, 2, cpus_allowed=1, runnable_ns=4 * SECOND, ended_ticks=10 * SECOND, facts=facts)
        for number in range(2)
    ]
    one = only(oversubscribed(opened(tmp_path, *made)))
    told = "2 ranks on node0 wait for a CPU for 29 % of the run: they need 2.0 CPUs and have 1"
    assert one.title == told and one.saved_ns == pytest.approx(0.4 * 8e9)


def two(folder: Path, parts: Sequence[Sequence[dict[Part, float]]], **more: Sequence[float]) -> Tables:
    """The steps of two ranks: parts in ms; whoever is done sooner is blocked in backward until the other comes."""
    lengths = [max(sum(own.values()) for own in both) for both in zip(*parts, strict=True)]
    made = []
    for number, own in enumerate(parts):
        blocked = [{Part.BACKWARD: length - sum(one.values())} for length, one in zip(lengths, own, strict=True)]
        whole = [
            {**one, Part.BACKWARD: one[Part.BACKWARD] + waits[Part.BACKWARD]}
            for one, waits in zip(own, blocked, strict=True)
        ]
        file = rank(number, 2)
        file.steps(steps(whole, blocked, **more))
        made.append(file)
    return opened(folder, *made)


USUAL = {Part.FORWARD: 10.0, Part.BACKWARD: 10.0}


@pytest.mark.parametrize(("cpu_ms", "cause"), [(12.0, "forward"), (4.0, "preemption")])
def test_more_work_is_no_preemption(tmp_path: Path, cpu_ms: float, cause: str) -> None:
    """Rank 1 takes 20 ms longer in forward, most of it without a CPU: for it has more to compute, or not."""
    made = []
    for number in range(2):
        own = 10.0 + 20.0 * number
        file = rank(number, 2)
        waits = {
            "cpu_ns": [(cpu_ms if number else 4.0) * MS] * 30,
            "runnable_ns": [(14.0 if number else 2.0) * MS] * 30,
        }
        blocked = [{Part.BACKWARD: 30.0 - own}] * 30
        file.steps(steps([{Part.FORWARD: own, Part.BACKWARD: 32.0 - own}] * 30, blocked, **waits))
        made.append(file)
    assert only(straggler(opened(tmp_path, *made))).title == f"Rank 1 (node0) is late by 20 ms per step: {cause}"


def test_garbage_on_all_ranks(tmp_path: Path) -> None:
    """Of 28 steady steps of 20 ms every second one collects for 4 ms."""
    one = only(gc_bound(two(tmp_path, [[USUAL] * 30] * 2, gc_ticks=[4.0 * MILLI * (at % 2) for at in range(30)])))
    assert one.title == "Python collects garbage for 2 ms of each 20 ms step (10 %)"
    assert one.saved_ns == pytest.approx(14 * 4 * MS) and one.evidence == ["step_parts: GC, 56 ms in 14 of 28 steps"]


def test_little_garbage(tmp_path: Path) -> None:
    assert gc_bound(two(tmp_path, [[USUAL] * 30] * 2, gc_ticks=[0.5 * MILLI] * 30)) == []


def test_checkpoints_cost_what_the_slowest_rank_takes(tmp_path: Path) -> None:
    def saving(took_ms: float) -> list[dict[Part, float]]:
        return [USUAL | ({Part.CHECKPOINT: took_ms} if at % 10 == 9 else {}) for at in range(30)]

    one = only(checkpointing(two(tmp_path, [saving(30.0), saving(50.0)])))
    assert one.saved_ns == pytest.approx(3 * 50 * MS) and "50 ms in each of 3 steps" in one.evidence[0]
    assert checkpointing(two(tmp_path / "none", [[USUAL] * 30] * 2)) == []


def standing(step: int, part: Part, took_ms: float) -> list[dict[Part, float]]:
    return [USUAL | ({part: took_ms} if at == step else {}) for at in range(30)]


def test_a_stall_is_found_with_its_rank_and_part(tmp_path: Path) -> None:
    run = two(tmp_path, [[USUAL] * 30, standing(19, Part.DATA, 60_000.0)])
    one = only(stalled(run))
    told = "Step 20 takes 60 s (median step: 20 ms): 60 s of it on rank 1 (node0): data loading"
    assert one.title == told and one.saved_ns == pytest.approx(60e9)
    assert straggler(run) == []


@pytest.mark.parametrize(("part", "took_ms"), [(Part.CHECKPOINT, 60_000.0), (Part.OTHER, 90.0)])
def test_no_stall(tmp_path: Path, part: Part, took_ms: float) -> None:
    """A checkpoint has a rule of its own; a tenth of a second is nothing."""
    assert stalled(two(tmp_path, [[USUAL] * 30, standing(19, part, took_ms)])) == []


@pytest.mark.parametrize(("phase", "rule"), [(4, "compiling"), (5, "recompiling")])
def test_compiling(tmp_path: Path, phase: int, rule: str) -> None:
    """3 s in all, until the first step has ended or after it, where 30 steps take 6 s."""
    made = rank(0, 1)
    made.steps(steps([{Part.FORWARD: 200.0}] * 30))
    made.tally("torch.compile", 3, 3 * SECOND, layer=LayerNumber.TORCH, phase=phase)
    one = only(compiling(opened(tmp_path, made)))
    assert one.rule == rule and one.saved_ns == 3e9 and one.once == (rule == "compiling")


def test_ranks_that_fail(tmp_path: Path) -> None:
    made = [rank(number, 4, state=State.EXITED, exit_code=1) for number in range(4)]
    one = only(failed_ranks(opened(tmp_path / "all", *made)))
    assert one.title == "The job failed: exit 1 on all 4 ranks" and one.saved_ns is None
    stopped = [rank(number, 2, state=State.SIGNALLED, end_signal=15) for number in range(2)]
    assert failed_ranks(opened(tmp_path / "stopped", *stopped)) == []
    killed = [rank(0, 2, state=State.SIGNALLED, end_signal=15), rank(1, 2, state=State.SIGNALLED, end_signal=11)]
    assert only(failed_ranks(opened(tmp_path / "killed", *killed))).title == "The job failed: SIGSEGV on rank 1"


def test_waiting_that_convicts_is_a_finding(tmp_path: Path) -> None:
    """Too few steps to compare, and yet rank 1 came last to all collectives by 4 of 10 ms."""
    made = [rank(number, 2) for number in range(2)]
    for number, one in enumerate(made):
        own = 6.0 if number == 0 else 10.0
        parts = {Part.FORWARD: own, Part.COMMUNICATION: 10.5 - own}
        one.steps(steps([parts] * 11, [{Part.COMMUNICATION: 10.5 - own}] * 11))
        log(one, [("MPI_Allreduce", 64, 1_000 + 10.5 * at + own, 1_010.5 + 10.5 * at) for at in range(11)])
    one_found = only(straggler(opened(tmp_path, *made)))
    assert one_found.title == "Other ranks wait for rank 1 (node0)"
    assert one_found.saved_ns == pytest.approx(9 * 4 * MS, rel=0.01)


def test_data_parallel_in_a_document_of_2019() -> None:
    one = only(data_parallel(run_of(read_damaged(Source(shared_file("seeds/002*"))))))
    assert "as DataParallel does" in one.title


def test_a_range_around_data_parallel_is_no_device() -> None:
    """2 s of broadcasts and reductions on two devices: at most 1 s of the job is theirs."""
    names = ("ncclDevKernel_Broadcast_RING_LL", "ncclDevKernel_Reduce_Sum_f32_RING_LL")
    given = [Tally("gpu", name, 30, SECOND / 2, f"GPU {gpu} stream 7") for name in names for gpu in (0, 1)]
    again = [RangeTally("gpu", name, 60, SECOND, "app", within="app/step") for name in names]
    found = run_of([Reading(RankFacts(rank=0), tallies=given, range_tallies=again)])
    assert only(data_parallel(found)).saved_ns == SECOND


def test_no_data_parallel_in_a_ddp_job() -> None:
    assert data_parallel(run_of(read_nvprof(Source(shared_file("seeds/003*"))))) == []


def bcasts(folder: Path, sizes: Sequence[int], command: bytes = b"python\0train.py\0") -> Tables:
    made = [rank(number, 2, command=command) for number in range(2)]
    for one in made:
        calls = [("MPI_Bcast", size, 10.0 * at, 10.0 * at + 1) for at, size in enumerate(sizes, 100)]
        log(one, calls)
    return opened(folder, *made)


def test_pickled_objects(tmp_path: Path) -> None:
    one = only(pickled_objects(bcasts(tmp_path, [8, 5000] * 60)))
    assert one.title == "mpi4py's bcast() pickles 60 objects: 120 ms on rank 0"


@pytest.mark.parametrize("sizes", [[5000] * 120, [8] * 120, [8, 5000] * 5])
def test_buffers_are_no_pickled_objects(tmp_path: Path, sizes: list[int]) -> None:
    assert pickled_objects(bcasts(tmp_path, sizes)) == []


def test_other_programs_do_not_pickle(tmp_path: Path) -> None:
    assert pickled_objects(bcasts(tmp_path, [8, 5000] * 60, b"./solver\0")) == []


def test_the_table_is_ranked_and_never_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [Finding("rule", f"finding {at}", "act", ["table: row"], at * MS) for at in range(9)]
    doubt = Finding("doubt", "doubt", "act", ["table: row"])
    monkeypatch.setattr("rankscope.questions.findings.table.RULES", (lambda tables: [*told, doubt],))
    table = findings(opened(tmp_path, rank(0, 1)))
    assert [row[1] for row in table.rows] == ["doubt", *(f"finding {at}" for at in range(8, 2, -1))]
    assert len(table.rows) == MOST and table.notes[0] == "3 smaller findings are left out."


def test_every_rule_is_documented() -> None:
    """By the names that the sources give to findings."""
    folder = ROOT / "src" / "rankscope" / "questions" / "findings"
    sources = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    rules = set(re.findall(r'\b(?:Finding|add)\(\s*"(\w+)"', sources))
    documented = (ROOT / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")
    assert len(rules) > 15 and [rule for rule in sorted(rules) if f"`{rule}`" not in documented] == []


def test_what_could_not_be_looked_for_is_said(tmp_path: Path) -> None:
    """Two ranks without steps, collectives and marks; then one whose loop told its steps."""
    bare = not_looked_for(opened(tmp_path / "bare", rank(0, 2), rank(1, 2)))
    assert [note.partition(".")[0].partition(": ")[2] for note in bare] == [
        "slow data loading, garbage collection, checkpoints and compilation",
        "ranks waiting for a CPU",
        "single steps that take much longer",
        "late ranks, exposed communication, tiny collectives",
        "a slow start",
    ]
    stepped = rank(0, 1, cpus_allowed=2)
    stepped.steps(steps([{Part.FORWARD: 5.0}] * 12, runnable_ns=[1.0] * 12))
    assert [note for note in not_looked_for(opened(tmp_path / "stepped", stepped)) if "slow start" not in note] == []


def test_nothing_recorded_nothing_found(tmp_path: Path) -> None:
    assert [one for rule in RULES for one in rule(opened(tmp_path, rank(0, 1)))] == []


def test_savings_count_steps_that_are_overwritten(tmp_path: Path) -> None:
    ranks = [rank(number, 2) for number in range(2)]
    for writer in ranks:
        writer.steps(steps([{Part.DATA: 6.0, Part.FORWARD: 4.0}] * 40), capacity=16)
    run = opened(tmp_path, *ranks)
    (finding,) = data_bound(run)
    assert finding.saved_ns == pytest.approx(40 * 6 * MS)
    table = findings(run)
    shares = [row[4] for row in table.rows if row[-1] == "data_bound"]
    assert shares == [pytest.approx(0.6)]
