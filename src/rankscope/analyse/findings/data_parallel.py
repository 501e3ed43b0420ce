"""DataParallel copies the model to all GPUs in every step, where DistributedDataParallel would not."""

from __future__ import annotations

from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds

FEWEST = 20
NOTICEABLE = 0.02  # of the GPU time
SQL = """
    SELECT any_value(rank), sum(calls) FILTER (what = 'broadcast')::BIGINT, sum(total_ns) FILTER (what = 'broadcast'),
        sum(calls) FILTER (what = 'reduce')::BIGINT, sum(total_ns) FILTER (what = 'reduce'),
        coalesce(sum(calls) FILTER (what = 'allreduce'), 0)::BIGINT, sum(total_ns)
    FROM ranks JOIN (
        SELECT process, calls, total_ns,
            regexp_extract(lower(name), '^nccl(dev)?(kernel)?_?(broadcast|reducescatter|reduce|allreduce)', 3) AS what
        FROM tallies WHERE layer = 'gpu' AND within = '') USING (process)
    GROUP BY process ORDER BY process"""


def data_parallel(tables: Tables) -> list[Finding]:
    """One process whose NCCL kernels are broadcasts and reductions and no all-reduce."""
    for rank, broadcasts, broadcast_ns, reductions, reduce_ns, allreduces, gpu_ns in tables.query(SQL):
        if not broadcasts or not reductions or allreduces or min(broadcasts, reductions) < FEWEST:
            continue
        total = float(broadcast_ns or 0) + float(reduce_ns or 0)
        if total < NOTICEABLE * float(gpu_ns or 0):
            continue
        devices = _devices(tables)
        told = f"{broadcasts} broadcasts and {reductions} reductions of NCCL in rank {rank} and no all-reduce"
        return [
            Finding(
                "data_parallel",
                f"The model is copied to the GPUs in every step, as DataParallel does ({seconds(total)} of GPU time)",
                "use DistributedDataParallel, one process for each GPU: it sends gradients only and overlaps them",
                [f"gpu: {told}, {total / float(gpu_ns):.0%} of GPU time"],
                total / max(1, devices),
            )
        ]
    return []


def _devices(tables: Tables) -> int:
    sql = """SELECT count(DISTINCT "group") FROM tallies WHERE layer = 'gpu' AND "group" <> ''"""
    return int(tables.query(sql)[0][0] or 1)
