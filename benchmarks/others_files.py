"""Readers against files that other people have made, each held against what somebody else's program makes of it.

    .venv/bin/python benchmarks/others_files.py FOLDER [--write]

FOLDER holds what is named in SOURCES, in subfolders of these names; what is not there is left out. Nothing of it is a
part of this project. Exit code 1: a file differs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from rankscope.formats import recognition  # noqa: E402
from rankscope.formats.source import Source  # noqa: E402
from rankscope.model.records import BadFile, Reading  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "others_files.md"
SOURCES = {
    "thapi": (
        "`backends/*/tests/*.thapi_text_pretty` of THAPI",
        "the intervals that THAPI's own plugins make of the same trace (`*.bt_text_pretty` beside it): every call, "
        "range, kernel and byte",
    ),
    "otf2": (
        "traces of Score-P in the tests of Pipit",
        "Debian's `otf2-print`: calls and time of each function on each rank",
    ),
    "rocprof": (
        "`results.csv` and `results.stats.csv` of rocprof 1 on MI200 GPUs, in AMD's HPCTrainingExamples",
        "the csv module's sums of `DurationNs`, and rocprof's own sums (`results.stats.csv`)",
    ),
    "xplane": (
        "profiles that `jax.profiler.trace` has written here (JAX 0.10.2 on the processor)",
        "JAX's own reader, `jax.profiler.ProfileData`: events and time of each name; the counts in the timeline for "
        "Chrome that the same call writes",
    ),
}
PRINTED = re.compile(
    r'lttng:(\w+): \{ hostname = "[^"]*", vpid = (\d+), vtid = (\d+), ts = \d+, backend = \d+ \}, '
    r'\{ name = "(.*?)", (?:dur|size) = (\d+)(.*)\}'
)
MS_NS = 10**6  # THAPI's tests print a clock of milliseconds where the trace has nanoseconds
ENTERED = re.compile(r'(ENTER|LEAVE)\s+(\d+)\s+(\d+)\s+Region: "(.*?)"')
RESOLUTION = re.compile(r"^CLOCK_PROPERTIES\s.*?Ticks per Seconds: (\d+)", re.M)
JAX_READER = """
import json, sys
from jax.profiler import ProfileData
sums = {}
for plane in ProfileData.from_file(sys.argv[1]).planes:
    if plane.name.startswith(("/host:", "/device:")):
        for line in plane.lines:
            for event in line.events:
                row = sums.setdefault(event.name, [0, 0])
                row[0] += 1
                row[1] += int(event.end_ns) - int(event.start_ns)
