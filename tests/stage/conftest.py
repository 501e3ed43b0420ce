"""A small environment, and its bundle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stage.jobs import Environment, stage

PACKAGES = {
    "alpha/__init__.py": "from alpha import near\nVALUE = 1\n",
    "alpha/near.py": "WHERE = __file__\n",
    "alpha/rare.py": "WHERE = __file__\n",
    "alpha/data.txt": "touched\n",
    "alpha/unread.txt": "not touched\n",
    "alpha/deep/__init__.py": "from alpha.deep import inner\n",
    "alpha/deep/inner.py": "WHERE = __file__\n",
    "alpha-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n",
    "alpha-1.0.dist-info/RECORD": "",
    "alpha/looked/into.txt": "a folder that is looked at, a file that is not\n",
    "beta/__init__.py": "VALUE = 2\n",
    "gamma.py": "VALUE = 3\n",
    "odd name ü.txt": "odd\n",
}
SCRIPT = "#!{python}\nimport sys, alpha\nprint(sys.prefix)\nprint(alpha.__file__)\n"
REHEARSAL = "import alpha, os; open(alpha.__path__[0] + '/data.txt').read(); os.stat(alpha.__path__[0] + '/looked')"


def make_environment(folder: Path) -> Environment:
    """A venv without pip and with a few packages laid by hand."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for name, text in PACKAGES.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "lib" / "linked").symlink_to(packages / "beta")
    tool = folder / "bin" / "alpha-tool"
    tool.write_text(SCRIPT.format(python=folder / "bin" / "python"))
    tool.chmod(0o755)
    return Environment(folder, packages, folder.parent / "env.bundle")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment with its bundle; nobody changes either."""
    made = make_environment(tmp_path_factory.mktemp("original") / "env")
    done = stage(made, "--record", "--no-base", command=["python", "-c", REHEARSAL])
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def own_environment(tmp_path: Path) -> Environment:
    """One that a test may change."""
    made = make_environment(tmp_path / "own" / "env")
    done = stage(made, "--record", "--no-base", command=["python", "-c", REHEARSAL])
    assert done.returncode == 0, done.stderr
    return made
