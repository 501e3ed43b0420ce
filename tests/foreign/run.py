"""Other people's test suites, bare and recorded in every mode, compared test by test.

Results stay in build/foreign and, with the table benchmarks/results/foreign.md, in foreign.jsonl beside it, so that a
stopped run goes on where it was, in this checkout or in another.
Exit code 1: a test differs because of us, that is, in most of its recorded repetitions, and never so bare.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping

from foreign.jobs import Run, run_unit
from foreign.suites import BUILD, MODES, ROOT, TIMED, Mode, Suite, Unit, all_suites, applies
from foreign.table import earlier, names, short, write_table

RESULTS = BUILD / "results"
TABLE = ROOT / "benchmarks" / "results" / "foreign.md"
REPETITIONS = 3
NEW_START = 40  # more differing tests than this are not picked out: the unit runs again as a whole


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it has started, too
    suites = all_suites()
    chosen = [suites[name] for name in arguments.suites.split(",")] if arguments.suites else list(suites.values())
    modes = [MODES[name] for name in arguments.modes.split(",")] if arguments.modes else list(MODES.values())
    if not arguments.table_only:
        skipped = {suite.name: reason for suite in chosen if (reason := suite.prepare())}
        for name, reason in skipped.items():
            print(f"[foreign] {name}: skipped: {reason}")
        runnable = [suite for suite in chosen if suite.name not in skipped]
        planned, until = plan(runnable, modes, arguments), time.monotonic() + arguments.limit_s
        if arguments.bare_only:
            return run_bare(planned, until)
        compare_all(planned, until, arguments.again, arguments.keep)
        remember_skipped(chosen, skipped)
    ours = write_table(RESULTS, suites, TABLE)
    print(f"[foreign] {ours} differences that are ours; benchmarks/results/foreign.md")
    return 1 if ours else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--modes", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--units", default="", help="only units whose name contains one of these")
    parser.add_argument("--limit-s", type=float, default=86400.0, help="start nothing after so many seconds")
    parser.add_argument("--again", action="store_true", help="also what has a result of this revision")
    parser.add_argument(
        "--bare-only", action="store_true", help="run bare what lacks its bare run, which all modes share"
    )
    parser.add_argument("--keep", action="store_true", help="only what has no result, of whatever revision")
    parser.add_argument("--table-only", action="store_true", help="write the table of the results that are there")
    return parser.parse_args()


def plan(suites: list[Suite], modes: list[Mode], arguments: argparse.Namespace) -> list[tuple[Unit, Mode]]:
    """Mode by mode, so that a run that is stopped has the important ones of every suite."""
    units = {suite.name: list(suite.units()) for suite in suites}
    wanted = [part for part in arguments.units.split(",") if part]
    return [
        (unit, mode)
        for mode in modes
        for suite in suites
        for unit in units[suite.name]
        if applies(mode, suite, unit)
        if not wanted or any(part in unit.name for part in wanted)
    ]


def run_bare(planned: list[tuple[Unit, Mode]], until: float) -> int:
    for unit in dict.fromkeys(unit for unit, _ in planned if not unit.skip):
        if time.monotonic() < until:
            run = bare_run(unit)
            print(
                f"[foreign] {unit.suite} {unit.name} bare: {len(run.tests)} tests, {run.end}, {run.seconds:.0f} s",
                flush=True,
            )
    return 0


def compare_all(planned: list[tuple[Unit, Mode]], until: float, again: bool = False, keep: bool = False) -> None:
    revision, commit = revision_of_sources()
    committed = {names(result): done_at(result) for result in earlier(TABLE.with_suffix(".jsonl"))}
    for number, (unit, mode) in enumerate(planned, 1):
        if time.monotonic() > until:
            print(f"[foreign] the time is up: {len(planned) - number + 1} comparisons are left")
            return
        path = RESULTS / unit.suite / unit.name / f"{mode.name}.json"
        done = committed.get((unit.suite, unit.name, mode.name), "")
        if path.exists():
            done = done_at(json.loads(path.read_text()))
        if done and not again and (keep or done == revision):
            continue
        if unit.skip:
            result: dict[str, object] = {"skipped": unit.skip}
        else:
            result = compare(unit, mode)
        result |= {"revision": revision, "commit": commit, "mpi": unit.mpi}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1))
        if unit.skip:
            print(f"[foreign] {number}/{len(planned)} {unit.suite} {unit.name}: skipped: {unit.skip}", flush=True)
            continue
        said = ", ".join(f"{len(result[word])} {word}" for word in ("ours", "flaky") if result[word])
        print(
            f"[foreign] {number}/{len(planned)} {unit.suite} {unit.name} {mode.name}: {result['tests']} tests, "
            f"{said or 'all the same'} ({result['bare_seconds']:.0f} s bare, {result['seconds']:.0f} s recorded)",
            flush=True,
        )
        for test, seen in result["ours"].items():
            print(f"    {test}: bare {short(seen['bare'])}; recorded {short(seen['recorded'])}", flush=True)


def done_at(result: Mapping[str, object]) -> str:
    """The revision that a result is of; none where a program was missing, which may be there today."""
    return "" if "skipped" in result else str(result["revision"])


def revision_of_sources() -> tuple[str, str]:
    """What the results depend on (our sources, committed or not), and the commit as it is shown."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changes = git("diff", "HEAD", "--", "src", "bin", "hatch_build.py")
    commit = git("rev-parse", "--short", "HEAD") + ("+changes" if changes else "")
    changed = hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else ""
    return git("rev-parse", "HEAD:src")[:12] + changed, commit


