"""The copy as a squashfs image, where the tools are there; and what is said where they are not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from stage.conftest import REHEARSAL
from stage.jobs import Environment, copies, is_soon, python, stage

SHOW = "import sys, alpha, alpha.rare; print(sys.prefix); print(alpha.__file__); print(alpha.near.WHERE)"


@pytest.fixture
def image(environment: Environment, tmp_path: Path) -> Environment:
    missing = [name for name in ("mksquashfs", "squashfuse") if not shutil.which(name)]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not on the PATH")
    own = Environment(environment.folder, environment.packages, tmp_path / "image.bundle")
    done = stage(own, "--record", "--no-base", "--image", command=python(REHEARSAL))
    assert done.returncode == 0, done.stderr
    return own


def test_a_mounted_image_is_what_runs(image: Environment, tmp_path: Path) -> None:
    done = stage(image, "--to", tmp_path, command=python(SHOW + "; import os; print(os.path.realpath(alpha.__file__))"))
    if "cannot be mounted" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    prefix, package, module, real = done.stdout.split()
    assert package.startswith(prefix) and module.startswith(prefix)
    assert "/image/env/lib/" in real
    assert is_soon(lambda: not copies(tmp_path))
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_an_image_that_cannot_be_mounted_is_not_used(image: Environment, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("squashfuse", "squashfuse_ll"):
        (tools / name).write_text("#!/bin/sh\necho no way >&2\nexit 1\n")
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    done = stage(image, "--to", tmp_path, command=python("import sys; print(sys.prefix)"), PATH=path)
    assert (done.returncode, done.stdout) == (0, f"{image.folder}\n")
    assert done.stderr.count("\n") == 1 and "cannot be mounted (no way)" in done.stderr


def test_without_the_tools_no_image_is_made(environment: Environment, tmp_path: Path) -> None:
    own = Environment(environment.folder, environment.packages, tmp_path / "image.bundle")
    (tmp_path / "empty").mkdir()
    done = stage(own, "--all", "--no-base", "--image", command=[], PATH=str(tmp_path / "empty"))
    assert done.returncode == 1 and "needs mksquashfs" in done.stderr
    assert not own.bundle.exists()