print(json.dumps(sums))
"""


def read(path: Path) -> list[Reading]:
    source = Source(path)
    return [reading for _, reading in recognition.readings(source, recognition.pieces(source))]


def events_of(found: list[Reading]) -> list[dict[str, Any]]:
    rows = []
    for reading in found:
        columns = reading.event_columns
        for at in range(len(columns["start_ns"]) if columns else 0):
            row = {key: columns[key].values[columns[key].codes[at]] for key in ("layer", "name", "group")}
            row |= {key: int(columns[key][at]) for key in ("start_ns", "end_ns", "thread")}
            rows.append(row | {"failed": bool(columns["failed"][at]), "facts": reading.facts})
    return rows


def differing(wanted: Counter[Any], got: Counter[Any]) -> list[str]:
    return [f"missing {key}" for key in wanted - got] + [f"too much {key}" for key in got - wanted]


# ---------------------------------------------------------------- each: files, figures compared, differences, remarks
def thapi(folder: Path) -> tuple[int, int, list[str], list[str]]:
    files, things, wrong, known = 0, 0, [], []
    for path in sorted(folder.rglob("*.thapi_text_pretty")):
        wanted: Counter[Any] = Counter()
        for line in path.with_name(path.name.replace("thapi_text", "bt_text")).read_text().splitlines():
            if match := PRINTED.match(line):
                kind, pid, tid, name, number, rest = match.groups()
                size = int(number) * (MS_NS if kind == "host" else 1)
                key = (
                    (kind, int(pid), name)
                    if kind == "traffic"
                    else (kind, int(pid), int(tid), name, "err = true" in rest)
                )
                wanted[(*key, size)] += 1
        found = read(path)
        got: Counter[Any] = Counter()
        for row in events_of(found):
            kind = "device" if row["layer"] == "gpu" else "host"
            length_ns = row["end_ns"] - row["start_ns"]
            if row["layer"] == "nvtx" and length_ns == 0:
                length_ns = MS_NS  # a mark has no length; THAPI gives it one nanosecond
            got[kind, row["facts"].pid, row["thread"], row["name"], row["failed"], length_ns] += 1
        told = Counter({key: number for key, number in wanted.items() if key[0] == "traffic"})
        bytes_wanted: Counter[Any] = Counter()
        for (_, pid, name, size), number in told.items():
            bytes_wanted[pid, name] += size * number
        bytes_got = Counter({(one.facts.pid, t.name): t.bytes for one in found for t in one.tallies if t.bytes})
        differs = differing(wanted - told, got) + differing(bytes_wanted, bytes_got)
        if (
            differs
            and all("'device'" in text for text in differs)
            and any("ticks of an unknown length" in note.text for one in found for note in one.notes)
        ):
            known.append(f"{path.name}: times of Level Zero without the device's properties are counted, not read")
        else:
            wrong += [f"{path.name}: {text}" for text in differs]
        files, things = files + 1, things + sum(wanted.values())
    return files, things, wrong, known


def otf2(folder: Path) -> tuple[int, int, list[str], list[str]]:
    files, things, wrong = 0, 0, []
    for path in sorted(folder.rglob("traces.otf2")):
        program = os.environ.get("OTF2_PRINT", "otf2-print")
        printed, defined = (
            subprocess.run([program, *more, str(path)], capture_output=True, text=True, check=True).stdout
            for more in ([], ["-G"])
        )
        match = RESOLUTION.search(defined)
        assert match is not None
        wanted: Counter[Any] = Counter()
        calls: Counter[Any] = Counter()
        entered: dict[str, list[int]] = {}
        for line in printed.splitlines():
            if event := ENTERED.match(line):
                kind, place, ticks, region = event.groups()
                if kind == "ENTER":
                    entered.setdefault(place, []).append(int(ticks))
                else:
                    wanted[int(place), region] += int(ticks) - entered[place].pop()
                    calls[int(place), region] += 1
        got: Counter[Any] = Counter()
        for row in events_of(read(path)):
            key = (row["thread"], row["name"])
            got[key] += row["end_ns"] - row["start_ns"]
            calls[key] -= 1
        for key, ticks in wanted.items():
            wanted_ns = ticks * 10**9 / int(match[1])
            if abs(got[key] - wanted_ns) > 2 * 64:  # each end is rounded down to a nanosecond
                wrong.append(f"{path.parent.name} {key}: {wanted_ns:.0f} ns, read {got[key]}")
        wrong += [f"{path.parent.name} {key}: {number} calls too few" for key, number in calls.items() if number]
        files, things = files + 1, things + len(wanted)
    return files, things, wrong, []


def rocprof(folder: Path) -> tuple[int, int, list[str], list[str]]:
    files, things, wrong, known = 0, 0, [], []
    for path in sorted(folder.glob("*.csv")):
        try:
            found = read(path)
        except BadFile:
            known.append("files of counters without times, and tables of Omniperf, are refused with one line")
            continue
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        wanted: Counter[Any] = Counter()
        for row in rows:
            name = row.get("KernelName") or row["Name"]
            wanted[name, "calls"] += int(row.get("Calls") or 1)
            wanted[name, "ns"] += int(row.get("DurationNs") or row["TotalDurationNs"])
        got: Counter[Any] = Counter()
        for event in events_of(found):
            got[event["name"], "calls"] += 1
            got[event["name"], "ns"] += event["end_ns"] - event["start_ns"]
        for tally in (tally for one in found for tally in one.tallies):
            got[tally.name, "calls"] += tally.calls or 0
            got[tally.name, "ns"] += round(tally.total_ns or 0)
        wanted, got = (
            Counter({(_bare(name), what): number for (name, what), number in sums.items()}) for sums in (wanted, got)
        )
        wrong += [f"{path.name}: {text}" for text in differing(wanted, got)]
        stats = path.with_name(path.name.replace("results.csv", "results.stats.csv"))
        if path.name.endswith("results.csv") and stats.exists():
            with stats.open(newline="") as lines:
                own = {_bare(row["Name"]): int(row["TotalDurationNs"]) for row in csv.DictReader(lines)}
            ours = {name: number for (name, what), number in got.items() if what == "ns"}
            wrong += [] if own == ours else [f"{path.name}: not what rocprof itself has summed"]
        files, things = files + 1, things + len(wanted)
    return files, things, wrong, sorted(set(known))


def _bare(name: str) -> str:
    return name.removesuffix(" [clone .kd]").removesuffix(".kd")


def xplane(folder: Path) -> tuple[int, int, list[str], list[str]]:
    files, things, wrong = 0, 0, []
    python = os.environ.get("JAX_PYTHON", str(ROOT / ".envs" / "jax" / "bin" / "python"))
    for path in sorted(folder.rglob("*.xplane.pb")):
        done = subprocess.run([python, "-c", JAX_READER, str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            try:
                read(path)
                wrong.append(f"{path.name}: read, though JAX cannot read it")
            except BadFile:
                wrong += []
            continue
        wanted = {name: tuple(numbers) for name, numbers in json.loads(done.stdout).items()}
        got: dict[str, tuple[int, int]] = {}
        for row in events_of(read(path)):
            name = row["name"] if row["layer"] != "python" else f"${row['name']}"
            name = name.rpartition("#")[0] if row["layer"] == "step" else name
            calls, ns = got.get(name, (0, 0))
            got[name] = (calls + 1, ns + row["end_ns"] - row["start_ns"])
        for name in wanted.keys() | got.keys():
            calls, ns = wanted.get(name, (0, 0))
            read_calls, read_ns = got.get(name, (0, 0))
            if calls != read_calls or abs(ns - read_ns) > 2 * calls:
                wrong.append(f"{path.name} {name!r}: {calls} × {ns} ns, read {read_calls} × {read_ns}")
        for beside in path.parent.glob(path.name.replace(".xplane.pb", ".trace.json.gz")):
            events = json.loads(gzip.decompress(beside.read_bytes()))["traceEvents"]
            shown = Counter(event["name"] for event in events if event.get("ph") == "X")
            counts = Counter({name: calls for name, (calls, _) in got.items()})
            wrong += [f"{beside.name}: {text}" for text in differing(shown, counts)]
        files, things = files + 1, things + len(wanted)
    return files, things, wrong, []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    lines = [
        "# Other people's files",
        f"`benchmarks/others_files.py`, {date.today()}. None of them is part of this project.",
    ]
    lines += ["", "| files | held against | files | figures compared | different |", "|---|---|---:|---:|---:|"]
    notes: list[str] = []
    failed = 0
    for name, compare in (("thapi", thapi), ("otf2", otf2), ("rocprof", rocprof), ("xplane", xplane)):
        if not (options.folder / name).exists():
            continue
        files, things, wrong, known = compare(options.folder / name)
        about, against = SOURCES[name]
        lines.append(
            f"| [{name}](../../docs/formats/{name}.md): {about} | {against} | {files} | {things:,} | {len(wrong)} |"
        )
        notes += [f"- {name}: {text}" for text in dict.fromkeys((*known, *wrong))]
        failed += len(wrong)
    text = "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"
    print(text)
    if options.write:
        RESULT.write_text(text)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
