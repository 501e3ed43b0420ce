"""Which test suites of other people are run, as data: whence (pinned), how their authors run them, in which modes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "foreign"
ENVIRONMENTS = ROOT / ".envs"
PYTHON = ENVIRONMENTS / "foreign-python" / "bin" / "python"  # requirements.txt says what is in it
TORCH_PYTHON = ENVIRONMENTS / "foreign-torch" / "bin" / "python"
DEBIAN_PYTHON = Path("/usr/bin/python3")
BASE_PYTHON = Path(os.path.realpath(sys.executable))
OUTCOMES_FILE = "{outcomes}"  # where a command names the file of its tests' outcomes


@dataclass(frozen=True)
class Mode:
    """A way to record: options of `rankscope run`, variables, and where it stands."""

    name: str
    options: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    outside: bool = False  # before the launcher instead of behind it
    needs: str = ""  # "mpi", "torch": for these suites only


MODES = {
    mode.name: mode
    for mode in (
        Mode("default"),
        Mode("outside", outside=True, needs="mpi"),
        Mode("calls", ("--imports", "calls")),
        Mode("trace", ("--trace",)),
        Mode("matrix", ("--matrix",), needs="mpi"),
        Mode("lookups", ("--lookups",), needs="mpi"),
        Mode("local", ("--local", "{scratch}/node")),
        Mode("paths", ("--imports", "paths")),
        Mode("off", ("--imports", "off")),
        Mode("torch-python", variables=(("RANKSCOPE_TORCH", "python"),), needs="torch"),
        Mode("torch-0", variables=(("RANKSCOPE_TORCH", "0"),), needs="torch"),
    )
}


@dataclass(frozen=True)
class Unit:
    """What is started, compared and remembered as one: a command and how to start only some of its tests again."""

    suite: str
    name: str
    command: tuple[str, ...]
    limit_s: int
    folder: Path | None = None  # where it runs; None: an empty one
    variables: tuple[tuple[str, str], ...] = ()
    launcher: tuple[str, ...] = ()
    mpi: str = ""
    select: Callable[[Unit, list[str]], Unit] | None = field(default=None, compare=False)
    replacements: tuple[tuple[str, str], ...] = ()  # of a program's output, before it is compared
    compares_output: bool = False
    skip: str = ""  # why it cannot run here

    def of_tests(self, tests: list[str]) -> Unit:
        return self.select(self, tests) if self.select else self


@dataclass(frozen=True)
class Suite:
    name: str
    version: str
    source: str
    prepare: Callable[[], str]  # "" or why it cannot run here
    units: Callable[[], Iterable[Unit]]
    kind: str = ""  # which of the modes that need something apply


def fetch_source(name: str, version: str) -> Path | None:
    """The unpacked source distribution of a package, which has the tests that its wheel has not."""
    folder = BUILD / "sources" / f"{name}-{version}"
    if not folder.is_dir():
        downloads = BUILD / "downloads"
        archive = downloads / f"{name}-{version}.tar.gz"
        if not archive.exists():
            command = [str(PYTHON), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
            subprocess.run([*command, "--dest", str(downloads), f"{name}=={version}"], check=False, capture_output=True)
        if not archive.exists():
            return None
        with tarfile.open(archive) as packed:
            packed.extractall(folder.parent, filter="data")
    return folder


def needs_source(name: str, version: str) -> Callable[[], str]:
    def prepare() -> str:
        if not PYTHON.exists():
            return f"{PYTHON} is missing"
        return "" if fetch_source(name, version) else f"pip could not fetch the source of {name} {version}"

    return prepare


def needs_file(path: Path, reason: str) -> Callable[[], str]:
    return lambda: "" if path.exists() else reason


def site_packages(python: Path) -> Path:
    return python.parent.parent / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


# ---------------------------------------------------------------- how suites are run
def pytest_units(
    suite: str,
    python: Path,
    rootdir: Callable[[], Path],
    files: Callable[[Path], Iterable[Path]],
    limit_s: int = 300,
    options: tuple[str, ...] = (),
    in_rootdir: bool = False,
    path: str = "",
) -> Callable[[], Iterable[Unit]]:
    """One unit per test file; `path` is a folder below the root that its modules are found in."""

    def units() -> Iterable[Unit]:
        root = rootdir()
        start = (str(python), str(HERE / "outcomes.py"), OUTCOMES_FILE, "-m", "pytest", "-q", "-p", "no:cacheprovider")
        start += ("--rootdir", str(root), *options)

        def select(unit: Unit, tests: list[str]) -> Unit:
            return replace(unit, command=(*start, *(str(root / test) for test in tests)))

        for file in files(root):
            folder = root if in_rootdir else None
            variables = (("PYTHONPATH", str(root / path)),) if path else ()
            yield Unit(suite, file.stem, (*start, str(file)), limit_s, folder, variables, select=select)

    return units


def unittest_unit(suite: str, name: str, python: Path, arguments: tuple[str, ...], limit_s: int) -> Unit:
    return Unit(suite, name, (str(python), str(HERE / "outcomes.py"), OUTCOMES_FILE, "-m", *arguments), limit_s)


def greenlet_units() -> Iterable[Unit]:
    for file in sorted((site_packages(PYTHON) / "greenlet" / "tests").glob("test_*.py")):
        yield unittest_unit("greenlet", file.stem, PYTHON, ("unittest", f"greenlet.tests.{file.stem}"), 200)


# Tests whose outcome says how long calls take, and why. A difference in them is shown, and is no difference of output.
TIMED = {
    ("gevent", "test__core_timer", "__main__.TestTimerResolution.test_resolution"): (
        "a timer of 1 ms must fire in one of 150 turns of a loop; bare, none of them takes as long, and it is flaky by "
        "its authors' mark"
    ),
}


def gevent_units() -> Iterable[Unit]:
    from_network = ("test__socket_dns", "test__ares_timeout", "test__getaddrinfo_import", "test__resolver_dnspython")
    # The first imports every module of other platforms, the second runs the standard library's tests, which it lacks.
    unwatched = ("test__all__", "test___monkey_patching")
    folder = site_packages(PYTHON) / "gevent" / "tests"
    for file in sorted(folder.glob("test_*.py")):
        if not file.stem.startswith((*from_network, *unwatched)):
            unit = unittest_unit("gevent", file.stem, PYTHON, (f"gevent.tests.{file.stem}",), 120)
            yield replace(unit, folder=folder)


# Processes, threads, signals, imports, and what stands on them.
CPYTHON = """
test_fork1 test_wait3 test_wait4 test_thread test_threading test_threading_local test_threadsignals
test_threadedtempfile test_signal test_faulthandler test_subprocess test_popen test_os test_posix test_import
test_importlib test_imp test_pkgutil test_runpy test_zipimport test_modulefinder test_asyncio
test_multiprocessing_fork test_multiprocessing_forkserver test_multiprocessing_main_handling
test_multiprocessing_spawn test_select test_selectors test_poll test_epoll test_pty test_openpty test_resource
test_mmap test_ctypes test_site test_cmd_line test_cmd_line_script test_sys test_atexit test_queue test_sched
test_socket test_socketserver test_eintr test_fcntl test_ioctl test_audit test_tempfile test_shutil test_fileio
test_io test_contextlib test_context test_coroutines test_gc test_tracemalloc test_weakref test_sys_settrace
test_sys_setprofile test_pickle test_tools test_venv test_dtrace test_gdb test_utf8_mode test_c_locale_coercion
test_exceptions test_unittest test_time test_timeout test_support test_mailbox test_logging test_sqlite3 test_ssl
test_smtplib test_asyncore test_xmlrpc test_urllib2_localnet test_httpservers test_wsgiref test_cgi
""".split()


def cpython_units() -> Iterable[Unit]:
    for name in CPYTHON:
        unit = unittest_unit(
            "cpython", name, BASE_PYTHON, ("test", "-u", "all,-network,-urlfetch,-gui,-largefile", name), 900
        )

        def select(unit: Unit, tests: list[str]) -> Unit:
            chosen = tuple(word for test in tests for word in ("-m", test))
            return replace(unit, command=(*unit.command[:-1], *chosen, unit.command[-1]))

        yield replace(unit, select=select)


# Flags and variables; ranks that wait give their processor away, because there may be more ranks than processors.
LAUNCHERS = {
    "openmpi": (
        ("--oversubscribe", "--bind-to", "none"),
        (
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ),
    ),
    "mpich": ((), (("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1"), ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"))),
    "impi": ((), (("I_MPI_PIN", "off"), ("I_MPI_THREAD_YIELD", "2"))),
}
# Modules whose tests end the whole job on that MPI without any recorder (Intel MPI: MPI_Open_port crashes).
MPI4PY_CRASHES_BARE: dict[str, tuple[str, ...]] = {"openmpi": (), "mpich": (), "impi": ("test_dynproc",)}
# The suite in parts, so that a test that ends the job or never ends takes only its part with it. The last one is more
# than half of the suite's time, each rank for itself: on one rank only.
MPI4PY_PARTS = {
    "collectives": "^test_cco_(buf|obj|vec)",
    "nonblocking": "^test_cco_(nb|pr)",
    "neighbours": "^test_cco_ngh|^test_comm",
    "messages": "^test_p2p|^test_msg|^test_request|^test_status|^test_pack|^test_buffer|^test_threads",
    "windows": "^test_rma|^test_win|^test_io|^test_file",
    "processes": "^test_spawn|^test_dynproc|^test_util_(pool|pkl5|sync)|^test_session|^test_ulfm",
    "rest": "",
    "datatypes": "^test_util_dtlib",
}
MPI4PY = "4.1.2"


def mpi4py_units() -> Iterable[Unit]:
    source = fetch_source("mpi4py", MPI4PY)
    assert source is not None
    for ranks in (2, 1, 4, 3):
        for mpi, (flags, variables) in LAUNCHERS.items():
            binaries = ENVIRONMENTS / mpi / "bin"
            if not (binaries / "mpirun").exists():
                continue
            command = (str(binaries / "python"), str(HERE / "outcomes.py"), OUTCOMES_FILE, "test/main.py")

            def select(unit: Unit, tests: list[str], command: tuple[str, ...] = command) -> Unit:
                modules = sorted({test.partition(".")[0] for test in tests})
                return replace(
                    unit, command=(*command, *(word for module in modules for word in ("-i", f"^{module}.py")))
                )

            for part, modules in MPI4PY_PARTS.items():
                others = tuple(word for pattern in MPI4PY_PARTS.values() if pattern for word in ("-e", pattern))
                chosen = ("-i", modules) if modules else others
                excluded = tuple(word for module in MPI4PY_CRASHES_BARE[mpi] for word in ("-e", f"^{module}"))
                unit = Unit(
                    "mpi4py",
                    f"{mpi} n={ranks} {part}",
                    (*command, *chosen, *excluded),
                    600,
                    folder=source,
                    variables=(*variables, ("PATH", f"{binaries}:{os.environ['PATH']}")),
                    launcher=(str(binaries / "mpirun"), *flags, "-n", str(ranks)),
                    mpi=mpi,
                    select=select,
                )
                if part != "datatypes" or ranks == 1:
                    yield unit


def joblib_files(root: Path) -> Iterable[Path]:
    return sorted((root / "joblib" / "test").glob("test_*.py"))


def distributed_files(root: Path) -> Iterable[Path]:
    names = (
        "asyncprocess nanny worker_memory system_monitor threadpoolexecutor diskutils utils core preload batched queues"
    )
    return [root / "distributed" / "tests" / f"test_{name}.py" for name in names.split()]


def torch_units() -> Iterable[Unit]:
    for name in ("gloo", "rpc"):
        command = (
            str(TORCH_PYTHON),
            str(HERE / "outcomes.py"),
            OUTCOMES_FILE,
            str(HERE / "torch_distributed.py"),
            name,
        )

        def select(unit: Unit, tests: list[str]) -> Unit:
            return replace(unit, command=(*unit.command, *(test.partition("__main__.")[2] for test in tests)))

        yield Unit("torch", name, command, 1500, select=select)


def torch_ready() -> str:
    if not TORCH_PYTHON.exists():
        return f"{TORCH_PYTHON} is missing"
    wanted = (
        site_packages(ENVIRONMENTS / "torch" / "bin" / "python") / "torch" / "testing" / "_internal" / "distributed"
    )
    return "" if wanted.is_dir() else "this torch has no tests of its own"


def all_suites() -> dict[str, Suite]:
    """In the order in which they are run."""
    from foreign.programs import program_suite

    has_python = needs_file(PYTHON, f"{PYTHON} is missing")
    suites = (
        Suite("greenlet", "3.5.6", "its wheel", has_python, greenlet_units),
        program_suite(),
        Suite("mpi4py", MPI4PY, "its source distribution", needs_source("mpi4py", MPI4PY), mpi4py_units, "mpi"),
        Suite("gevent", "26.9.0", "its wheel", has_python, gevent_units),
        Suite(
            "psutil",
            "7.2.2",
            "its source distribution",
            needs_source("psutil", "7.2.2"),
            pytest_units(
                "psutil",
                PYTHON,
                lambda: fetch_source("psutil", "7.2.2") or Path(),
                lambda root: [
                    file for file in sorted((root / "tests").glob("test_*.py")) if file.stem != "test_memleaks"
                ],
                options=("--import-mode=append", "-c", os.devnull),  # this pytest refuses a value in its settings
            ),
        ),
        Suite(
            "cloudpickle",
            "2.2.1 (the last whose source distribution has the tests)",
            "its source distribution",
            needs_source("cloudpickle", "2.2.1"),
            pytest_units(
                "cloudpickle",
                PYTHON,
                lambda: fetch_source("cloudpickle", "2.2.1") or Path(),
                lambda root: sorted((root / "tests").glob("*_test.py")),
                in_rootdir=True,
                path="tests/cloudpickle_testpkg",
            ),
        ),
        Suite(
            "loky",
            "3.7.0",
            "its source distribution",
            needs_source("loky", "3.7.0"),
            pytest_units(
                "loky",
                PYTHON,
                lambda: fetch_source("loky", "3.7.0") or Path(),
                lambda root: sorted((root / "tests").glob("test_*.py")),
                limit_s=900,
                in_rootdir=True,
            ),
        ),
        Suite(
            "joblib",
            "1.6.0",
            "its wheel",
            has_python,
            pytest_units("joblib", PYTHON, lambda: site_packages(PYTHON), joblib_files, limit_s=900),
        ),
        Suite(
            "cpython", sys.version.split()[0], f"the test package of {BASE_PYTHON.name}", cpython_ready, cpython_units
        ),
        Suite("torch", "2.13.0", "its wheel (torch.testing._internal.distributed)", torch_ready, torch_units, "torch"),
        Suite(
            "distributed",
            "2022.12.1 (Debian's, the newest that is packed with its tests)",
            "Debian's python3-distributed",
            distributed_ready,
            pytest_units(
                "distributed",
                DEBIAN_PYTHON,
                lambda: Path("/usr/lib/python3/dist-packages"),
                distributed_files,
                limit_s=900,
                options=("-p", "no:rerunfailures", "--timeout", "120"),
            ),
        ),
    )
    return {suite.name: suite for suite in suites}


def cpython_ready() -> str:
    asked = subprocess.run([str(BASE_PYTHON), "-c", "import test.test_os"], capture_output=True, check=False)
    return "" if asked.returncode == 0 else f"{BASE_PYTHON} has no test package (Debian: libpython3-testsuite)"


def distributed_ready() -> str:
    command = [str(DEBIAN_PYTHON), "-c", "import distributed.tests.test_nanny, pytest, pytest_timeout"]
    if not DEBIAN_PYTHON.exists() or subprocess.run(command, capture_output=True, check=False).returncode:
        return "Debian's python3-distributed, python3-pytest and python3-pytest-timeout are not installed"
    return ""


def applies(mode: Mode, suite: Suite, unit: Unit) -> bool:
    """Every mode on two ranks; on other numbers of them the default."""
    is_plain = not unit.mpi or "n=2" in unit.name or mode.name == "default"
    return is_plain and (not mode.needs or mode.needs == suite.kind)


def has(program: str) -> bool:
    return shutil.which(program) is not None
