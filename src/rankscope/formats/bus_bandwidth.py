"""How collectives' bandwidths are counted: bus bandwidth is what each link carries, whatever the number of ranks."""

from __future__ import annotations

ALL_REDUCE, ALL_RANKS, ONCE = "2(n-1)/n", "(n-1)/n", "1"
FACTORS = {
    "all_reduce": ALL_REDUCE,
    "all_gather": ALL_RANKS,
    "reduce_scatter": ALL_RANKS,
    "alltoall": ALL_RANKS,
    "gather": ALL_RANKS,
    "scatter": ALL_RANKS,
    "broadcast": ONCE,
    "reduce": ONCE,
    "sendrecv": ONCE,
}
ALIASES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "all_to_all": "alltoall",
    "send": "sendrecv",
    "recv": "sendrecv",
}


def plain_name(name: str) -> str:
    """A collective's name as it is called here, whatever its writing."""
    lower = name.lower()
    return ALIASES.get(lower, lower)


def factor(kind: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth."""
    return {ALL_REDUCE: 2 * (ranks - 1) / ranks, ALL_RANKS: (ranks - 1) / ranks, ONCE: 1.0}[kind]


def bus_factor(name: str, ranks: int) -> float | None:
    """The factor of a collective, where it is known."""
    kind = FACTORS.get(plain_name(name))
    return factor(kind, ranks) if kind is not None and ranks > 0 else None
