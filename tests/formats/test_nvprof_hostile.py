"""Whatever stands in a file, the GPU readers end soon with readings or one clear line."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.test_nsys_stats import COPY_SIZES, COPY_TIMES, KERNELS, RANGES
from formats.test_nvprof_damaged import BEGIN, TABS
from formats.test_nvprof_trace import API, COPY, CSV, HEAD, KERNEL
from mpis import ROOT
from rankscope.formats import nsys_stats, nvprof, nvprof_damaged
from rankscope.formats.source import LINE_BYTES
from rankscope.model.records import BadFile
from runs.loaded import Read, run_of, text_source

LOG = (ROOT / "tests" / "formats" / "fixtures" / "nvprof_log.txt").read_text()
DAMAGED = (
    BEGIN + TABS + "GPU activities:\t7.70%\t34.978ms\t\t603.06us\t\t\tone\n18.978ms\n141 134.59us 96.196us 238.57us x\n"
)
SEEDS: list[tuple[Read, str]] = [
    (nvprof.read, LOG),
    (nvprof.read, HEAD + COPY + KERNEL + API),
    (nvprof.read, CSV),
    (nvprof_damaged.read, DAMAGED),
    (nsys_stats.read, KERNELS + COPY_TIMES + COPY_SIZES + RANGES),
]
ODD = (
    "\0",
    "-",
    "9" * 30,
    "nan",
    "inf",
    "1e999",
    ",",
    '"',
    "\t",
    "==",
    "%",
    "\x1b[31m",
    "<b>",
    "é",
    "\n",
    "(",
    " " * 50,
    "",
)


def mutated(text: str, seed: int) -> str:
    """The text with a few pieces cut, doubled or replaced by odd ones."""
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 8)):
        first = chance.randrange(len(text) + 1)
        last = min(len(text), first + chance.choice((0, 1, 2, 8, 80)))
        text = text[:first] + chance.choice((*ODD, text[first:last] * 2)) + text[last:]
    return text


def taken(read: Read, text: str) -> None:
    """Everything the store will ask of the readings is asked."""
    try:
        run_of(read(text_source(text)))
    except BadFile as problem:
        assert str(problem).startswith("log") and "\n" not in str(problem)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.sampled_from(range(len(SEEDS))), st.integers(0, 2**32))
@pytest.mark.slow
def test_mutated_files(which: int, seed: int) -> None:
    read, text = SEEDS[which]
    taken(read, mutated(text, seed))


@given(st.sampled_from([nvprof.read, nvprof_damaged.read, nsys_stats.read]), st.text(max_size=400))
def test_any_text(read: Read, text: str) -> None:
    taken(read, text)


@pytest.mark.parametrize("read", [nvprof.read, nvprof_damaged.read, nsys_stats.read])
@pytest.mark.parametrize(
    "piece", ["1", " ", "\t", "1 ", "=", '"', ",", "<", "</", "%", "1.", "(1 ", "[1] ", "a:", "##", "1us "]
)
def test_long_lines_take_no_more_than_their_length(read: Read, piece: str) -> None:
    head = "==1== Profiling result:\n" + HEAD + API.splitlines()[0] + "\n" + KERNELS + TABS
    text = head + piece * ((LINE_BYTES // 4) // len(piece)) + "\n"
    began = time.process_time()
    taken(read, text)
    assert time.process_time() - began < 5  # seconds for a quarter of a MiB: only a quadratic search comes near


def test_a_line_without_end_is_a_bad_file() -> None:
    with pytest.raises(BadFile, match="line 1 is longer"):
        list(nvprof.read(text_source("1" * (LINE_BYTES + 2))))


def test_names_stay_what_they_are() -> None:
    row = LOG.splitlines()[10]
    hostile = row.replace("ncclKernel_AllReduce(ncclWork)", "\x1b[2J<script>")
    (reading,) = nvprof.read(text_source(LOG.splitlines()[9] + "\n" + hostile + "\n"))
    assert reading.tallies[0].name == "\x1b[2J<script>"  # reports escape it


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (nvprof.read, "=={0}== NVPROF is profiling process {0}, command: warm-up done\nwarm-up done\n"),
        (nvprof.read, "=={0}== Profiling result:\n" + "".join(LOG.splitlines(keepends=True)[9:11])),
        (nvprof_damaged.read, "{0} 134.59us 96.196us 238.57us x\n1.{0}ms\n"),
        (nsys_stats.read, KERNELS),
    ],
)
def test_many_lines_take_no_more_than_their_number(read: Read, line: str) -> None:
    text = BEGIN + "".join(line.format(1000 + at) for at in range(8000))
    began = time.process_time()
    try:
        list(read(text_source(text)))
    except BadFile:
        pass
    assert time.process_time() - began < 20  # seconds for at most a few MB: what grows by the square takes minutes


@pytest.mark.parametrize(
    "text",
    [
        KERNELS + (" " * 20_000 + "(,\n") * 50,
        KERNELS + (" " * 20_000 + "(" + ",1" * 8 + "\n") * 50,
        KERNELS + ",\n" * 500_000,
        "Time (%),Total Time (ns),Instances,Name\n" + "9,9,9,a\n" * 125_000,
    ],
    ids=["spaces", "spaces in a row", "commas", "small rows"],
)
def test_a_megabyte_of_nsys_stats_is_read_in_moments(text: str) -> None:
    began = time.process_time()
    list(nsys_stats.read(text_source(text)))
    assert time.process_time() - began < 5  # seconds; one is usual, the square of the length takes forty
