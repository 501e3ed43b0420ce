"""Damaged inputs over all readers, and that the harness sees what it should see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from fuzz import harness
from fuzz.harness import Findings, Seed, fuzz, try_input
from fuzz.mutations import MUTATIONS, mutated
from fuzz.seeds import collected
from mpis import ROOT
from rankscope.formats import registry
from rankscope.formats.source import Source
from rankscope.model.records import RankFacts, Reading, Tally

RUN = [sys.executable, "-m", "fuzz.run"]


def fuzzed(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run([*RUN, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_some_damaged_inputs_over_all_readers() -> None:
    assert re.search(r"^\d+ inputs, 0 kinds of failure", fuzzed("--count", "3000", "--seconds", "15"), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_damaged_inputs_over_all_readers() -> None:
    assert "\n100000 inputs, 0 kinds of failure" in fuzzed("--count", "100000", "--seed", "3")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["unitrace", "thapi", "rocprof", "rocpd", "xplane"])
def test_ten_thousand_damaged_inputs_of_one_format(name: str) -> None:
    assert "\n10000 inputs, 0 kinds of failure" in fuzzed("--count", "10000", "--seed", "5", "--format", name)


def test_every_format_has_a_seed() -> None:
    assert {seed.format for seed in collected()} >= registry.FORMATS.keys()


def test_the_same_number_is_the_same_input() -> None:
    others = [seed.data for seed in collected()]
    first, second = (mutated(others[0], Random("0:5"), others) for _ in range(2))
    assert first == second != others[0]


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_takes_every_seed(mutation: Callable[..., bytes]) -> None:
    data = [b"x", *(seed.data for seed in collected())]
    made = [mutation(one, Random(number), data) for number, one in enumerate(data)]
    assert made != data


def crash(source: Source) -> Iterator[Reading]:
    yield Reading(RankFacts(), tallies=[Tally("a", "b", int(source.text()[100:101] or "x"), 1.0)])


def hang(source: Source) -> Iterator[Reading]:
    while source:
        pass
    yield Reading(RankFacts())


def hog(source: Source) -> Iterator[Reading]:
    kept = b"x" * (600 << 20)
    yield Reading(RankFacts(command=str(len(kept))))


def overflow(source: Source) -> Iterator[Reading]:
    yield Reading(RankFacts(), tallies=[Tally("a", "b", 2**80, 1.0)])


def sound(source: Source) -> Iterator[Reading]:
    raise source.bad("never")


@pytest.mark.parametrize(
    ("read", "message"),
    [(crash, "ValueError"), (hang, "TooSlow"), (hog, "MiB for"), (overflow, "OverflowError"), (sound, "")],
)
def test_the_harness_sees(read: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("rankscope.formats.wrong")
    module.sniff, module.read = (lambda head: False), read
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(registry, "FORMATS", {"wrong": ""})
    monkeypatch.setattr(harness, "FORMATS", registry.FORMATS)
    monkeypatch.setattr(harness, "LEAST_SECONDS", 0.2)
    found = Findings()
    try_input(b"some bytes", "wrong", Random(0), tmp_path / "x", found)
    told = [failure[2] for failure in found.failures]
    assert (any(message in text for text in told) if message else not told) and found.inputs == 1


def test_the_clock_stops_the_loop(tmp_path: Path) -> None:
    assert fuzz([Seed(b"a")], range(100), tmp_path / "x", until=0.0).inputs == 0
