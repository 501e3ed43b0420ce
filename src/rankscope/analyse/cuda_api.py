"""Which CUDA calls take the time of the hosts, and do the ranks agree?"""

from __future__ import annotations

from rankscope.model import Table, Tables
from rankscope.questions.gpu.kernels import COLUMNS as COLUMNS
from rankscope.questions.gpu.kernels import activities
from rankscope.questions.selection import ALL, Selection


def cuda_api(tables: Tables, selection: Selection = ALL) -> Table:
    """CUDA runtime and driver calls over the selected ranks, and how their time is spread over them."""
    return activities(tables, selection, "cuda_api", "CUDA API calls")
