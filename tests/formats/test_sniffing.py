"""Each format recognises its own real files and no other's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from formats.foreign_files import SHARED, shared_files
from rankscope.formats.registry import FORMATS
from rankscope.formats.source import Source

LOGS = (
    "horovod_timeline",
    "nccl_inspector",
    "flight_recorder",
    "nccl_tests",
    "osu",
    "darshan",
    "deepspeed_comms",
    "imagenet",
    "importtime",
    "strace_log",
    "strace_summary",
    "ps_metrics",
)
OWN = {"deepspeed": {"deepspeed_comms"}, "horovod": {"horovod_timeline"}, "ps_metrics": {"ps_metrics"}}
FILES = shared_files()


def test_all_are_registered() -> None:
    assert set(LOGS) <= set(FORMATS)


@pytest.mark.skipif(not FILES, reason="no real files beside the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SHARED).as_posix())
def test_real_files(path: Path) -> None:
    head = Source(path).head()
    claimed = {name for name in LOGS if import_module(f"rankscope.formats.{name}").sniff(head)}
    # document 003 is nvprof's output with the benchmark's own tables in it
    own = {"ps_metrics"} if path.name.startswith("003") else OWN.get(path.parent.name, set())
    assert claimed == own


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello world\n",
        "f(x) = 3\ng(y) = 4\n",
        "x = foo(bar) = 0x7f\n" + "some prose that is long enough\n" * 5,
        '{"traceEvents": [], "name": "NEGOTIATE_ALLREDUCE"}',
        "[1, 2, 3]",
        "name,min,max\na,1,2\n",
        "Epoch 1/10 loss 0.3\n",
        "# size count type\n",
    ],
)
def test_other_texts(text: str) -> None:
    assert [name for name in LOGS if import_module(f"rankscope.formats.{name}").sniff(text.encode())] == []
