"""Which GPU activities have their launching call in the trace?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.formats.kineto_events import Ints

RANGE = 1 << 24  # of correlation ids: a longer trace than anybody can load into a viewer
BEFORE_FIRST = 1 << 20  # ids may come in any order


def _none() -> NDArray[np.bool_]:
    return np.zeros(RANGE, np.bool_)  # takes memory only where it is written


@dataclass(slots=True)
class Launches:
    """Correlation ids seen on the device and on the host, those near the first one."""

    offset: int | None = None
    on_device: NDArray[np.bool_] = field(default_factory=_none)
    on_host: NDArray[np.bool_] = field(default_factory=_none)

    def add(self, device_ids: Ints, host_ids: Ints) -> None:
        for ids, seen in ((device_ids, self.on_device), (host_ids, self.on_host)):
            ids = ids[ids > 0]
            if self.offset is None and len(ids):
                self.offset = int(ids[0]) - BEFORE_FIRST
            places = ids - (self.offset or 0)
            seen[places[(places >= 0) & (places < RANGE)]] = True

    def missing(self) -> tuple[int, int]:
        """How many ids of the device have no call, and how many there are; none where no calls were recorded at all."""
        if not self.on_host.any():
            return 0, 0
        return int((self.on_device & ~self.on_host).sum()), int(self.on_device.sum())
