"""Which operation of NCCL a kernel carries out, and how, by its name: all that most traces tell of it."""

from __future__ import annotations

import re
from functools import cache

# ncclDevKernel_AllReduce_Sum_f32_RING_LL(…) since 2.19, ncclKernel_AllReduce_RING_LL_Sum_float(…) since 2.7,
# ncclAllReduceRingLLKernel_sum_f32(…) before that
SINCE_2_7 = re.compile(r"nccl(?:Dev)?Kernel(?:Debug)?_([A-Za-z]+)((?:_[A-Za-z0-9]+)*)")
BEFORE = re.compile(r"nccl([A-Z][A-Za-z]*?)(Ring|Tree|CollNet)?(LL128|LL|Simple)?Kernel")
ALGORITHMS = frozenset(("RING", "TREE", "COLLNET", "DIRECT", "CHAIN", "NVLS", "PAT", "LL", "LL128", "SIMPLE"))
POINT_TO_POINT = "SendRecv"


@cache
def nccl_operation(kernel: str) -> tuple[str, str]:
    """The operation as NCCL's own call is named, and algorithm and protocol; "" for other kernels."""
    if match := SINCE_2_7.search(kernel):
        words = [word for word in match[2].upper().split("_") if word in ALGORITHMS]
    elif match := BEFORE.search(kernel):
        words = [word.upper() for word in match.groups()[1:] if word]
    else:
        return "", ""
    # what sends and receives is one kernel, which says RING SIMPLE whatever it does
    return f"nccl{match[1]}", "" if match[1] == POINT_TO_POINT else " ".join(words)
