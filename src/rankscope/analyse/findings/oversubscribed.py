"""More threads want to run than there are CPUs."""

from __future__ import annotations

from statistics import median

import numpy as np

from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import steps_of
from rankscope.questions.wording import counted

NOTICEABLE = 0.1  # of the step, on the median rank of a host
SWITCHES_A_SECOND = 50.0  # on the median rank
SQL = """
    SELECT host, count(*), median(cpus_allowed), median(threads), list(rank),
        median(involuntary_switches / greatest(elapsed_ns, 1) * 1e9), sum(user_ns + system_ns) / max(elapsed_ns)
    FROM ranks WHERE role = 'rank' AND tool = '' AND cpus_allowed > 0 GROUP BY host ORDER BY host"""


def oversubscribed(tables: Tables) -> list[Finding]:
    """Of the hosts on which ranks × threads exceed the CPUs, that where the ranks wait most for a CPU."""
    waits = _waits(tables)
    made = []
    for host, ranks, cpus, threads, places, switches, busy in tables.query(SQL):
        wanted = ranks * max(1, int(threads or 1))
        here = [waits[rank] for rank in places if rank in waits]
        if wanted <= cpus or not here:
            continue
        share, ns, steps = (median(column) for column in zip(*here, strict=True))
        if share < NOTICEABLE or (switches or 0) < SWITCHES_A_SECOND:
            continue
        made.append(
            Finding(
                "oversubscribed",
                f"{counted(ranks, 'rank')} of {counted(int(threads or 1), 'thread')} share "
                f"{counted(int(cpus), 'CPU')} of {host}",
                "start fewer ranks on a host, or fewer threads in each (OMP_NUM_THREADS, torch.set_num_threads, "
                "num_workers)",
                [
                    f"step_parts: {seconds(ns)} a step ({share:.0%}) without a CPU on the median rank",
                    f"ranks: {switches:.0f} involuntary switches a second, {busy:.1f} CPUs busy",
                ],
                ns * steps,
            )
        )
    return sorted(made, key=lambda one: -(one.saved_ns or 0))[:1]


def _waits(tables: Tables) -> dict[int, tuple[float, float, float]]:
    """Of each rank with recorded steps: the share of a step, the ns of it, and the steps."""
    found = steps_of(tables)
    made = {}
    for one in found.ranks:
        mask = found.steady(one)
        if "runnable" in one.of_which and mask.any():
            ns = float(np.mean(one.of_which["runnable"][mask]))
            made[one.rank] = (ns / float(np.mean(one.length_ns[mask])), ns, float(mask.sum()))
    return made
