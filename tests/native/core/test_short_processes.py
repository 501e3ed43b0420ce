"""A process that has nothing to tell leaves nothing but a count; whoever has something to tell loses none of it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankscope as api
from installed import Run, compile_c, library_of
from programs import recorded
from rankscope.model.records import RankFacts
from rankscope.rank_file import HEADER
from rankscope.rank_files.read import read_rank_file

# Forks children that leave at once, with these statuses; negative: by that signal.
FORKS = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        int how = atoi(words[i]);
        pid_t child = fork();
        if (!child && how < 0)
            raise(-how);
        if (!child)
            _exit(how);
        waitpid(child, NULL, 0);
    }
    if (!vfork())
        _exit(3);
    return 0;
}
"""

# The first thing that this process tells is told by sixteen threads at once, after its environment was cleared and its
# place on the stack was put to other uses, as programs do that change their titles.
THREADS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define THREADS 16
#define RANGES 500
extern char **environ;
static uint64_t (*begin)(const char *);
static void (*end)(const char *, uint64_t);
static pthread_barrier_t together;
static void *work(void *unused)
{
    pthread_barrier_wait(&together);
    for (int i = 0; i < RANGES; i++)
        end("a range", begin("a range"));
    return unused;
}
int main(void)
{
    pthread_t threads[THREADS];
    char *first = environ[0], *last = first;
    begin = (uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "rankscope_range_begin");
    end = (void (*)(const char *, uint64_t))dlsym(RTLD_DEFAULT, "rankscope_range_end");
    for (char **word = environ; *word; word++)
        last = *word + strlen(*word);
    clearenv();
    memset(first, 'x', (size_t)(last - first));
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (char *at = first; at < last; at++)
        if (*at != 'x')
            return 1;
    printf("%d\\n", THREADS * RANGES);
    return 0;
}
"""


@pytest.fixture
def recorder(rankscope: str) -> str:
    if library_of(Path(rankscope)).stat().st_size < 100_000:
        pytest.skip("the recorder is not built: run make native")
    return rankscope


def files(folder: Path) -> list[RankFacts]:
    return [read_rank_file(path).facts for path in sorted(folder.glob("ranks/*/*.rank"))]


def counted(facts: RankFacts) -> tuple[int, int]:
    return facts.short_processes, facts.short_failed


def test_shell_and_compilers_leave_one_file(recorder: str, run: Run, work: Path) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; /bin/false; (exit 3); /bin/sh -c 'kill -9 $$'; exit 0"
    done = run(recorder, "run", "--out", "prof", "sh", "-c", script)
    assert done.returncode == 0
    [shell] = files(work / "prof")
    assert counted(shell) == (13, 3) and shell.short_cpu_ns > 0
    found = api.open(work / "prof")
    told = {row[0]: row[1:] for row in found.table("coverage").rows}
    number, text = told["short processes that left no file"]
    assert number == 13 and str(text).endswith("3 did not end with exit 0")
    overview = found.table("overview")
    assert dict(zip(overview.columns, overview.rows[0], strict=True))["processes"] == 14


def test_children_of_python(recorder: str, run: Run, work: Path) -> None:
    """By fork, by vfork and exec, and with an environment of their own."""
    program = """if True:
        import os, subprocess
        for _ in range(10):
            subprocess.run(["true"]), subprocess.run(["true"], env=dict(os.environ)), subprocess.run("true", shell=True)
        for _ in range(10):
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)"""
    run(recorder, "run", "--out", "prof", sys.executable, "-c", program)
    [python] = files(work / "prof")
    assert counted(python) == (40, 0)


def test_a_helper_that_tells_something_has_a_file_and_counts_its_own(recorder: str, run: Run, work: Path) -> None:
    python = f'{sys.executable} -c \'import os, json; os.system("exit 3"), os.system("true")\''
    run(recorder, "run", "--out", "prof", "sh", "-c", f"{python}; exit 0")
    [shell] = [one for one in files(work / "prof") if one.command.startswith("sh")]
    [helper] = [one for one in files(work / "prof") if not one.command.startswith("sh")]
    assert (counted(shell), counted(helper)) == ((0, 0), (2, 1))
    assert (helper.parent_pid, helper.ancestor_pid) == (shell.pid, shell.pid)


def test_forked_children_and_those_of_vfork(recorder: str, run: Run, work: Path) -> None:
    compile_c(FORKS, work / "forks")
    run(recorder, "run", "--out", "prof", "./forks", "0", "0", "1", "7", "-9", "-11", "0")
    [parent] = files(work / "prof")
    assert counted(parent) == (7, 4)
    run(recorder, "run", "--out", "below", "sh", "-c", "./forks 0 0 1; exit 0")
    [shell] = files(work / "below")  # ./forks itself has nothing to tell either
    assert counted(shell) == (4, 1)


def test_who_lived_or_worked_long_has_a_file(recorder: str, run: Run, work: Path) -> None:
    busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    run(recorder, "run", "--out", "prof", "sh", "-c", f"sleep 1.1; sh -c '{busy}; exit 5'; /bin/true; exit 0")
    found = {one.command.split()[0] + str(one.exit_code): one for one in files(work / "prof")}
    assert set(found) == {"sh0", "sleep0", "sh5"}
    assert counted(found["sh0"]) == (1, 0)
    assert (found["sh5"].user_ns or 0) + (found["sh5"].system_ns or 0) >= 10**8


def test_a_rank_is_seen_whatever_becomes_of_it(recorder: str, run: Run, work: Path) -> None:
    """The first process of a rank has a file at once; those it starts have not."""
    ranks = "for r in 0 1; do RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r sh -c '/bin/true; kill -9 $$'; done; exit 0"
    run(recorder, "run", "--out", "prof", "sh", "-c", ranks)
    rows = api.open(work / "prof").query("SELECT rank, ending, end_signal, short_processes FROM ranks ORDER BY rank")
    assert rows.rows == [(0, "signalled", 9, 1), (1, "signalled", 9, 1), (None, "exited", None, 0)]


def test_what_a_process_becomes_is_told(recorder: str, run: Run, work: Path) -> None:
    """A rank's shell that execs a program with nothing to tell: how that ended, also where the environment is stale."""
    stale = "import os, json; os.execve('/bin/sh', ['sh', '-c', 'exit 4'], {**os.environ})"
    script = f'RANK=0 WORLD_SIZE=1 sh -c \'exec sh -c "exit 3"\'; {sys.executable} -c "{stale}"; exit 0'
    run(recorder, "run", "--out", "prof", "sh", "-c", script)
    ends = sorted((one.ending, one.exit_code) for one in files(work / "prof"))
    assert ends == [("exited", 0), ("exited", 3), ("exited", 4), ("replaced", None), ("replaced", None)]


