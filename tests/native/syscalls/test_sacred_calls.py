"""With every system call trapped and counted, programs do what they do without us."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT
from native.syscalls import runs

MODES = ("calls", "paths")

FORKS = """
import os
for n in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(n)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
SUBPROCESSES = """
import os, subprocess, sys
print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True))
print(subprocess.run(["true"], close_fds=False).returncode)
print(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE).communicate(b"through cat"))
try:
    subprocess.run(["/no/such/program"])
except FileNotFoundError as error:
    print(error)
try:
    os.posix_spawn("/no/such/program", ["x"], os.environ)
except FileNotFoundError as error:
    print(error)
pid = os.posix_spawn("/bin/echo", ["echo", "spawned"], os.environ)
print(os.waitpid(pid, 0)[1])
print(subprocess.run(["sh", "-c", "kill -TERM $$"]).returncode)
print(subprocess.check_output([sys.executable, "-c", "import json; print(json.dumps([1]))"]))
"""
THREADS = """
import threading
done = []
def work(n):
    with open("/proc/self/status") as status:
        done.append((n, status.readline()))
for turn in range(20):
    threads = [threading.Thread(target=work, args=(turn * 8 + n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
print(len(done), sorted(done)[0], sorted(done)[-1])
"""
SIGNALS = """
import os, signal, select, threading, time
seen = []
signal.signal(signal.SIGALRM, lambda number, frame: seen.append(os.getppid() > 0))
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
end = time.monotonic() + 0.3
while time.monotonic() < end:
    os.stat("/"); os.listdir("/tmp"); os.getppid()
r, w = os.pipe()
threading.Timer(0.2, os.write, (w, b"x")).start()
print(os.read(r, 1))
print(select.select([r], [], [], 0.1))
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(seen) > 5, all(seen))
everything = set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}
old = signal.pthread_sigmask(signal.SIG_BLOCK, everything)
print(sorted(old), signal.SIGSYS in signal.pthread_sigmask(signal.SIG_BLOCK, []))
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigpending(), signal.sigwait({signal.SIGUSR1}))
os.kill(os.getpid(), signal.SIGUSR2)
print(signal.sigtimedwait({signal.SIGUSR2}, 1).si_signo)
signal.pthread_sigmask(signal.SIG_SETMASK, old)
print(signal.SIGSYS in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
POOLS = """
import multiprocessing, os
def square(n):
    import decimal
    return n * n, os.getpid() != parent
parent = os.getpid()
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(6)))
"""
ASYNCIO = """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.05; echo hello", stdout=-1)
    server = await asyncio.start_server(lambda r, w: w.write(b"served") or w.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print(await reader.read(), await process.communicate(), await asyncio.to_thread(sum, [1, 2]))
    print(await asyncio.gather(*(asyncio.sleep(0.01, n) for n in range(3))))
asyncio.run(main())
"""
TRACEBACKS = """
import importlib, sys, traceback
def told(call):
    try:
        call()
    except BaseException:
        traceback.print_exc(file=sys.stdout)
told(lambda: __import__("no_such_module"))
told(lambda: importlib.import_module("xml.no_such_module"))
open(sys.argv[1] + "/raises.py", "w").write("import json\\n1 / 0\\n")
open(sys.argv[1] + "/wrong.py", "w").write("def (:\\n")
open(sys.argv[1] + "/inner.py", "w").write("import raises\\n")
sys.path.insert(0, sys.argv[1])
for name in ("raises", "wrong", "inner"):
    told(lambda: __import__(name))
import json
print(importlib.reload(json) is json, json.__spec__.name, [type(f).__name__ for f in sys.meta_path][-3:])
sys.exit(7)
"""
RECURSION = """
import sys, threading
threading.stack_size(64 * 1024)
def deep(n):
    with open("/dev/null"):
        return n if not n else deep(n - 1)
out = []
thread = threading.Thread(target=lambda: out.append(deep(20)))
thread.start(); thread.join()
sys.setrecursionlimit(300)
def endless():
    import sys
    endless()
try:
    endless()
except RecursionError as error:
    print(out, error)
"""
ENDS = {
    "SEGV": "import os, signal; print('now', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
    "ABRT": "import os; print('now', flush=True); os.abort()",
    "TERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "SYS": "import os, signal; os.kill(os.getpid(), signal.SIGSYS)",
    "exit": "import atexit, sys; atexit.register(print, 'bye'); sys.exit(5)",
    "fault": "import ctypes, faulthandler; ctypes.string_at(0)",
}
PROGRAMS = {
    "forks": FORKS,
    "subprocesses": SUBPROCESSES,
    "threads": THREADS,
    "signals": SIGNALS,
    "pools": POOLS,
    "asyncio": ASYNCIO,
    "tracebacks": TRACEBACKS,
    "recursion": RECURSION,
    **ENDS,
}


def same(command: list[str | Path], folder: Path, mode: str) -> None:
    alone, with_us = runs.bare(command), runs.recorded(command, folder / "run", mode)
    assert with_us == alone
    assert ("dispatch", "") in runs.methods(folder / "run")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_python(name: str, mode: str, tmp_path: Path) -> None:
    program = tmp_path / f"{name}.py"
    program.write_text(PROGRAMS[name])
    (tmp_path / "made").mkdir()
    same([sys.executable, program, tmp_path / "made"], tmp_path, mode)


@pytest.fixture(scope="module")
def c_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    source = ROOT / "tests/native/syscalls/sacred.c"
    subprocess.run(["cc", "-O1", "-Wall", "-Wl,-z,now", "-o", folder / "sacred", source, "-pthread"], check=True)
    static = ["cc", "-O1", "-static", "-DONLY_HELLO", "-o", folder / "static", source, "-pthread"]
    if subprocess.run(static, capture_output=True).returncode != 0:
        (folder / "static").unlink(missing_ok=True)
    return folder


CASES = re.findall(r'^\s*\{"(\w+)", ', (ROOT / "tests/native/syscalls/sacred.c").read_text(), re.MULTILINE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_c(case: str, mode: str, c_programs: Path, tmp_path: Path) -> None:
    command = [c_programs / "sacred", case, c_programs / "static"]
    alone, with_us = runs.bare(command), runs.recorded(command, tmp_path / "run", mode)
    assert with_us == alone
    told = runs.methods(tmp_path / "run")
    assert any(method == "dispatch" for method, _ in told)
    if case.startswith("own_"):
        assert any("counted until then" in note for _, note in told)


# What watches a process cannot have its calls trapped: valgrind would run our handler's calls itself; a debugger stops
# at each SIGSYS, and waits in vfork for a child that one would stop.
SHELL = ["sh", "-c", "echo through; exit 3"]
WATCHED = {
    "valgrind": (["valgrind", "-q", "--error-exitcode=9", *SHELL], "valgrind"),
    "gdb": (["gdb", "-nx", "-batch", "-ex", "run", "-ex", "print $_exitcode", "--args", *SHELL], "tracer"),
    "strace": (["strace", "-f", "-qq", "-e", "trace=none", *SHELL], "tracer"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("watcher", WATCHED)
def test_what_watches_the_program_sees_none_of_us(watcher: str, mode: str, tmp_path: Path) -> None:
    command, note = WATCHED[watcher]
    if not shutil.which(watcher):
        pytest.skip(f"{watcher} is not installed")
    alone, with_us = runs.bare(command), runs.recorded(command, tmp_path / "run", mode)
    assert re.sub(r"process \d+", "", str(with_us)) == re.sub(r"process \d+", "", str(alone))
    assert any(note in told for _, told in runs.methods(tmp_path / "run"))
