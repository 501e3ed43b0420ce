"""The workload of the study of collectives with a library that adds wrongly, in the way that BROKEN_HOW says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "src" / "rankscope" / "studies" / "workloads"))

import allreduce  # noqa: E402
import talking_mpi4py  # noqa: E402

HOW = os.environ["BROKEN_HOW"]


class Broken(talking_mpi4py.Mpi4py):
    def carry_out(self, operation: str, send: Any, receive: Any) -> Any:
        if HOW == "does nothing":
            return receive
        given = send if HOW != "sum of one rank missing" or self.rank == 0 else send * 0
        super().carry_out(operation, given, receive)
        if HOW == "one value of one rank" and self.rank == 1 and len(receive) > 1000:
            receive[1000] += 1
        return receive


talking_mpi4py.Mpi4py = Broken  # type: ignore[misc]
allreduce.main()
