"""strace's summaries and logs: written by hand, and by the real strace on one program in both forms."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from formats.foreign_files import reading, readings, warnings

SUMMARY = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000600          60        10         4 openat
 30.00    0.000300         300         1           execve
 10.00    0.000100          14         7           close
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000          55        18         4 total
"""
LOG = """\
100 10:00:00.000001 execve("/bin/app", ["app", "-v"], 0x7ffd /* 3 vars */) = 0 <0.000200>
100 10:00:00.000300 openat(AT_FDCWD, "a = b) = 3", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000010>
100 10:00:00.000400 openat(AT_FDCWD</tmp>, "x", O_RDONLY) = 3</tmp/x> <0.000020>
100 10:00:00.000500 clone3({flags=CLONE_VM|CLONE_THREAD, stack=0x7f}, 88 <unfinished ...>
101 10:00:00.000600 read(3,  <unfinished ...>
100 10:00:00.000700 <... clone3 resumed> => {parent_tid=[101]}) = 101 <0.000200>
101 10:00:00.000900 <... read resumed>"abc", 4096) = 3 <0.000300>
100 10:00:00.001000 fork()              = 102 <0.000100>
102 10:00:00.001100 --- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_USER} ---
102 10:00:00.001200 read(3,  <unfinished ...>
102 10:00:00.001300 +++ killed by SIGKILL +++
100 10:00:00.002000 wait4(-1, NULL, 0, NULL) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.000500>
100 10:00:00.002001 exit_group(3)       = ?
101 10:00:00.002002 +++ exited with 3 +++
100 10:00:00.002003 +++ exited with 3 +++
"""


def test_summary() -> None:
    found = reading("strace_summary", SUMMARY, rank=3)
    assert [(t.layer, t.name, t.calls, t.total_ns, t.errors) for t in found.tallies] == [
        ("calls", "openat", 10, 600_000, 4),
        ("calls", "execve", 1, 300_000, 0),
        ("calls", "close", 7, 100_000, 0),
    ]
    assert found.facts.rank == 3
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        (" 60.00    0.000600", " 70.00    0.000600", 3, "openat: 70 %"),
        ("60        10", "90        10", 3, "openat: 10 calls of 90 us"),
        ("   18         4 total", "   19         4 total", 7, "the calls add up to 18"),
        ("   18         4 total", "   18         5 total", 7, "the errors add up to 4"),
        ("0.001000          55", "0.002000         111", 7, "the seconds add up"),
        ("  10         4 openat", "  10        40 openat", 3, "openat: 40 errors in 10 calls"),
    ],
)
def test_summary_that_does_not_add_up(before: str, after: str, line: int, said: str) -> None:
    assert before in SUMMARY
    found = warnings(reading("strace_summary", SUMMARY.replace(before, after)))
    assert any(text.startswith(f"file.txt:{line}: {said}") for text in found), found


def test_summary_cut_short() -> None:
    cut = SUMMARY[: SUMMARY.index(" 10.00")]
    assert warnings(reading("strace_summary", cut)) == ["file.txt:1: the table has no total row: it was cut short"]


def test_several_summaries_with_output_between() -> None:
    found = readings("strace_summary", f"hello\n{SUMMARY}some output of the program\n{SUMMARY}")
    assert [sum(t.calls for t in one.tallies) for one in found] == [18, 18]
    assert warnings(*found) == []


def test_other_columns() -> None:
    text = (
        "syscall              calls  longest shortest     seconds\n"
        "---------------- --------- -------- -------- -----------\n"
        "read                     2 0.000003 0.000001    0.000004\n"
        "---------------- --------- -------- -------- -----------\n"
        "total                    2 0.000003 0.000001    0.000004\n"
    )
    (tally,) = reading("strace_summary", text).tallies
    assert (tally.name, tally.calls, tally.total_ns, tally.min_ns, tally.max_ns) == ("read", 2, 4000, 1000, 3000)


def test_log() -> None:
    main, child = readings("strace_log", LOG)
    rows = {(t.name, t.group, t.thread): (t.calls, t.total_ns, t.errors) for t in main.tallies}
    assert rows == {
        ("execve", "", 0): (1, 200_000, 0),
        ("openat", "ENOENT", 0): (1, 10_000, 1),
        ("openat", "", 0): (1, 20_000, 0),
        ("clone3", "", 0): (1, 200_000, 0),
        ("read", "", 101): (1, 300_000, 0),
        ("fork", "", 0): (1, 100_000, 0),
        ("wait4", "ERESTARTSYS", 0): (1, 500_000, 1),
    }
    facts = main.facts
    assert (facts.pid, facts.command, facts.threads, facts.ending, facts.exit_code) == (100, "app -v", 2, "exited", 3)
    assert facts.elapsed_ns == 2_002_000
    assert (child.facts.pid, child.facts.parent_pid, child.facts.role) == (102, 100, "helper")
    assert (child.facts.ending, child.facts.end_signal) == ("signalled", 9)
    assert [(t.layer, t.name, t.calls) for t in child.tallies] == [("signals", "SIGUSR1", 1)]
    assert [note.text for note in child.notes] == ["read of 102 had not returned when the log ended"]