def test_threads_that_tell_the_first_thing_together(recorder: str, run: Run, work: Path) -> None:
    compile_c(THREADS, work / "threads", "-pthread", "-ldl")
    for turn in range(5):
        done = run(recorder, "run", "--out", f"prof{turn}", "sh", "-c", "./threads; exit $?")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"8000\n", b"")
        readings = [recorded.read(path) for path in recorded.rank_files(work / f"prof{turn}")]
        [reading] = [one for one in readings if one.facts.executable.endswith("/threads")]
        assert recorded.calls_by_name(reading) == {"a range": 8000}


@pytest.fixture
def small_disk(work: Path) -> Iterator[Path]:
    folder = work / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full_when_there_is_something_to_tell(recorder: str, run: Run, small_disk: Path) -> None:
    told = f'{sys.executable} -c "import json; print(json.dumps(5))"'
    script = f"dd if=/dev/zero of=disk/ballast bs=4k 2>/dev/null; {told}; sleep 1.1; exit 6"
    done = run(recorder, "run", "--out", "disk/prof", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (6, b"5\n", b"")
    [shell] = files(small_disk / "prof")
    assert shell.exit_code == 6


def test_an_old_file_without_these_counters_is_read(recorder: str, run: Run, work: Path) -> None:
    run(recorder, "run", "--out", "prof", "sh", "-c", "/bin/true; exit 0")
    [path] = recorded.rank_files(work / "prof")
    octets = bytearray(path.read_bytes())
    assert int.from_bytes(octets[16:20], sys.byteorder) == HEADER.itemsize
    octets[16:20] = (2464).to_bytes(4, sys.byteorder)
    octets[2464 : HEADER.itemsize] = bytes(HEADER.itemsize - 2464)
    path.write_bytes(octets)
    assert counted(read_rank_file(path).facts) == (0, 0)


def test_nothing_of_it_is_seen_by_the_program(recorder: str, run: Run, work: Path) -> None:
    """Descriptors and signal mask of a process that tells something late are its own."""
    look = (
        "import json, os; print(os.listdir('/proc/self/fd'), open('/proc/self/status').read().split('SigBlk')[1][:20])"
    )
    script = f"{shlex.join([sys.executable, '-c', look])}; exit 0"
    bare, done = run("sh", "-c", script), run(recorder, "run", "--out", "prof", "sh", "-c", script)
    assert (done.stdout, done.stderr) == (bare.stdout, bare.stderr)
