"""Which CUDA calls take the time of the hosts, and do the ranks agree?"""

from __future__ import annotations

from rankscope.analyse.gpu import COLUMNS as COLUMNS
from rankscope.analyse.gpu import activities
from rankscope.analyse.selection import ALL, Selection
from rankscope.model import Table, Tables


def cuda_api(tables: Tables, selection: Selection = ALL) -> Table:
    """CUDA runtime and driver calls over the selected ranks, and how their time is spread over them."""
    return activities(tables, selection, "cuda_api", "CUDA API calls")
