"""Programs that cannot take the recorder run as without it, and the run says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import hatch_build
from installed import ROOT, Run, compile_c
from rankscope.record.preload import Elf
from rankscope.store.folder import unrecorded

LIBRARY = hatch_build.NATIVE / "librankscope.so"
STARTS = ROOT / "tests" / "programs" / "starts.c"
SAYS = """
#include <stdio.h>
#include <stdlib.h>
static const char *of(const char *name) { return getenv(name) ? getenv(name) : "-"; }
int main(int count, char **words)
{
    for (int i = 1; i < count; i++)
        printf("%s ", words[i]);
    printf("preload=%s path=%s cuda=%s\\n", of("LD_PRELOAD"), of("PYTHONPATH"), of("CUDA_INJECTION64_PATH"));
    return 3;
}
"""
HOWS = (
    "execve execv execvp execvpe execl execlp execle fexecve execveat execveat-empty vfork posix_spawn posix_spawnp"
).split()
SEARCHING = ["execvp", "execvpe", "execlp", "posix_spawnp"]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program for each of the functions that start one, and one whose loader is not glibc's by name."""
    folder = tmp_path_factory.mktemp("programs")
    compile_c(STARTS.read_text(), folder / "starts")
    loader = subprocess.run(["readelf", "-l", str(folder / "starts")], capture_output=True, text=True)
    if "interpreter: " not in loader.stdout:
        pytest.skip("no readelf")
    (folder / "ld-other.so.1").symlink_to(loader.stdout.partition("interpreter: ")[2].partition("]")[0])
    compile_c(SAYS, folder / "other", f"-Wl,--dynamic-linker={folder}/ld-other.so.1")
    (folder / "ld-2.12.so").symlink_to(folder / "ld-other.so.1")
    (folder / "ld-linux.so.9").symlink_to("ld-2.12.so")
    compile_c(SAYS, folder / "old", f"-Wl,--dynamic-linker={folder}/ld-linux.so.9")
    compile_c(SAYS, folder / "plain")
    for name, first in (("script", f"#!{folder}/other\n"), ("no_interpreter", f"{folder}/other from sh; exit $?\n")):
        (folder / name).write_text(first)
        (folder / name).chmod(0o755)
    compile_c("int idle;", folder / "libtheirs.so", "-shared", "-fPIC")
    return folder


def compiled_by(compiler: str, source: str, target: Path, *flags: str) -> Path:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} (Debian: musl-tools)")
    done = subprocess.run(
        [compiler, *flags, "-x", "c", "-", "-o", str(target)], input=source, text=True, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"{compiler} {' '.join(flags)}: {done.stderr.splitlines()[0]}")
    return target


def noted(work: Path, folder: str = "run") -> list[str]:
    return unrecorded(work / folder)


def assert_as_bare(rankscope: str, run: Run, *command: str, **options: object) -> None:
    bare = run(*command, **options)
    recorded = run(rankscope, "run", "--quiet", "--out", "run", *command, **options)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert bare.stdout


def each(programs: Path, hows: Sequence[str], *targets: Path | str) -> str:
    """A line of shell that starts each of the targets in each of these ways."""
    return f"for t in {' '.join(map(repr, map(str, targets)))}; do for how in {' '.join(hows)}; do echo $how; " + (
        f'{programs}/starts $how "$t" a; echo $?; done; done'
    )


def test_a_program_of_another_libc_starts_without_us(rankscope: str, run: Run, work: Path, programs: Path) -> None:
    """What is ours is out of its environment, what is the user's stays."""
    theirs = {
        "LD_PRELOAD": str(programs / "libtheirs.so"),
        "PYTHONPATH": "/their/modules",
        "CUDA_INJECTION64_PATH": "/their/injection.so",
        "PATH": f"{programs}:/usr/bin:/bin",
    }
    line = f"{each(programs, HOWS, programs / 'other')}; {each(programs, SEARCHING, 'other')}"
    assert_as_bare(rankscope, run, "sh", "-c", line, env=theirs)
    assert noted(work) == [f"not recorded: {len(HOWS + SEARCHING)} × other: another C library than glibc"]


def test_a_program_of_an_old_glibc_starts_without_us(rankscope: str, run: Run, work: Path, programs: Path) -> None:
    assert_as_bare(rankscope, run, "sh", "-c", each(programs, ("execve", "posix_spawn"), programs / "old"))
    assert noted(work) == ["not recorded: 2 × old: an older glibc than the recorder needs"]
    done = run(rankscope, "run", str(programs / "old"))
    assert done.returncode == 3 and b"preload=- " in done.stdout and b"uses a glibc older than 2.17" in done.stderr


def test_scripts_are_judged_by_their_interpreter(rankscope: str, run: Run, work: Path, programs: Path) -> None:
    hows = ("execve", "execvp", "posix_spawnp")
    assert_as_bare(rankscope, run, "sh", "-c", each(programs, hows, programs / "script"))
    assert noted(work) == ["not recorded: 3 × script: another C library than glibc"]


def test_starts_fail_as_without_us(rankscope: str, run: Run, programs: Path, tmp_path: Path) -> None:
    (tmp_path / "unmarked").write_text("#!/bin/sh\n")
    (tmp_path / "broken").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / "broken").chmod(0o755)
    targets = (
        tmp_path / "unmarked",
        tmp_path,
        tmp_path / "absent" / "x",
        tmp_path / "broken",
        "",
        programs / "no_interpreter",
    )
    assert_as_bare(rankscope, run, "sh", "-c", each(programs, (*HOWS, "execve-no-environment"), *targets))