def test_log_broken_by_straces_own_words() -> None:
    text = (
        'execve("/bin/sh", ["sh"], 0x7ffc /* 9 vars */) = 0\n'
        "     0.000022 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLDstrace: Process 77 attached\n"
        ", child_tidptr=0x7fe6) = 77\n"
        "[pid    77]      0.000010 getpid()      = 77\n"
        "[pid    77]      0.000010 +++ exited with 0 +++\n"
    )
    main, child = readings("strace_log", text)
    assert [(t.name, t.calls) for t in main.tallies] == [("execve", 1), ("clone", 1)]
    assert child.facts.pid == 77


PROGRAM = """
import os, threading
try:
    open("/nonexistent/file")
except OSError:
    pass
thread = threading.Thread(target=lambda: [os.stat("/") for _ in range(20)])
thread.start()
thread.join()
if os.fork() == 0:
    os._exit(5)
os.wait()
"""


@pytest.fixture(scope="module")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed here")
    if subprocess.run([found, "/bin/true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    return found


@pytest.mark.parametrize("options", ["-T", "-tt -T", "-ttt -y", "-r -yy", "-t -T -y"])
def test_real_log_agrees_with_its_summary_and_an_independent_count(strace: str, options: str, tmp_path: Path) -> None:
    written = tmp_path / "log"
    command = [strace, "-f", "-C", "-o", written, *options.split(), sys.executable, "-S", "-c", PROGRAM]
    subprocess.run(command, check=True)
    text = written.read_text()
    log, table = text[: text.index("% time")], text[text.index("% time") :]
    found = readings("strace_log", text)
    assert warnings(*found) == []
    counted: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for one in found:
        for tally in one.tallies:
            if tally.layer == "calls":
                counted[tally.name] += tally.calls
                failed[tally.name] += tally.errors
    summed = reading("strace_summary", table)
    assert counted == Counter({t.name: t.calls for t in summed.tallies})
    assert +failed == +Counter({t.name: t.errors for t in summed.tallies})
    resumed_or_whole = re.findall(r"(?m)^\d+ .*?(\w+)(?: resumed>|\()(?!.*<unfinished).*\) += (?!\?$)", log)
    assert counted.total() == len(resumed_or_whole)
    (child,) = [one for one in found if one.facts.parent_pid is not None]
    assert child.facts.exit_code == 5
    assert found[0].facts.threads == 2
    assert sum(t.calls for t in found[0].tallies if t.thread and "stat" in t.name) >= 20


def test_real_times_are_the_sum_of_those_in_the_log(strace: str, tmp_path: Path) -> None:
    written = tmp_path / "log"
    subprocess.run([strace, "-T", "-o", written, sys.executable, "-S", "-c", "import os"], check=True)
    times_us = [
        int(whole) * 10**6 + int(part) for whole, part in re.findall(r"<(\d+)\.(\d{6})>$", written.read_text(), re.M)
    ]
    found = reading("strace_log", written.read_bytes())
    assert sum(t.total_ns for t in found.tallies) == pytest.approx(1000 * sum(times_us))


def test_real_output_on_the_terminal(strace: str) -> None:
    done = subprocess.run(
        [strace, "-f", "-r", sys.executable, "-S", "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    found = readings("strace_log", done.stderr)
    assert warnings(*found) == []
    names = Counter(t.name for one in found for t in one.tallies)
    assert {"execve", "openat", "clone3"} <= set(names) or {"execve", "openat", "clone"} <= set(names)


@pytest.mark.parametrize("options", [["-c"], ["-c", "-w"], ["-f", "-c", "-S", "calls"]])
def test_real_summary_raises_no_alarm(strace: str, options: list[str]) -> None:
    done = subprocess.run(
        [strace, *options, sys.executable, "-S", "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    found = reading("strace_summary", done.stderr)
    assert warnings(found) == []
    total = re.search(r"(?m)^\s*100\.00\s+\S+\s+\S+\s+(\d+)\s+(\d+) total", done.stderr)
    assert total is not None
    assert sum(t.calls for t in found.tallies) == int(total[1])
    assert sum(t.errors for t in found.tallies) == int(total[2])


def test_damaged_logs_end_in_a_clear_error() -> None:
    from rankscope.formats import strace_log
    from rankscope.formats.source import Source
    from rankscope.model.records import BadFile

    with pytest.raises(BadFile, match="no system call"):
        list(strace_log.read(Source(Path("x"), content=b"nothing\n" * 10)))
    hostile = b"a(" + b"= " * 400_000 + b"\n"
    with pytest.raises(BadFile):
        list(strace_log.read(Source(Path("x"), content=hostile)))
