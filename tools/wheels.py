"""`make wheels`: manylinux wheels for x86-64 and aarch64, compiled by zig, each installed and run where it promises to.

What a step needs beyond Python and pip (root, debootstrap, qemu) is a reason to skip that step, which the table says.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import rankscope

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheels"
TOOLS = WORK / "env" / "bin" / "python"
# The oldest glibc that a root file system for the trial can be had of: its release of Ubuntu, where it is fetched from.
GLIBC = "2.27"
OLD_ROOT = ("bionic", "http://archive.ubuntu.com/ubuntu", "main,universe", "python3-mpi4py,openmpi-bin")
ARM_ROOT = ("bookworm", "http://deb.debian.org/debian", "main", "python3,libpython3-stdlib")
ARM_WHEELS = ("mpich", "mpi4py")
MPI_PROGRAM = """
from mpi4py import MPI
world = MPI.COMM_WORLD
for _ in range(5):
    world.Barrier()
print("rank", world.Get_rank(), "of", world.Get_size(), "sum", world.allreduce(1))
"""


class Skip(Exception):
    """Why a step cannot be done here."""


@dataclass
class Row:
    """One line of the table."""

    wheel: str
    step: str
    result: str
    detail: str = ""


@dataclass
class Table:
    """What was tried, in order; a step that fails is told and does not keep the others from being tried."""

    rows: list[Row] = field(default_factory=list)

    def step(self, wheel: str, name: str, do: Callable[[], str]) -> None:
        try:
            row = Row(wheel, name, "passed", do())
        except Skip as reason:
            row = Row(wheel, name, "skipped", str(reason))
        except subprocess.CalledProcessError as error:
            said = (error.stdout or "") + (error.stderr or "")
            print(said, file=sys.stderr)
            row = Row(wheel, name, "failed", " ".join(said.split()[-20:]))
        except Exception as error:  # told in the table, and the other steps are still tried
            row = Row(wheel, name, "failed", f"{type(error).__name__}: {error}")
        self.rows.append(row)
        print(f"[wheels] {row.wheel}: {row.step}: {row.result}{f' ({row.detail})' if row.detail else ''}", flush=True)

    def text(self) -> str:
        lines = [f"| {row.wheel} | {row.step} | {row.result} | {row.detail} |" for row in self.rows]
        return "\n".join(["| wheel | step | result | |", "|---|---|---|---|", *lines])

    @property
    def failed(self) -> bool:
        return any(row.result == "failed" for row in self.rows)


def call(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """What the command prints; an error if it fails."""
    words, environment = [str(word) for word in command], {**os.environ, **variables}
    done = subprocess.run(words, env=environment, cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout


# ---------------------------------------------------------------- building


def sources() -> Path:
    """A source tree of its own: what is compiled for other machines must not lie among our libraries."""
    shutil.rmtree(WORK / "sdist", ignore_errors=True)
    call(TOOLS, "-m", "hatchling", "build", "-t", "sdist", "-d", WORK / "sdist", cwd=ROOT)
    (archive,) = (WORK / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(WORK / "sdist", filter="data")
    (folder,) = (path for path in (WORK / "sdist").iterdir() if path.is_dir())
    return folder


def build(machine: str, tree: Path, out: Path) -> Path:
    """A wheel whose libraries were compiled by zig for this machine and the oldest glibc that we promise."""
    for left in (*tree.rglob("*.so"), *tree.glob("src/rankscope/native/rankscope-*")):
        left.unlink()
    name = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    compiler = f"{TOOLS} -m ziglang cc -target {machine}-linux-gnu.{GLIBC}"
    call(
        TOOLS,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        out,
        cwd=tree,
        CC=compiler,
        RANKSCOPE_WHEEL_PLATFORM=name,
    )
    (wheel,) = out.glob(f"*{name}.whl")
    return wheel


def audit(wheel: Path) -> str:
    """What auditwheel thinks of the tag."""
    said = " ".join(call(TOOLS, "-m", "auditwheel", "show", wheel).split())
    found = re.findall(r'"(manylinux_\d+_\d+_\w+)"', said)
    return f"auditwheel: consistent with {found[0]}" if found else said[-120:]


# ---------------------------------------------------------------- trying


def clean_environment(wheel: Path) -> str:
    """Installed by pip with all it needs into an empty environment; records a program and reports it."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        venv.create(folder, with_pip=True, symlinks=True)
        python, command = Path(folder, "bin", "python"), Path(folder, "bin", "rankscope")
        call(python, "-m", "pip", "install", "-q", wheel)
        call(command, "run", "--out", f"{folder}/run", python, "-c", "print(1)", PATH=f"{folder}/bin:/usr/bin:/bin")
        said = call(command, "report", f"{folder}/run", "--table", "coverage")
    assert "ranks seen" in said, said
    return f"Python {platform.python_version()}, glibc {platform.libc_ver()[1]}: recorded and reported"