def test_a_recordable_program_stays_recorded(rankscope: str, run: Run, work: Path, programs: Path) -> None:
    done = run(rankscope, "run", "--quiet", "--out", "run", "sh", "-c", each(programs, HOWS, programs / "plain"))
    assert done.stdout.count(b"preload=/") == len(HOWS) and not done.stderr
    assert noted(work) == []


def test_a_musl_program(rankscope: str, run: Run, tmp_path: Path) -> None:
    program = compiled_by("musl-gcc", SAYS, tmp_path / "musl")
    assert_as_bare(rankscope, run, "sh", "-c", f"{program} a; {program} b; exit 4")
    told = run(rankscope, "report", "run", "--table", "coverage", "--format", "csv").stdout.decode()
    assert "processes not recorded: another C library than glibc,2,musl" in told
    done = run(rankscope, "run", str(program))
    assert done.returncode == 3 and done.stderr.count(b"\n") == 1 and b"another C library" in done.stderr


def test_musl_loads_the_recorder_where_nobody_could_look(run: Run, tmp_path: Path, work: Path) -> None:
    """A child of a program that we are not in: nothing may be said, nothing may be changed."""
    program = compiled_by("musl-gcc", SAYS, tmp_path / "musl")
    for libraries in (f"{LIBRARY}", f"{LIBRARY}:{LIBRARY.parent}/librankscope_calls.so"):
        ours = {"LD_PRELOAD": libraries, "RANKSCOPE_DIR": str(work / "run"), "RANKSCOPE_IMPORTS": "calls"}
        done = run(str(program), env=ours)
        assert (done.returncode, done.stderr) == (3, b"") and done.stdout.startswith(b"preload=/")
        assert not (work / "run").exists()


@pytest.mark.parametrize("sanitizer", ["address", "thread", "undefined", "leak"])
def test_a_program_with_a_sanitizer(rankscope: str, run: Run, work: Path, tmp_path: Path, sanitizer: str) -> None:
    program = compiled_by("cc", SAYS, tmp_path / sanitizer, f"-fsanitize={sanitizer}")
    if run(str(program)).returncode != 3:
        pytest.skip(f"programs with -fsanitize={sanitizer} do not run here")
    plain = run("sh", "-c", f"{program}; exit 4")
    done = run(rankscope, "run", "--quiet", "--out", "run", "sh", "-c", f"{program}; exit 4")
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    if sanitizer in ("address", "thread"):
        assert done.stdout == plain.stdout
        assert noted(work) == [f"not recorded: 1 × {sanitizer}: a sanitizer whose runtime must come first"]


def test_a_runtime_that_the_user_preloads_stays_first(rankscope: str, run: Run, programs: Path) -> None:
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if "/" not in library:
        pytest.skip("no libasan")
    preloaded = {**os.environ, "LD_PRELOAD": os.path.realpath(library), "ASAN_OPTIONS": "detect_leaks=0"}
    done = run(rankscope, "run", "--quiet", "--out", "run", str(programs / "plain"), env=preloaded)
    assert done.returncode == 3 and not done.stderr and b"/librankscope.so" in done.stdout


def test_a_root_without_the_recorder(rankscope: str, run: Run, tmp_path: Path, programs: Path) -> None:
    """The dynamic loader would complain of the missing library in every process."""
    if os.geteuid() or not shutil.which("chroot"):
        pytest.skip("only root can change the root")
    root = tmp_path / "root"
    for program in ("/bin/sh", "/bin/ls"):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split()
        for path in (program, *(word for word in listed if word.startswith("/"))):
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path[1:])
    assert_as_bare(rankscope, run, "sh", "-c", f"chroot {root} /bin/sh -c '/bin/ls /bin; exit 4'")
    told = run(rankscope, "report", "run", "--table", "coverage", "--format", "csv").stdout.decode()
    assert "processes not recorded: another root,1" in told


def test_static_programs_pass_the_recorder_on(
    rankscope: str, run: Run, work: Path, tmp_path: Path, programs: Path
) -> None:
    static = compiled_by("cc", STARTS.read_text(), tmp_path / "static", "-static")
    done = run(rankscope, "run", "--quiet", "--out", "run", "sh", "-c", f"{static} execv {programs}/plain; exit 4")
    assert (done.returncode, done.stderr) == (4, b"") and b"/librankscope.so" in done.stdout
    assert noted(work) == ["not recorded: 1 × static: statically linked"]


def test_notes_are_bounded(rankscope: str, run: Run, programs: Path, work: Path) -> None:
    notes = work / "run" / "unrecorded" / os.uname().nodename
    notes.parent.mkdir(parents=True)
    notes.write_text("another C library than glibc\tmany\n" * 2000)
    ours = {"LD_PRELOAD": str(LIBRARY), "RANKSCOPE_DIR": str(work / "run")}
    before = notes.stat().st_size
    assert run(str(programs / "starts"), "vfork", str(programs / "other"), env=ours).returncode == 5
    assert notes.stat().st_size == before


def test_no_preloaded_library_asks_for_a_new_glibc() -> None:
    """Nor for its loader by name, which musl has not."""
    for path in sorted(hatch_build.NATIVE.glob("*.so")):
        needed = Elf(path.read_bytes()[:4096]).needed(str(path))
        assert needed and not [name for name in needed if name.startswith("ld")], needed
        newest = max(hatch_build.asked_of_glibc(path), default=(2,))
        assert newest <= (2, 17), f"{path.name} asks for GLIBC_{'.'.join(map(str, newest))}"
