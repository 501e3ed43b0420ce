"""What a rehearsal notes, by each method, and what is chosen from it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rankscope.stage.bundle import LINK_OUT, Manifest, read_manifest
from rankscope.stage.contents import LOOKED_AT, OPENED, from_strace, read_list
from rankscope.stage.receive import SharedFile
from stage.conftest import REHEARSAL
from stage.jobs import Environment, clean_variables, python, stage


def manifest_of(bundle: Path) -> Manifest:
    shared = SharedFile(str(bundle))
    try:
        return read_manifest(shared.header, shared.region())
    finally:
        shared.close()


@pytest.mark.parametrize("method", ["strace", "paths", "audit"])
def test_touched_files_are_packed_and_others_are_links(environment: Environment, tmp_path: Path, method: str) -> None:
    if method == "strace" and not shutil.which("strace"):
        pytest.skip("strace is missing")
    own = Environment(environment.folder, environment.packages, tmp_path / "own.bundle")
    done = stage(own, "--record", "--no-base", "--method", method, command=python(REHEARSAL))
    assert done.returncode == 0, done.stderr
    manifest = manifest_of(own.bundle)
    site = f"env/{environment.packages.relative_to(environment.folder)}"
    files = {file.path for file in manifest.files}
    assert {f"{site}/alpha/{name}" for name in ("__init__.py", "near.py", "data.txt")} <= files
    assert any(path.startswith(f"{site}/alpha/__pycache__/near.") for path in files)
    assert {"env/pyvenv.cfg", "env/bin/alpha-tool", f"{site}/alpha-1.0.dist-info/METADATA"} <= files
    out = {path for path, _, kind in manifest.links if kind == LINK_OUT}
    untouched = ("alpha/rare.py", "alpha/unread.txt", "alpha/deep", "beta", "gamma.py", "odd name ü.txt")
    assert {f"{site}/{name}" for name in untouched} <= out
    assert not files & out
    assert manifest.data["method"] == method


def test_a_recorded_run_says_what_to_pack(environment: Environment, tmp_path: Path, rankscope: Path) -> None:
    """Every process of it: here two that import different things."""
    run = ["run", "--out", tmp_path / "run", "--imports", "paths", "--", environment.folder / "bin" / "python", "-c"]
    code = "import alpha.rare, subprocess, sys; subprocess.run([sys.executable, '-c', 'import gamma'])"
    subprocess.run([rankscope, *run, code], env=clean_variables(), check=True)
    own = Environment(environment.folder, environment.packages, tmp_path / "own.bundle")
    done = stage(own, "--run", tmp_path / "run", "--no-base", command=[])
    assert done.returncode == 0, done.stderr
    files = {file.path.rpartition("site-packages/")[2] for file in manifest_of(own.bundle).files}
    assert {"alpha/rare.py", "alpha/near.py", "gamma.py"} <= files
    assert "beta/__init__.py" not in files
    without = stage(own, "--run", tmp_path, command=[])
    assert without.returncode == 1 and without.stderr.count("\n") == 1


def test_what_is_asked_for_is_packed_too(environment: Environment, tmp_path: Path) -> None:
    own = Environment(environment.folder, environment.packages, tmp_path / "own.bundle")
    (tmp_path / "list").write_text(f"# a comment\n{environment.packages}/gamma.py\n/not/there\n")
    options = ["--files", tmp_path / "list", "--include", "alpha/deep/*", "--also", tmp_path / "more", "--no-base"]
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "thing").write_text("thing")
    assert stage(own, *options, "--include", "thing", command=[]).returncode == 0
    files = {file.path.rpartition("site-packages/")[2] for file in manifest_of(own.bundle).files}
    assert {"gamma.py", "alpha/deep/inner.py", "also1/thing"} <= files
    assert "alpha/near.py" not in files


def test_everything(environment: Environment, tmp_path: Path) -> None:
    own = Environment(environment.folder, environment.packages, tmp_path / "own.bundle")
    assert stage(own, "--all", "--no-base", command=[]).returncode == 0
    manifest = manifest_of(own.bundle)
    assert [path for path, _, kind in manifest.links if kind == LINK_OUT] == ["env/include"]  # nothing in it
    there = {path for path in environment.folder.rglob("*") if path.is_file() and not path.is_symlink()}
    assert len(manifest.files) == len(there)


def test_compressed_bundles_hold_the_same(environment: Environment, tmp_path: Path) -> None:
    own = Environment(environment.folder, environment.packages, tmp_path / "own.bundle")
    assert stage(own, "--all", "--no-base", "--compress", "zlib", command=[]).returncode == 0
    assert own.bundle.stat().st_size < manifest_of(own.bundle).raw_bytes
    show = "import sys, alpha.rare; print(sys.prefix, alpha.rare.WHERE)"
    done = stage(own, "--to", tmp_path, command=python(show))
    prefix, rare = done.stdout.split()
    assert rare.startswith(prefix) and str(tmp_path) in prefix


STRACE = """\
execve("/env/bin/python", ["python"], 0x7ffd /* 30 vars */) = 0
[pid  12] openat(AT_FDCWD</home/u>, "data/x\\303\\274.txt", O_RDONLY) = 3</home/u/data/xü.txt>
13 openat(7</env/lib>, "a.so", O_RDONLY|O_CLOEXEC) = 3</env/lib/a.so>
14 1700000000.123456 newfstatat(AT_FDCWD, "/env/lib/seen.py", {st_mode=S_IFREG|0644, st_size=5, ...}, 0) = 0
15 newfstatat(3</env/open>, "", {st_mode=S_IFREG|0644, st_size=5, ...}, AT_EMPTY_PATH) = 0
16 openat(AT_FDCWD, "/env/missing", O_RDONLY) = -1 ENOENT (No such file or directory)
17 openat(AT_FDCWD, "/env/broken_off", O_RDONLY <unfinished ...>
17 <... openat resumed>) = 3
18 mkdir("/env/made", 0777) = 0
19 openat(AT_FDCWD, "relative", O_RDONLY) = 3
--- SIGCHLD {si_signo=SIGCHLD} ---
+++ exited with 0 +++
"""


def test_a_log_of_strace(tmp_path: Path) -> None:
    assert from_strace(STRACE.splitlines(), "/here") == {
        "/env/bin/python": OPENED,
        "/home/u/data/xü.txt": OPENED,
        "/env/lib/a.so": OPENED,
        "/env/lib/seen.py": LOOKED_AT,
        "/env/open": LOOKED_AT,
        "/env/broken_off": OPENED,
        "/here/relative": OPENED,
    }
    (tmp_path / "log").write_text(STRACE)
    assert read_list(str(tmp_path / "log"))["/env/lib/a.so"] == OPENED


def test_numpy_comes_from_the_copy(tmp_path: Path) -> None:
    """Every file of numpy that is mapped or imported lies in the copy."""
    from mpis import ROOT

    folder = ROOT / ".envs" / "packages"
    if not (folder / "bin" / "python").exists():
        pytest.skip(".envs/packages is missing: run make envs")
    own = Environment(folder, folder, tmp_path / "numpy.bundle")
    done = stage(own, "--record", "--no-base", command=python("import numpy; numpy.linalg.inv(numpy.eye(3))"))
    assert done.returncode == 0, done.stderr
    code = """
import numpy, sys, json, os
numpy.linalg.inv(numpy.eye(3))
maps = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "numpy" in line}
modules = [module for name, module in sys.modules.items() if name.startswith("numpy")]
files = {os.path.realpath(module.__file__) for module in modules if getattr(module, "__file__", None)}
print(json.dumps([sys.prefix, sorted(maps | files)]))
"""
    done = stage(own, "--to", tmp_path, command=python(code))
    assert done.returncode == 0, done.stderr
    prefix, names = json.loads(done.stdout)
    assert len(names) > 50
    assert [name for name in names if not name.startswith(prefix)] == []
