# ruff: noqa: E501
"""Programs, ours compiled in many ways and other people's as they are: output, exit code and signal must be those of the bare run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from foreign.suites import BUILD, HERE, PYTHON, Suite, Unit, has

SOURCES = HERE / "programs"
BUILT = BUILD / "programs"
LIMIT_S = 90
# Process ids, addresses and build paths, in what sanitizers, valgrind and gdb print.
NUMBERS = (
    (r"==\d+==", "==PID=="),
    (r"0x[0-9a-f]{4,}", "ADDRESS"),
    (r"\b(pid=|pid|process|PID:|tid=|LWP|Thread) ?\d+", r"\1 NUMBER"),
    (r"\d+ byte\(s\)( leaked)? in \d+ (object|allocation)", r"MANY bytes\1 in MANY \2"),
    (r"(?m)^(=>| ) ADDRESS:.*$", "SHADOW"),  # what lies around a bad address in the heap
    (r"\n? +#\d+ .*", ""),  # frames: sanitizers and glibc wrap them differently from run to run
    (r"line (\d+): +\d+ ", r"line \1: NUMBER "),  # bash, of a child that died
    (r"\(\S*(BuildId|build)[^)]*\)", "(BUILD)"),
    (r"#\d+ ADDRESS in __libc_start[^\n]*\n", ""),
)

# ---------------------------------------------------------------- ours, compiled in many ways
COMPILED = {
    "plain": ("gcc", "works.c", "-O2"),
    "no-pie": ("gcc", "works.c", "-no-pie"),
    "now": ("gcc", "works.c", "-Wl,-z,now,-z,relro"),
    "execstack": ("gcc", "works.c", "-z", "execstack"),
    "gprof": ("gcc", "works.c", "-pg"),
    "static": ("gcc", "works.c", "-static", "-DNO_DLOPEN"),
    "static-pie": ("gcc", "works.c", "-static-pie", "-DNO_DLOPEN"),
    "musl": ("musl-gcc", "works.c", "-O2", "-DNO_DLOPEN"),
    "musl-static": ("musl-gcc", "works.c", "-static", "-DNO_DLOPEN"),
    "asan": ("gcc", "works.c", "-fsanitize=address", "-g", "-DBUG"),
    "asan-static": ("gcc", "works.c", "-fsanitize=address", "-static-libasan", "-g", "-DBUG"),
    "lsan": ("gcc", "works.c", "-fsanitize=leak", "-g", "-DBUG"),
    "tsan": ("gcc", "works.c", "-fsanitize=thread", "-g", "-DBUG"),
    "ubsan": ("gcc", "works.c", "-fsanitize=undefined", "-g", "-DBUG"),
    "clang": ("clang", "works.c", "-O2"),
    "clang-asan": ("clang", "works.c", "-fsanitize=address", "-g", "-DBUG"),
    "c++": ("g++", "throws.cc", "-O2"),
    "c++-static": ("g++", "throws.cc", "-static"),
    "c++-asan": ("g++", "throws.cc", "-fsanitize=address"),
    "c++-tsan": ("g++", "throws.cc", "-fsanitize=thread"),
}
ENDS = ("0", "3", "abort", "segv", "term", "kill", "_exit", "thread_exit")
ARGUMENTS = {
    "plain": ENDS,
    "musl": ENDS,
    "static": ("0", "3", "abort"),
    "asan": ("0", "3", "abort", "segv", "_exit", "use_after_free", "leak"),
    "asan-static": ("0", "3", "use_after_free", "leak"),
    "clang-asan": ("0", "use_after_free", "leak"),
    "lsan": ("0", "leak"),
    "tsan": ("0", "3", "abort", "race"),
    "ubsan": ("0", "overflow"),
    "c++": ("", "uncaught", "quick"),
    "c++-asan": ("", "uncaught"),
    "c++-tsan": ("",),
    "c++-static": ("", "uncaught"),
}
ALLOCATORS = {
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "mimalloc": "libmimalloc.so.2",
}
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass(frozen=True)
class Program:
    """A shell script, or a command that is started itself, with what must be installed for it."""

    name: str
    needs: tuple[str, ...]
    script: str = ""
    command: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


REDIS = """
redis-server --port 0 --unixsocket "$PWD/s" --save '' --daemonize no >log 2>&1 &
while ! redis-cli -s "$PWD/s" ping >/dev/null 2>&1; do sleep 0.1; done
for i in 1 2 3 4 5; do redis-cli -s "$PWD/s" incr counter; done
redis-cli -s "$PWD/s" shutdown nosave; wait $!; echo "ended with $?"
"""
GIT = """
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
git init -q -b main . && git config user.email a@b && git config user.name n && seq 1000 >file && git add file && git commit -qm first
seq 2000 >file && git commit -qam second && git log --format=%H && git repack -adq && git fsck --strict && git clone -q . copy && git -C copy diff HEAD~1 --stat
"""
MAKE = """
printf 'all: a b c d\\n%%:\\n\\t@sh -c "seq 100 | sort -rn | head -1" >$@; echo made $@\\n' >Makefile
make -j4 all | sort && cat a b c d && make -f /dev/null nothing; echo "make said $?"
"""
NODE = """
const {Worker, isMainThread, parentPort} = require('worker_threads'), {execFileSync} = require('child_process');
if (!isMainThread) { parentPort.postMessage(6 * 7); } else {
new Worker(__filename).on('message', m => { console.log('worker', m, execFileSync('echo', ['child']).toString().trim());
require('crypto').pbkdf2('a', 'b', 1000, 16, 'sha256', (e, k) => { console.log(k.toString('hex')); process.exitCode = 3; }); }); }
"""
JAVA = """
import java.util.stream.*;
public class Hello { public static void main(String[] a) throws Exception {
System.out.println(IntStream.range(0, 100000).parallel().mapToLong(i -> i).sum());
Process p = new ProcessBuilder("sh", "-c", "echo child; exit 4").inheritIO().start(); System.out.println(p.waitFor());
Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook"))); System.exit(6); } }
"""
GO = """
package main
import ("fmt"; "os"; "os/exec"; "sync")
func main() { var w sync.WaitGroup; for i := 0; i < 100; i++ { w.Add(1); go func() { defer w.Done() }() }; w.Wait()
o, _ := exec.Command("sh", "-c", "echo child").Output(); fmt.Print(string(o)); os.Exit(5) }
"""
PYTHON_PROGRAM = """
import multiprocessing, os, subprocess, sys, threading
def square(x): return x * x
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool: print(method, pool.map(square, range(5)))
    print(subprocess.run(["sh", "-c", "echo child; kill -9 $$"]).returncode)
    threads = [threading.Thread(target=square, args=(i,)) for i in range(50)]
    [t.start() for t in threads]; [t.join() for t in threads]
    sys.stdout.flush(); pid = os.fork()
    if not pid: os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); raise SystemExit("the end")
"""


def heredoc(name: str, text: str) -> str:
    return f"cat >{name} <<'END'\n{text}\nEND\n"


PLAIN = str(BUILT / "plain")
PROGRAMS = (
    Program("true", ("true",), command=("true",)),
    Program("not found", (), command=("sh", "-c", "no-such-command")),
    Program("shell", ("bash",), "seq 5 | while read i; do (exit $i); echo $?; done; sh -c 'kill -TERM $$'; echo $?; exec bash -c 'exit 6'"),
    Program("shell killed", ("bash",), command=("bash", "-c", "kill -9 $$")),
    Program("traps", ("bash",), "trap 'echo usr1' USR1; trap 'echo end' EXIT; kill -USR1 $$; sleep 0.1 & wait; exit 3"),
    Program("pipe broken", ("bash",), "yes | head -1; echo ${PIPESTATUS[@]} $?"),
    Program("many processes", ("xargs",), "seq 60 | xargs -P 4 -n 1 sh -c 'exit 0' && find /usr/share/zoneinfo -maxdepth 1 -type f -exec true {} + && echo done"),
    Program("timeout", ("timeout",), command=("timeout", "0.3", "sleep", "60")),
    Program("env -i", ("env",), command=("env", "-i", "/bin/sh", "-c", "env | sort; exit 2")),
    Program("setsid", ("setsid",), "setsid -w sh -c 'echo in a session; exit 3'; echo $?; nohup sh -c 'echo nohup' 2>/dev/null; nice -n 3 nice"),
    Program("limits", ("bash",), "ulimit -n 32 -v 4000000; ulimit -n; bash -c 'exec 30</dev/null; ls /proc/self/fd | wc -l'"),
    Program("descriptors", ("bash",), "ls -l /proc/self/fd | grep -v proc | awk '{print $9}' | tr '\\n' ' '"),
    Program("su", ("su", "setpriv"), "su -s /bin/sh nobody -c 'id -un; exit 3'; echo $?; setpriv --reuid 65534 --regid 65534 --clear-groups id -u"),
    Program("unshare", ("unshare",), "unshare -mpf --mount-proc sh -c 'echo $$; ps -e -o comm= | wc -l; exit 3'; echo $?"),
    Program("script", ("script",), "script -qec 'tty >/dev/null && echo terminal; exit 4' /dev/null; echo $?"),
    Program("chroot busybox", ("busybox", "chroot"), "mkdir -p r/bin && cp $(command -v busybox) r/bin && chroot r /bin/busybox sh -c 'echo inside; exit 7'; echo $?"),
    Program("busybox", ("busybox",), "busybox sh -c 'busybox seq 3 | busybox sort -rn; exit 4'; echo $?"),
    Program("perl", ("perl",), r"""perl -e 'use POSIX; $SIG{CHLD}=sub{}; for (1..5) { my $p = fork; if (!$p) { POSIX::_exit($_) } waitpid $p, 0; print $? >> 8, "\n" } print `echo backtick`; $|=1; die "dead\n"'"""),
    Program("ruby", ("ruby",), r"""ruby -e 'p (1..5).map { |i| Thread.new { i * i } }.map(&:value); pid = fork { exit! 4 }; Process.wait pid; p $?.exitstatus; puts `echo child`; at_exit { puts "end" }; abort "aborted"'"""),
    Program("lua", ("lua5.4",), "lua5.4 -e 'print(io.popen(\"echo child\"):read(\"a\")); os.exit(3)'"),
    Program("tcl", ("tclsh",), "echo 'puts [exec echo child]; exit 3' | tclsh"),
    Program("awk", ("gawk",), "seq 1000 | gawk '{s += $1; \"echo x\" | getline y; close(\"echo x\")} END {print s, y; exit 2}'"),
    Program("jq", ("jq",), "echo '{\"a\": [1, 2, 3]}' | jq -e '.a | add > 7'"),
    Program("bc", ("bc",), "echo 'scale=50; 4*a(1)' | bc -l"),
    Program("sqlite", ("sqlite3",), "sqlite3 db 'create table t as with recursive c(x) as (select 1 union all select x+1 from c where x<5000) select x from c; select sum(x) from t; pragma integrity_check; select nothing;'"),
    Program("git", ("git",), GIT),
    Program("make", ("make",), MAKE),
    Program("gcc", ("gcc",), heredoc("a.c", "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 4; }") + "gcc -O2 -pipe a.c -o a && ./a; echo $?; gcc -flto a.c -o b && ./b"),
    Program("tar", ("tar", "gzip", "xz"), "mkdir d; seq 20000 >d/a; tar -czf a.tgz d && tar -cJf a.txz d && rm -r d && tar -xJf a.txz && md5sum d/a; tar -xf nothing; echo $?"),
    Program("openssl", ("openssl",), "echo text | openssl dgst -sha256; openssl enc -aes-256-cbc -pbkdf2 -k a -nosalt -in /dev/null | od -c"),
    Program("curl", ("curl",), "echo text >file; curl -s file://$PWD/file; curl -s http://127.0.0.1:1/; echo $?"),
    Program("socat", ("socat",), "socat UNIX-LISTEN:s EXEC:'echo served' & while ! test -S s; do sleep 0.1; done; socat -u UNIX-CONNECT:s -; wait $!; echo $?"),
    Program("redis", ("redis-server", "redis-cli"), REDIS),
    Program("node", ("node",), heredoc("a.js", NODE) + "node a.js; echo $?; node -e 'process.abort()' 2>/dev/null; echo $?"),
    Program("java", ("java", "javac"), heredoc("Hello.java", JAVA) + "javac Hello.java && java Hello; echo $?; java -XX:+UseSerialGC -Xmx64m Hello"),
    Program("go", ("go",), heredoc("a.go", GO) + "export GOCACHE=$PWD/c GO111MODULE=off; go build -o a a.go && ./a; echo $?"),
    Program("python", ("python3",), heredoc("a.py", PYTHON_PROGRAM) + "python3 a.py; echo $?; python3 -I -S a.py; python3 -X dev -c 'import asyncio; asyncio.run(asyncio.sleep(0))'"),
    Program("python killed", ("python3",), command=("python3", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")),
    Program("python aborts", ("python3",), command=("python3", "-c", "import faulthandler; faulthandler.enable(); faulthandler._sigsegv()")),
    Program("greenlets", (str(PYTHON),), command=(str(PYTHON), "-c", "import gevent.monkey; gevent.monkey.patch_all(); import gevent\ndef f(n):\n    __import__(n); gevent.sleep(0); return n\nprint([g.get() for g in [gevent.spawn(f, n) for n in ('json', 'asyncio', 'xml.dom.minidom', 'email.mime.text', 'sqlite3')]])")),
    Program("valgrind", ("valgrind", PLAIN), f"valgrind -q --error-exitcode=9 {PLAIN} 3; echo $?"),
    Program("valgrind outside", ("valgrind", PLAIN), command=("valgrind", "-q", "--trace-children=no", "--error-exitcode=9", PLAIN, "3")),
    Program("valgrind threads", ("valgrind", PLAIN), f"valgrind -q --tool=helgrind --error-exitcode=9 {PLAIN} 0; echo $?"),
    Program("gdb", ("gdb", PLAIN), f"gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'handle SIGUSR1 nostop noprint pass' -ex 'break pclose' -ex run -ex 'info inferiors' -ex kill --args {PLAIN} 0 2>&1 | grep -c -e Breakpoint -e counted"),
    Program("gdb to the end", ("gdb", PLAIN), f"gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'handle SIGUSR1 nostop noprint pass' -ex run --args {PLAIN} 3 2>&1 | grep -e 'exited with' -e counted"),
    Program("strace", ("strace", PLAIN), f"strace -f -qq -e trace=none -o /dev/null {PLAIN} 3; echo $?"),
    Program("ltrace", ("ltrace", PLAIN), f"ltrace -o /dev/null {PLAIN} 3; echo $?"),
    Program("musl child", (str(BUILT / "musl"),), f"{BUILT / 'musl'} 3; echo $?; {BUILT / 'musl'} abort; echo $?"),
    Program("asan child", (str(BUILT / "asan"),), f"{BUILT / 'asan'} 3; echo $?; {BUILT / 'asan'} leak; echo $?"),
    Program("static child", (str(BUILT / "static"),), f"{BUILT / 'static'} 3; echo $?"),
    Program("asan preloaded", ("gcc", "python3"), "LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 python3 -c 'import json; print(json.dumps(1))'"),
    Program("setuid", ("gcc", "setpriv"), f"chmod 755 . .. ; cp {PLAIN} p; chmod 4755 p; ./p 3; echo $?; setpriv --reuid 65534 --regid 65534 --clear-groups ./p 4; echo $?"),
)  # fmt: skip


def compile_all() -> dict[str, str]:
    """Compiles what can be compiled; why not, for the others."""
    BUILT.mkdir(parents=True, exist_ok=True)
    missing = {}
    for name, (compiler, source, *flags) in COMPILED.items():
        target, file = BUILT / name, SOURCES / source
        if not has(compiler):
            missing[name] = f"no {compiler}"
        elif not target.exists() or target.stat().st_mtime < file.stat().st_mtime:
            command = [
                compiler,
                str(file),
                *flags,
                "-o",
                str(target),
                "-pthread",
                *([] if "musl" in name else ["-ldl"]),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                missing[name] = f"{compiler} {' '.join(flags)} does not compile: {done.stderr.strip().splitlines()[-1]}"
    return missing


def allocator(library: str) -> str:
    return next((path for folder in LIBRARY_FOLDERS if os.path.exists(path := f"{folder}/{library}")), "")


def unit(name: str, command: tuple[str, ...], skip: str = "", variables: tuple[tuple[str, str], ...] = ()) -> Unit:
    return Unit(
        "programs", name, command, LIMIT_S, variables=variables, replacements=NUMBERS, compares_output=True, skip=skip
    )


def program_units() -> Iterable[Unit]:
    missing = compile_all()
    for name in COMPILED:
        for argument in ARGUMENTS.get(name, ("3",)):
            command = (str(BUILT / name), *filter(None, [argument]))
            yield unit(f"{name} {argument}".strip(), command, missing.get(name, ""))
    for name, library in ALLOCATORS.items():
        path = allocator(library)
        for what, command in (
            ("works", (PLAIN, "3")),
            ("python", (str(PYTHON), "-c", "import numpy, asyncio; print(numpy.ones(9).sum())")),
        ):
            yield unit(f"{name} {what}", command, "" if path else f"no {library}", (("LD_PRELOAD", path),))
    for program in PROGRAMS:
        absent = [needed for needed in program.needs if not shutil.which(needed)]
        command = program.command or ("bash", "-c", program.script)
        yield unit(
            program.name, command, f"no {', '.join(map(os.path.basename, absent))}" if absent else "", program.variables
        )


def program_suite() -> Suite:
    return Suite("programs", "", "this machine's, and ours", lambda: "", program_units)