def unpacked(wheel: Path, folder: Path) -> Path:
    """The package as pip lays it out, programs executable."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    for program in (folder / "rankscope" / "native").iterdir():
        program.chmod(0o755)
    return folder / "rankscope"


def needs(*programs: str, root: bool = False) -> None:
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"no {program} here")
    if root and os.geteuid():
        raise Skip("needs root")


def root_folder(name: str, release: tuple[str, str, str, str], *options: str) -> Path:
    """A root file system in a folder, made once."""
    folder, (suite, mirror, components, packages) = WORK / name, release
    if not (folder / ".ready").exists():
        needs("debootstrap", root=True)
        shutil.rmtree(folder, ignore_errors=True)
        chosen = (
            "--variant=minbase",
            "--no-check-gpg",
            f"--components={components}",
            f"--include={packages}",
            *options,
        )
        try:
            call("debootstrap", *chosen, suite, folder, mirror)
        except subprocess.CalledProcessError as error:
            raise Skip(f"no root file system of {suite}: {' '.join(error.stdout.split()[-12:])}") from None
        (folder / ".ready").touch()
    return folder


@contextmanager
def recording_folder(root: Path) -> Iterator[tuple[Path, Path]]:
    """A folder that has the same path inside the root and outside; inside is a link's width away."""
    with tempfile.TemporaryDirectory(prefix="wheel-", dir="/tmp") as folder:
        inside = Path(f"{root}{folder}")
        inside.mkdir(parents=True)
        try:
            yield Path(folder), inside
        finally:
            shutil.rmtree(inside, ignore_errors=True)


def inside_of(root: Path, *command: str) -> str:
    """What the command prints with this folder as its root, with mounts that nobody else sees."""
    mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    path = "/usr/bin:/bin:/usr/sbin:/sbin"
    return call("unshare", "--mount", "sh", "-c", mounts, root, *command, PATH=path, HOME="/root", LC_ALL="C")


def oldest_glibc(wheel: Path) -> str:
    """Two MPI ranks of the old system, recorded by the wheel's libraries: its rank files, read here."""
    needs("chroot", "unshare", root=True)
    root = root_folder("oldest", OLD_ROOT)
    with recording_folder(root) as (outside, inside):
        unpacked(wheel, inside)
        unpacked(wheel, outside)
        (inside / "run").mkdir()
        (inside / "job.py").write_text(MPI_PROGRAM)
        settings = {"LD_PRELOAD": f"{outside}/rankscope/native/librankscope.so", "RANKSCOPE_DIR": f"{outside}/run"}
        mpirun = ("mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", "false", "--oversubscribe", "-n", "2")
        passed_on = [word for name in settings for word in ("-x", name)]
        line = (
            "env",
            *(f"{name}={value}" for name, value in settings.items()),
            *mpirun,
            *passed_on,
            "python3",
            f"{outside}/job.py",
        )
        said = inside_of(root, *line)
        assert said.count("sum 2") == 2, said
        version = inside_of(root, "ldd", "--version").split("\n")[0].rsplit(" ", 1)[1]
        assert version == GLIBC, version
        python = inside_of(root, "python3", "-V").strip()
        return f"glibc {version}, {python}, 2 ranks of mpirun: {read_back(inside / 'run', 'MPI_Barrier')}"


def read_back(run: Path, routine: str) -> str:
    """What this checkout finds in the rank files of a run."""
    sql = f"""SELECT rank, sum(calls)::BIGINT, any_value(versions) FROM tallies JOIN ranks USING (process)
        WHERE name = '{routine}' GROUP BY rank ORDER BY rank"""
    found = rankscope.open(run).query(sql).rows
    files = len(list(run.glob("ranks/*/*.rank")))
    assert found, f"{files} rank files without {routine}"
    counts = ", ".join(str(calls) for _, calls, _ in found)
    return f"{files} rank files, {routine} × {counts}, {str(found[0][2]).split('; ')[-1]}"


