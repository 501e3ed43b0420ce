"""Tables of operations of jobs whose every dependency is known: data-parallel training and pipelines, simulated.

    python tools/synthetic_operations.py FILE.parquet [--schedule 1f1b] [--stages 4] [--data 2] [--micro-batches 8]
        [--steps 20] [--slow-rank 5=1.4] [--slow-stage 2=1.3] [--slow-link 3=20] [--unrecorded] [--tensor 4]

Every rank does its instructions one after the other: it computes, receives (and waits until the message is there), and
sends (which goes on beside it). A message takes its transfer from when both ends have come to it, a collective from
when the last member has. The same seed gives the same noise, so that a job with a problem can be held against the same
job without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COMPUTE, SEND, RECEIVE, TOGETHER = "compute", "send", "receive", "together"
UNRECORDED_STAGE, UNRECORDED_PIPELINE = "unrecorded, of a stage", "unrecorded, of a pipeline"


@dataclass(frozen=True)
class Job:
    """A job and its problems; times in seconds."""

    schedule: str = "1f1b"  # gpipe, 1f1b; ddp: one stage, all ranks do the same
    stages: int = 4
    data: int = 2
    micro_batches: int = 8
    steps: int = 20
    forward_s: float = 0.020
    backward_s: float = 0.040
    message_s: float = 0.001
    reduce_s: float = 0.015
    noise: float = 0.03
    seed: int = 1
    slow_ranks: dict[int, float] = field(default_factory=dict)  # by how much longer they compute
    slow_stages: dict[int, float] = field(default_factory=dict)
    slow_links: dict[int, float] = field(default_factory=dict)  # by rank: by how much longer what it receives takes
    # after their passes the ranks of the last stage wait for each other, then those of data-parallel rank 0: without
    # an operation in the table, as where a loss is summed for printing
    unrecorded: bool = False
    uneven: float = 0.0  # how much micro-batches differ: the standard deviation of the logarithm of what one costs
    is_packed: bool = False  # the same work, shared evenly by the micro-batches of all ranks
    tensor: int = 1  # ranks of which only the first is in the table: their numbers have gaps

    def healthy(self) -> Job:
        """The same job without its problems."""
        return replace(self, slow_ranks={}, slow_stages={}, slow_links={})

    @property
    def ranks(self) -> int:
        return self.stages * self.data


def instructions(job: Job, stage: int, data_rank: int = 0) -> list[tuple[str, str, int]]:
    """What a rank of this stage does in a step: what, which kind, which micro-batch."""
    forward = [_forward(job, stage, batch) for batch in range(job.micro_batches)]
    backward = [_backward(job, stage, batch) for batch in range(job.micro_batches)]
    ahead = job.micro_batches if job.schedule != "1f1b" else min(job.micro_batches, job.stages - stage - 1)
    made = [one for some in forward[:ahead] for one in some]
    for at in range(job.micro_batches):
        made += forward[at + ahead] if at + ahead < job.micro_batches else []
        made += backward[at]
    reduced = "grads-all-reduce" if job.stages == 1 else "grads-reduce-scatter"
    if job.unrecorded:
        made += [(TOGETHER, UNRECORDED_STAGE, 0)] if stage == job.stages - 1 else []
        made += [(TOGETHER, UNRECORDED_PIPELINE, 0)] if data_rank == 0 else []
        made.append((COMPUTE, "layernorm-grads-all-reduce", 0))  # of tensor-parallel ranks: of one here
    return [*made, (TOGETHER, reduced, 0), (COMPUTE, "optimizer", 0)]


def _forward(job: Job, stage: int, batch: int) -> list[tuple[str, str, int]]:
    made = [(RECEIVE, "forward-recv", batch)] if stage else []
    made.append((COMPUTE, "forward-compute", batch))
    return [*made, (SEND, "forward-send", batch)] if stage < job.stages - 1 else made


def _backward(job: Job, stage: int, batch: int) -> list[tuple[str, str, int]]:
    made = [(RECEIVE, "backward-recv", batch)] if stage < job.stages - 1 else []
    made.append((COMPUTE, "backward-compute", batch))
    return [*made, (SEND, "backward-send", batch)] if stage else made


Row = tuple[int, int, int, int, str, float, float, int, int]


def simulate(job: Job) -> tuple[list[Row], list[float]]:
    """The rows of the table, and how long each step takes."""
    random = np.random.default_rng(job.seed)
    rows: list[Row] = []
    lengths = []
    for step in range(1, job.steps + 1):
        made = _step(job, step, random)
        begin = min(row[5] for row in made)
        lengths.append(max(row[5] + row[6] for row in made) - begin)
        rows += made
    return rows, lengths


def _step(job: Job, step: int, random: np.random.Generator) -> list[Row]:
    todo = {rank: instructions(job, rank // job.data, rank % job.data) for rank in range(job.ranks)}
    noise = {rank: random.lognormal(0, job.noise, len(todo[rank])) for rank in todo}
    costs = np.random.default_rng([job.seed, step]).lognormal(0, job.uneven, (job.data, job.micro_batches))
    costs = np.full_like(costs, costs.mean()) if job.is_packed else costs
    at, now = dict.fromkeys(todo, 0), {rank: 1e-4 * random.random() for rank in todo}
    sent: dict[tuple[int, int, str, int], float] = {}  # when each message was offered: from, to, which
    taken: dict[tuple[int, int, str, int], float] = {}  # and when it was over
    came: dict[tuple[str, int], dict[int, float]] = {}  # to a collective, of a stage or of a pipeline
    rows: list[Row] = []
    offers: list[tuple[int, tuple[int, int, str, int], int]] = []
    blocked: set[int] = set()
    ready = list(todo)
    while ready:
        rank = ready.pop()
        stage = rank // job.data
        while at[rank] < len(todo[rank]):
            what, kind, batch = todo[rank][at[rank]]
            start = now[rank]
            if what == COMPUTE:
                cost = costs[rank % job.data, batch] if kind.endswith("-compute") else 1.0
                now[rank] += _compute_s(job, rank, kind) * cost * noise[rank][at[rank]]
                rows.append(_row(job, step, rank, kind, start, now[rank], batch))
            elif what == SEND:
                there = rank + job.data if kind.startswith("forward") else rank - job.data
                key = (rank, there, kind.split("-")[0], batch)
                sent[key] = start
                offers.append((rank, key, batch))
                if there in blocked:
                    blocked.discard(there)
                    ready.append(there)
            elif what == RECEIVE:
                there = rank - job.data if kind.startswith("forward") else rank + job.data
                key = (there, rank, kind.split("-")[0], batch)
                if key not in sent:
                    blocked.add(rank)
                    break
                slower = job.slow_links.get(rank, 1.0)
                now[rank] = taken[key] = max(start, sent[key]) + job.message_s * slower * noise[rank][at[rank]]
                rows.append(_row(job, step, rank, kind, start, now[rank], batch))
            else:
                across = kind == UNRECORDED_PIPELINE
                here = came.setdefault((kind, 0 if across else stage), {})
                here[rank] = start
                if len(here) < (job.stages if across else job.data):
                    break
                is_recorded = kind not in (UNRECORDED_STAGE, UNRECORDED_PIPELINE)
                over = max(here.values()) + (job.reduce_s * noise[rank][at[rank]] if is_recorded else 1e-4)
                for member, when in here.items():
                    if is_recorded:
                        rows.append(_row(job, step, member, kind, when, over, 0))
                    now[member] = over
                    if member != rank:
                        at[member] += 1
                        ready.append(member)
            at[rank] += 1
    for rank, key, batch in offers:  # a send is over when the message is
        kind = f"{key[2]}-send"
        rows.append(_row(job, step, rank, kind, sent[key], taken[key], batch))
    return rows


def _compute_s(job: Job, rank: int, kind: str) -> float:
    base = {"forward-compute": job.forward_s, "backward-compute": job.backward_s, "optimizer": job.forward_s / 4,
            "layernorm-grads-all-reduce": 1e-4}[kind]  # fmt: skip
    return base * job.slow_ranks.get(rank, 1.0) * job.slow_stages.get(rank // job.data, 1.0)


def _row(job: Job, step: int, rank: int, kind: str, start: float, end: float, batch: int) -> Row:
    return rank % job.data, rank // job.data, rank * job.tensor, step, kind, start, end - start, batch, batch


COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mb_id")


def write(path: Path, job: Job) -> list[float]:
    """The table of a job as Parquet or, by its name, as CSV; how long each step takes."""
    rows, lengths = simulate(job)
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)})
    if path.suffix == ".csv":
        lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        pq.write_table(table, path)
    return lengths


def main(argv: Sequence[str] | None = None) -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("file", type=Path)
    made.add_argument("--schedule", choices=["gpipe", "1f1b", "ddp"], default="1f1b")
    for name, value in (("stages", 4), ("data", 2), ("micro-batches", 8), ("steps", 20), ("seed", 1)):
        made.add_argument(f"--{name}", type=int, default=value)
    for name in ("slow-rank", "slow-stage", "slow-link"):
        made.add_argument(f"--{name}", type=_pair, action="append", default=[], metavar="N=FACTOR")
    made.add_argument("--unrecorded", action="store_true", help="ranks also wait where the table has no operation")
    made.add_argument("--uneven", type=float, default=0.0, metavar="SIGMA", help="micro-batches differ by so much")
    made.add_argument("--tensor", type=int, default=1, metavar="N", help="number only every N-th rank")
    asked = made.parse_args(argv)
    job = Job(
        asked.schedule, 1 if asked.schedule == "ddp" else asked.stages, asked.data, asked.micro_batches, asked.steps,
        seed=asked.seed, slow_ranks=dict(asked.slow_rank), slow_stages=dict(asked.slow_stage),
        slow_links=dict(asked.slow_link), unrecorded=asked.unrecorded, uneven=asked.uneven, tensor=asked.tensor,
    )  # fmt: skip
    lengths = write(asked.file, job)
    print(f"{asked.file}: {job.ranks} ranks, mean step {np.mean(lengths):.6f} s")


def _pair(text: str) -> tuple[int, float]:
    number, _, factor = text.partition("=")
    return int(number), float(factor)


if __name__ == "__main__":
    main()
