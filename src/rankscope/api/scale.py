"""Quantities over the scale, out of runs of several sizes or of documents that tabulate them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike

from rankscope.analyse.growth import Growth, Series, growth
from rankscope.analyse.scale_series import AXES, of_documents, of_runs
from rankscope.analyse.scaling import laws, projection, speed_up
from rankscope.api.compare import side_of
from rankscope.api.run import Run, Wrong
from rankscope.model import Table

__all__ = ["AXES", "Scaled", "scaled"]


class Scaled:
    """How each series grows."""

    def __init__(self, found: Sequence[Series]) -> None:
        self.grown: list[Growth] = [growth(one) for one in found]

    def tables(self, to: Sequence[float] = ()) -> list[Table]:
        """Laws, speed-up, and what is foretold for the scales `to`."""
        made = [laws(self.grown), speed_up(self.grown)]
        return [*made, projection(self.grown, to)] if to else made


def scaled(sources: Sequence[str | PathLike[str]], axis: str = "ranks", only: str = "") -> Scaled:
    """The series of all these runs whose name or quantity matches `only`; a source may be a folder of runs."""
    folders = dict.fromkeys(folder for source in sources for folder in side_of(str(source))[1])
    stores = [Run(folder).store(events=True) for folder in folders]
    found = [series for store in stores for series in of_documents(store)] + of_runs(stores, axis)
    chosen = [one for one in found if not only or re.search(only, f"{one.name} {one.what}")]
    if not chosen:
        known = sorted({f"{one.name}: {one.what}" for one in found})
        why = f"none matches {only!r}; there are {'; '.join(known[:8])}" if known else "runs of one size show no growth"
        raise Wrong(f"no series over a scale: {why}")
    return Scaled(chosen)
