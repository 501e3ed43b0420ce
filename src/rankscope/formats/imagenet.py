"""Reads the log of PyTorch's imagenet example: the Time and Data meters of every printed iteration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.event_columns import OtherLines
from rankscope.formats.printed import ZERO, Printed, number
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Layer, Note, RangeTally, RankFacts, Reading, Severity, Tally

LINE = re.compile(
    r"(?:Epoch: \[ *(?P<epoch>\d{1,9})\]|(?P<test>Test): ) ?"
    r"\[ *(?P<at>\d{1,9})/(?P<of>\d{1,9})\]\s+(?P<meters>Time\s.{1,2000})"
)
METER = re.compile(r"(?P<name>Time|Data)\s+(?P<now>[\d.eE+-]{1,30})\s+\( ?\s*(?P<mean>[\d.eE+-]{1,30})\)")
SNIFFED = re.compile(rb"(?m)(?:Epoch: \[ *\d+\]|Test: )\[ *\d+/\d+\]\s+Time\s+[\d.]+\s+\(\s*[\d.]+\)\s")
NAMES = {"Time": "iteration", "Data": "data wait"}
S = Decimal(10**9)
SLACK_S = 1 / S  # the means are of floating-point numbers
FLUSH = 50_000  # figures kept before they are handed on


@dataclass(slots=True)
class Meter:
    """The running mean of one meter as last printed."""

    iterations: int
    mean: Printed
    lowest_ns: float
    highest_ns: float


@dataclass(slots=True)
class Pass:
    """One epoch of training, or one test pass."""

    name: str
    batches: int
    counts_from: int | None = None  # what the first iteration is called
    last: int = -1
    meters: dict[str, Meter] = field(default_factory=dict)
    mixed: bool = False  # lines of several processes that cannot be told apart


def sniff(head: bytes) -> bool:
    """A progress line with a Time meter and its mean in brackets."""
    return SNIFFED.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """Figures for each printed iteration and, behind them, what each pass took in all."""
    other = OtherLines(source)
    yield from other.told_with_last(_iterations(source, other))


def _iterations(source: Source, other: OtherLines) -> Iterator[Reading]:
    reading = Reading(RankFacts(rank=source.hints.rank, source=str(source)))
    passes: list[Pass] = []
    for line, text in source.lines():
        match = LINE.search(text)
        if match is None or not _meters_are_whole(match["meters"]):
            other.add(line, text)
        if match is None:
            continue
        current = _pass(passes, match)
        reading.notes += [Note(said, Severity.WARNING, source.at(line)) for said in _take(reading, current, match)]
        if len(reading.figures) >= FLUSH:
            yield reading
            reading = Reading(reading.facts, continues=True)
    if not passes:
        raise source.bad("no progress line with a Time meter in it")
    for epoch in passes:
        if not epoch.mixed:
            _count(reading, epoch)
    reading.notes += [Note(_mixed(epoch), where=str(source)) for epoch in passes if epoch.mixed]
    yield reading


def _meters_are_whole(meters: str) -> bool:
    return sum(len(re.findall(rf"\b{name}\s", meters)) for name in NAMES) == len(METER.findall(meters))


def _pass(passes: list[Pass], match: re.Match[str]) -> Pass:
    at, of = int(match["at"]), int(match["of"])
    name = f"epoch {int(match['epoch'])}" if match["epoch"] else "test"
    last = passes[-1] if passes else None
    if last is None or last.batches != of or (last.name != name and last.name.rpartition(" after ")[0] != name):
        after = f" after {last.name}" if name == "test" and last is not None else ""
        passes.append(Pass(name + after, of, at if at <= 1 else None))
    elif at <= last.last:
        last.mixed = True
    passes[-1].last = at
    return passes[-1]


def _take(reading: Reading, current: Pass, match: re.Match[str]) -> Iterator[str]:
    at = int(match["at"])
    for meter in METER.finditer(match["meters"]):
        now, mean = number(meter["now"]), number(meter["mean"])
        if now is None or mean is None:
            yield f"{meter['name']}: {meter['now']} ({meter['mean']}) are not numbers"
            continue
        for value, statistic in ((now, ""), (mean, "mean")):
            ns = float(value.value * S)
            figure = Figure(current.name, NAMES[meter["name"]], ns, "ns", at, "iteration", statistic)
            reading.figures.append(figure)
        if not current.mixed:
            yield from _follow(current, meter["name"], at, now, mean)


def _follow(current: Pass, name: str, at: int, now: Printed, mean: Printed) -> Iterator[str]:
    """The running mean must have moved by what the iterations since the last line can have taken."""
    before = current.meters.get(name)
    done = at + 1 - (current.counts_from or 0)
    now_ns = float(now.value * S)
    low = min(now_ns, before.lowest_ns) if before else now_ns
    high = max(now_ns, before.highest_ns) if before else now_ns
    current.meters[name] = Meter(done, mean, low, high)
    if current.counts_from is None:
        return
    steps, start_low, start_high = done, ZERO, ZERO
    if before is not None:
        steps = done - before.iterations
        start_low, start_high = before.mean.low * before.iterations, before.mean.high * before.iterations
    least, most = mean.low * done - start_high, mean.high * done - start_low  # of all iterations since the last line
    if most < now.low - SLACK_S or (steps == 1 and least > now.high + SLACK_S):
        yield f"{name}: a mean of {mean.value} after {done} iterations does not fit the last iteration's {now.value}"


def _count(reading: Reading, epoch: Pass) -> None:
    if epoch.counts_from is None:
        return  # the log begins in the middle of the pass: how many iterations a mean covers is not known
    for name, meter in epoch.meters.items():
        total_ns = float(meter.mean.value * S) * meter.iterations
        figures = (Layer.STEPS, NAMES[name], meter.iterations, total_ns, epoch.name)
        # the wait for data is part of the iteration
        if name == "Data":
            reading.range_tallies.append(RangeTally(*figures, within="iteration"))
        else:
            reading.tallies.append(Tally(*figures))


def _mixed(epoch: Pass) -> str:
    return f"{epoch.name}: several processes wrote to this log; their means are not checked or summed"