def compare(unit: Unit, mode: Mode) -> dict[str, object]:
    bare, recorded = bare_run(unit), run_unit(unit, mode)
    differing = differences(bare, recorded)
    ours, flaky = {}, {}
    if differing:
        ours, flaky = judge(unit, mode, differing, bare, recorded)
    is_killed = mode.name == "local" and recorded.end == "time limit"  # its files are still where the node keeps them
    if not unit.compares_output and not recorded.rank_files and not is_killed:
        ours["(recorded)"] = {"bare": ["a rank file"], "recorded": ["no rank file: " + " ".join(recorded.warnings)]}
    if unit.compares_output and len(recorded.warnings) > 1:
        ours["(lines of ours)"] = {"bare": ["none"], "recorded": recorded.warnings[:5]}
    return {
        "tests": max(len(bare.tests), 1),  # a file without tests of its own is one
        "outcomes": Counter(bare.tests.values()) if not unit.compares_output else {},
        "end": bare.end,
        "ours": ours,
        "flaky": flaky,
        "warnings": recorded.warnings[:5],
        "rank_files": recorded.rank_files,
        "bare_seconds": bare.seconds,
        "seconds": recorded.seconds,
        "tail": recorded.tail if ours else "",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def bare_run(unit: Unit) -> Run:
    """A unit's bare run, which no change of ours can change: one is enough for all modes."""
    path = RESULTS / unit.suite / unit.name / "bare.json"
    key = hashlib.sha256(repr((unit.command, unit.variables, unit.replacements)).encode()).hexdigest()
    if path.exists():
        kept = json.loads(path.read_text())
        if kept.pop("key", "") == key:
            return Run(**kept)
    run = run_unit(unit, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run.as_json() | {"key": key}, indent=1))
    return run


def differences(bare: Run, recorded: Run) -> list[str]:
    """Tests whose outcomes differ; "(end)" if the process ended differently with all of them the same."""
    tests = [test for test in {**bare.tests, **recorded.tests} if bare.tests.get(test) != recorded.tests.get(test)]
    return tests or (["(end)"] if bare.end != recorded.end else [])


def judge(unit: Unit, mode: Mode, differing: list[str], bare: Run, recorded: Run) -> tuple[dict, dict]:
    """Which differences are ours: each test is repeated, alternately bare and recorded."""
    names = sorted({test.rpartition(" @")[0] or test for test in differing})
    part = unit if len(names) > NEW_START or "(end)" in names else unit.of_tests(names)
    print(f"[foreign] {unit.suite} {unit.name} {mode.name}: {len(differing)} differ, repeating", flush=True)
    seen: dict[str, dict[str, list[str]]] = {
        test: {"bare": [outcome(bare, test)], "recorded": [outcome(recorded, test)]} for test in differing
    }
    for _ in range(REPETITIONS):
        for word, run in (("bare", run_unit(part, None)), ("recorded", run_unit(part, mode))):
            for test in differing:
                seen[test][word].append(outcome(run, test))
    ours, flaky = {}, {}
    for test, by in seen.items():
        is_never_the_same = len(set(by["bare"])) == len(by["bare"])
        if is_never_the_same or (unit.suite, unit.name, test) in TIMED:
            flaky[test] = by
            continue
        strange = [value for value in by["recorded"] if value not in by["bare"]]
        (ours if len(strange) * 2 > len(by["recorded"]) else flaky)[test] = by
    return ours, flaky


def outcome(run: Run, test: str) -> str:
    return run.end if test == "(end)" else run.tests.get(test, f"not run ({run.end})")


def remember_skipped(chosen: list[Suite], skipped: dict[str, str]) -> None:
    path = RESULTS / "skipped.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    for suite in chosen:
        kept.pop(suite.name, None)
    path.write_text(json.dumps({**kept, **skipped}))


if __name__ == "__main__":
    sys.exit(main())