def emulated(wheel: Path) -> str:
    """Two MPI ranks of aarch64 under qemu with Debian's Python, mpi4py and MPICH from wheels."""
    needs("qemu-aarch64", "dpkg-deb", "unzip")
    root = root_folder("arm64", ARM_ROOT, "--foreign", "--arch=arm64")
    python = root / "usr" / "bin" / "python3.11"
    if not python.exists():
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            call("dpkg-deb", "-x", package, root)
    site = WORK / "arm64-site"
    if not site.exists():
        platforms = [word for minor in (17, 28) for word in ("--platform", f"manylinux_2_{minor}_aarch64")]
        with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
            call(TOOLS, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.11",
                 "--platform", "manylinux2014_aarch64", *platforms, "-d", folder, *ARM_WHEELS)  # fmt: skip
            for other in Path(folder).glob("*.whl"):
                call("unzip", "-q", "-o", other, "-d", site)
    mpiexec = hydra()
    with tempfile.TemporaryDirectory(prefix="wheel-", dir="/tmp") as folder:
        kind = wheel.stem.rpartition("-")[2]
        chosen = ("--no-deps", "--only-binary=:all:", "--platform", kind, "--target", folder)
        call(TOOLS, "-m", "pip", "install", "-q", *chosen, wheel)
        Path(folder, "job.py").write_text(MPI_PROGRAM)
        Path(folder, "run").mkdir()
        mpi = next(site.rglob("libmpi.so.12"))
        inside = [
            f"LD_PRELOAD={folder}/rankscope/native/librankscope.so",
            f"PYTHONPATH={folder}:{site}",
            f"LD_LIBRARY_PATH={mpi.parent}",
        ]
        options = [word for setting in inside for word in ("-E", setting)]
        line: list[str | Path] = ["qemu-aarch64", "-L", root, *options, python, f"{folder}/job.py"]
        check = "from rankscope.record.preload import check_library; print(check_library().architecture)"
        assert call(*line[:-1], "-c", check) == "aarch64\n"
        said = call(*mpiexec, *line, RANKSCOPE_DIR=f"{folder}/run", MPI4PY_LIBMPI=str(mpi))
        wanted = 2 if mpiexec else 1
        assert said.count(f"sum {wanted}") == wanted, said
        version = call("qemu-aarch64", "--version").split("\n")[0].split()[2]
        found = read_back(Path(folder, "run"), "MPI_Barrier")
        return f"qemu {version}, Python 3.11, glibc 2.36, {wanted} rank(s): {found}"


def hydra() -> list[str]:
    """MPICH's launcher of this machine, which starts processes of any kind."""
    found = ROOT / ".envs" / "mpich" / "bin" / "mpiexec"
    return [str(found), "-n", "2"] if found.exists() else []


# ---------------------------------------------------------------- the table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheels")
    parser.add_argument("--table", type=Path, help="also write the table there")
    options = parser.parse_args()
    tree, table, wheels = sources(), Table(), dict[str, Path]()
    options.out.mkdir(parents=True, exist_ok=True)
    for machine in ("x86_64", "aarch64"):

        def build_it(machine: str = machine) -> str:
            wheels[machine] = build(machine, tree, options.out)
            return wheels[machine].name

        table.step(machine, "built, symbol versions checked", build_it)
        if machine in wheels:
            table.step(machine, "audited", lambda machine=machine: audit(wheels[machine]))  # type: ignore[misc]
    tries = (
        ("x86_64", "clean environment", clean_environment),
        ("x86_64", "oldest glibc promised", oldest_glibc),
        ("aarch64", "under qemu", emulated),
    )
    for machine, name, attempt in tries:
        if machine in wheels:
            table.step(machine, name, lambda machine=machine, attempt=attempt: attempt(wheels[machine]))  # type: ignore[misc]
    if options.table:
        zig = call(TOOLS, "-m", "ziglang", "version").strip()
        here = f"Linux {'.'.join(platform.release().split('.')[:2])} on {platform.machine()}"
        about = f"{datetime.date.today()}, {here}, zig {zig}; `make wheels` writes this table."
        options.table.write_text(f"# Wheels\n{about}\n\n{table.text()}\n")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
