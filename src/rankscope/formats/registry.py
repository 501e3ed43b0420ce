"""The formats that can be read: a new one is one new file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from rankscope.formats.source import Source
from rankscope.model.records import Reading

# Name, and what it is. The reader is rankscope.formats.<name> with sniff(head) and read(source); a more particular
# format stands before a more general one, since the first that recognises a file reads it.
FORMATS: dict[str, str] = {
    "mpitrace": "profiles of libmpitrace, one rank or all of them",
    "mpip": "reports of mpiP",
    "ipm": "banners of IPM, also in the output of a job",
    "iprof": "tally tables of THAPI's iprof, text or JSON",
    "unitrace": "unitrace output: host calls, device times, timeline",
    "thapi": "THAPI text traces: events, intervals, sums",
    "nvprof": "nvprof output, text or csv: summaries, traces, NVTX results",
    "nvprof_damaged": "nvprof summaries that a scanner or converter damaged",
    "nsys_stats": "csv tables of nsys stats",
    "rocprof": "rocprofv3 and rocprof csv: traces, summaries, counters",
    "horovod_timeline": "Horovod timeline (HOROVOD_TIMELINE)",
    "nccl_inspector": "NCCL Inspector plugin, JSON",
    "flight_recorder": "PyTorch flight recorder dump, JSON",
    "nccl_tests": "nccl-tests and rccl-tests output",
    "osu": "OSU micro-benchmarks output",
    "darshan": "Darshan log as text (darshan-parser)",
    "deepspeed_comms": "DeepSpeed communication logger output",
    "imagenet": "PyTorch imagenet example's log",
    "importtime": "python -X importtime output",
    "strace_log": "strace log of single calls",
    "strace_summary": "strace -c summary",
    "ps_metrics": "PyTorch parameter-server benchmark metrics",
    "kineto": "PyTorch profiler (Kineto) trace, JSON",
    "nsys": "Nsight Systems report, exported as sqlite",
    "rocpd": "rocprofv3 database (rocpd), rocmProfileData (rpd), sqlite",
    "xplane": "XLA profile (.xplane.pb) of JAX or TensorFlow",
    "otf2": "OTF2 trace (its anchor file), with the package otf2",
    "execution_trace": "PyTorch execution trace, JSON, and Chakra trace (.et, JSON)",
    "operations": "tables of operations of training steps, Parquet or CSV",
    # last: it takes any table with a scale
    "handmade": "tables made by hand, Markdown or CSV, with a column of nodes or another scale",
}

Sniff = Callable[[bytes], bool]
Read = Callable[[Source], Iterator[Reading]]
OwnLines = Callable[[Source], frozenset[int]]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its name, what it is, and how it is recognised and read."""

    name: str
    about: str
    sniff: Sniff
    read: Read
    beside: bool = False  # BESIDE = True in the reader: it also reads what another format recognised first
    own_lines: OwnLines | None = None  # of such a reader: the lines that it has in its tables


def format_named(name: str) -> Format:
    """The format of that name; its reader is imported now."""
    module = import_module(f"rankscope.formats.{name}")
    beside = getattr(module, "BESIDE", False), getattr(module, "own_lines", None)
    return Format(name, FORMATS[name], module.sniff, module.read, *beside)


def recognised(source: Source) -> Format | None:
    """The first format that knows the file by its content."""
    return next(iter(all_recognised(source.head())), None)


def all_recognised(head: bytes) -> list[Format]:
    """The first format that knows the content, and those that read beside it."""
    formats: list[Format] = []
    for known in map(format_named, FORMATS):
        claimed = any(not format_.beside for format_ in formats)
        if (known.beside or not claimed) and known.sniff(head):
            formats.append(known)
    return formats
