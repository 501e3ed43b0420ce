"""Runs of more steps than a rank file holds: the ring has the newest, blocks as the recorder makes them have all."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hatch_build
from rankscope.rank_file import STEP, STEP_BLOCK, Part, Rows, StepFlag
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import MILLI, SECOND
from runs.step_runs import rank

DRIVER = Path(__file__).parent / "blocks_driver.c"
RING, FILE_BYTES, MOST_BLOCKS = 8192, 4 << 20, 512


def steps_of(own_ms: Any, blocked_ms: Any, part: Part = Part.FORWARD, checkpoint_ms: Any = 0.0) -> Rows:
    """Steps one after the other from 1 s on: what they compute in one part, blocked in communication, checkpoints."""
    rows = np.zeros(len(own_ms), STEP)
    rows["number"] = np.arange(1, len(rows) + 1)
    rows["flags"][:2] = StepFlag.WARMUP
    rows["part_ticks"][:, part] = own_ms * MILLI
    rows["part_ticks"][:, Part.COMMUNICATION] = rows["blocked_ticks"][:, Part.COMMUNICATION] = blocked_ms * MILLI
    rows["part_ticks"][:, Part.CHECKPOINT] = checkpoint_ms * MILLI
    ends = SECOND + np.cumsum(np.round((own_ms + blocked_ms + checkpoint_ms) * MILLI)).astype(np.int64)
    rows["begin_ticks"], rows["end_ticks"] = np.concatenate([[SECOND], ends[:-1]]), ends
    return rows


def ranks_of(count: int, slow: dict[int, tuple[int, int, float]], long_every: int = 0) -> list[RankFileWriter]:
    """Four ranks, 10 ms a step; some take so many ms longer in backward from one step to another."""
    random = np.random.default_rng(7)
    own = 10 * np.exp(random.normal(0, 0.03, (4, count)))
    own[:, random.random(count) < (1 / long_every if long_every else 0)] *= 10
    for who, (first, last, longer) in slow.items():
        own[who, first - 1 : last - 1] += longer
    length = own.max(axis=0) + 1
    made = []
    for number in range(4):
        each = rank(number, 4)
        rows = steps_of(own[number], length - own[number], Part.BACKWARD)
        each.steps(rows[-RING:], capacity=RING)
        each.step_blocks(blocks_of(rows))
        made.append(each)
    return made


def blocks_of(rows: Rows, ring: int = RING, file_bytes: int = FILE_BYTES) -> Rows:
    """As the recorder leaves them in its file."""
    blocks = np.zeros(MOST_BLOCKS, STEP_BLOCK)
    count = _driver().keep_blocks(
        rows.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(len(rows)),
        ctypes.c_uint32(ring),
        ctypes.c_uint64(file_bytes),
        blocks.ctypes.data_as(ctypes.c_void_p),
    )
    return blocks[:count]


@cache
def _driver() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(compiled(Path(folder) / "blocks.so", "-shared", "-fPIC")))


def compiled(target: Path, *flags: str) -> Path:
    """The driver as a library or a program."""
    headers = [*hatch_build.quoted_folders(), f"-I{hatch_build.NATIVE / 'torch'}"]
    command = [*hatch_build.compiler(), "-std=gnu11", "-O2", *flags, *headers, "-o", str(target), str(DRIVER)]
    subprocess.run(command, check=True)
    return target
