"""Tally tables of THAPI's iprof: host calls by backend, device work, explicit memory traffic; as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rankscope.formats.printed import count
from rankscope.formats.source import Source
from rankscope.model import Figure, Note, RankFacts, Reading, Severity, Tally
from rankscope.readers.iprof_checks import problems, settled_totals
from rankscope.readers.iprof_json import SNIFF as JSON_SNIFF
from rankscope.readers.iprof_json import json_readings
from rankscope.readers.iprof_text import HEAD, Section, quantity, sections

LAYERS = {
    "BACKEND_MPI": "mpi",
    "BACKEND_ZE": "ze",
    "BACKEND_CUDA": "cuda_api",
    "BACKEND_HIP": "hip_api",
    "BACKEND_CL": "opencl",
    "BACKEND_OMP": "omp",
    "BACKEND_CXI": "cxi",
}
DEVICE, TRAFFIC = "Device profiling", "Explicit memory traffic"
TABLE = re.compile(HEAD.pattern.removeprefix(r"\s*").replace(r"\s+", r"\s{1,200}").encode())


def sniff(head: bytes) -> bool:
    return TABLE.search(head) is not None or JSON_SNIFF.match(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading for the sum over all processes, or one for each process where the tables are by process."""
    if JSON_SNIFF.match(source.head()):
        yield from json_readings(source)
        return
    found = 0
    for profile in _profiles(source):
        found += 1
        for reading in _readings(profile, source):
            reading.facts.job = "" if found == 1 else str(found)
            yield reading
    if not found:
        raise source.bad("no table `Name | Time | Time(%) | Calls | …` under a header line")


def _profiles(source: Source) -> Iterator[list[Section]]:
    """The sections of each profile: one that has been seen already begins the next profile."""
    now: dict[tuple[str, ...], Section] = {}
    for section in sections(source.lines()):
        key = section.title, *section.place.values()
        if key in now:
            yield list(now.values())
            now = {}
        now[key] = section
    if now:
        yield list(now.values())


def _readings(profile: list[Section], source: Source) -> Iterator[Reading]:
    by_process: dict[tuple[str, str], Reading] = {}
    for section in profile:
        key = section.place.get("Hostname", ""), section.place.get("Process", "")
        if key not in by_process:
            by_process[key] = Reading(_facts(*key, source))
        _add(section, by_process[key], source)
    hosts = {section.title: section.counts.get("hostnames", 0) for section in profile}
    first = next(iter(by_process.values()))
    first.notes += [*_unequal_hosts(hosts), *_summed(profile)]
    yield from by_process.values()


def _facts(host: str, pid: str, source: Source) -> RankFacts:
    number = int(pid) if pid.isdecimal() and len(pid) < 12 else None
    return RankFacts(host=host, pid=number, versions="iprof", source=str(source))


def _summed(profile: list[Section]) -> Iterator[Note]:
    processes = max(section.counts.get("processes", 0) for section in profile)
    if processes > 1:
        hosts = max(section.counts.get("hostnames", 0) for section in profile)
        yield Note(
            f"these are sums over {processes} processes on {hosts} host{'s' * (hosts != 1)}, not those of one rank"
        )


def _unequal_hosts(hosts: dict[str, int]) -> Iterable[Note]:
    counted = {title: count for title, count in hosts.items() if count}
    if len(set(counted.values())) > 1:
        told = ", ".join(f"{title} {count}" for title, count in counted.items())
        yield Note(f"the parts of this profile were seen on different numbers of hosts: {told}")


def layer_of(title: str) -> str:
    """The layer of a section: several backends of one level share one, named after the first."""
    if title == DEVICE:
        return "gpu"
    return "memory" if title.startswith(TRAFFIC) else LAYERS.get(title.split(",")[0], title.lower())


def _add(section: Section, reading: Reading, source: Source) -> None:
    """The rows of a section, and what is off in them."""
    totals = settled_totals(section)
    reading.figures += [
        Figure(section.title, name, float(count), "count", statistic="total") for name, count in section.counts.items()
    ]
    for row, total in zip(section.rows, totals, strict=True):
        least, most = (quantity(text, section.units) for text in (row.least, row.most))
        tally = Tally(layer_of(section.title), row.name, row.calls, 0.0, section.title, errors=row.errors)
        tally.thread = _thread(section)
        if section.is_bytes:
            tally.bytes = min(total, 2**63 - 1)
            bounds = (("min", least), ("max", most))
            reading.figures += [
                Figure(section.title, row.name, float(span.at), "bytes", statistic=which)
                for which, span in bounds
                if span
            ]
        else:
            tally.total_ns = float(total)
            tally.min_ns, tally.max_ns = (float(span.at) if span else None for span in (least, most))
        reading.tallies.append(tally)
    found = [*problems(section), *((line, "a line that cannot be read is left out") for line in section.damaged)]
    reading.notes += [Note(f"{section.title}: {text}", Severity.WARNING, source.at(line)) for line, text in found]


def _thread(section: Section) -> int:
    return count(section.place.get("Thread", "")) or 0
