"""After an upgrade, a removal, an edit: the new code is what runs, and the check says what has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.import_index.environments import Environment, install, new_environment, pip, rankscope, site_packages, wheel

SHOW = "import grows, grows.inner.part; print(grows.VERSION, grows.inner.part.VERSION)"


def grows(version: str) -> dict[str, str]:
    text = f"VERSION = {version!r}\n"
    return {"grows/__init__.py": text, "grows/inner/__init__.py": "", "grows/inner/part.py": text}


@pytest.fixture
def own(tmp_path: Path) -> Environment:
    """An environment with two packages, indexed."""
    environment = new_environment(tmp_path)
    install(environment, wheel(tmp_path, "grows", "1", grows("1")))
    install(environment, wheel(tmp_path, "stays", "1", {"stays/__init__.py": "VALUE = 1\n", "stays/more.py": ""}))
    environment.build("--statement", SHOW + "; import stays.more")
    assert environment.run("-c", SHOW, index=True).stdout == "1 1\n"
    return environment


def check_of(environment: Environment) -> str:
    """What --check prints; its exit code must say the same."""
    done = rankscope("index", environment.python, "--out", environment.index, "--check")
    assert done.returncode == (0 if "everything is as recorded" in done.stdout else 1), done.stderr
    return done.stdout


def test_unchanged(own: Environment) -> None:
    used = own.run("-c", SHOW, index=True)
    assert used.counts["code"] >= 3
    assert (used.changed, used.counts["refused"]) == ([], 0)
    assert "everything is as recorded" in check_of(own)


@pytest.mark.slow
def test_upgrade_and_downgrade(own: Environment, tmp_path: Path) -> None:
    for version in ("2", "1"):
        install(own, wheel(tmp_path, "grows", version, grows(version)))
        used = own.run("-c", SHOW + "; import stays.more", index=True)
        assert used.stdout == f"{version} {version}\n"
        assert any(path.endswith("/grows") for path in used.changed)
        assert not any("stays" in path for path in used.changed)
        assert used.counts["code"] >= 1  # the other package is still answered
    told = check_of(own)
    assert "grows" in told and "something was installed or removed" in told and "stays" not in told


def test_removal(own: Environment) -> None:
    pip(own, "uninstall", "--yes", "grows")
    used = own.run("-c", "import stays.more\nimport grows", index=True)
    assert used.code == 1
    assert "No module named 'grows'" in used.stderr
    assert used.counts["code"] >= 1


@pytest.mark.slow
def test_removal_of_a_submodule(own: Environment) -> None:
    (site_packages(own) / "grows" / "inner" / "part.py").unlink()
    assert "No module named 'grows.inner.part'" in own.run("-c", SHOW, index=True).stderr


@pytest.mark.slow
def test_new_package(own: Environment, tmp_path: Path) -> None:
    install(own, wheel(tmp_path, "fresh", "1", {"fresh.py": "VALUE = 'fresh'\n"}))
    assert own.run("-c", "import fresh; print(fresh.VALUE)", index=True).stdout == "fresh\n"


@pytest.mark.slow
def test_package_in_place_of_a_module(own: Environment, tmp_path: Path) -> None:
    folder = site_packages(own) / "stays" / "more"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 'a package now'\n")
    assert own.run("-c", "import stays.more; print(stays.more.VALUE)", index=True).stdout == "a package now\n"


def test_edit_that_replaces_the_file(own: Environment, tmp_path: Path) -> None:
    """Most editors, pip, git and sed -i write beside and rename."""
    target = site_packages(own) / "grows" / "inner" / "part.py"
    (tmp_path / "edited").write_text("VERSION = 'edited'\n")
    os.replace(tmp_path / "edited", target)
    assert own.run("-c", SHOW, index=True).stdout == "1 edited\n"


def test_edit_in_place(own: Environment) -> None:
    """Only the file itself shows it: documented as not noticed, unless files are checked; --check always finds it."""
    (site_packages(own) / "grows" / "inner" / "part.py").write_text("VERSION = 'edited'\n")
    assert own.run("-c", SHOW, index=True).stdout == "1 1\n"
    used = own.run("-c", SHOW, index=True, RANKSCOPE_INDEX_CHECK="files")
    assert used.stdout == "1 edited\n"
    assert used.changed == [str(site_packages(own) / "grows" / "inner" / "part.py")]
    assert "edited in place" in check_of(own)
    own.build()
    assert own.run("-c", SHOW, index=True).stdout == "1 edited\n"


FINDER = """
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "by_finder":
            return importlib.util.spec_from_file_location(name, {place!r})
sys.meta_path.append(Finder)
"""


@pytest.mark.slow
def test_edit_of_editable_installs(own: Environment, tmp_path: Path) -> None:
    """Both forms: a folder in a .pth file, and a finder that a .pth file starts."""
    source = tmp_path / "source"
    (source / "by_folder").mkdir(parents=True)
    finder = FINDER.format(place=str(source / "by_finder.py"))
    files = {"__editable__.by_folder.pth": f"{source}\nimport __editable___finder\n", "__editable___finder.py": finder}
    install(own, wheel(tmp_path, "by_folder", "0", files))
    texts = (source / "by_folder" / "__init__.py", source / "by_finder.py")
    show = "import by_folder, by_finder; print(by_folder.VALUE, by_finder.VALUE)"
    for value in ("first", "again"):
        for text in texts:
            text.write_text(f"VALUE = {value!r}\n")
        if value == "first":
            own.build()
        used = own.run("-c", show, index=True)
        assert used.stdout == f"{value} {value}\n", used.stderr
    assert used.changed == []


WRITES = """
import importlib, os, sys, time
import stays
new = os.path.dirname(stays.__file__) + "/written.py"
try:
    import stays.written
except ImportError:
    print("not there yet")
with open(new, "w") as file:
    file.write("VALUE = 'written'")
if len(sys.argv) > 1:
    importlib.invalidate_caches()
import stays.written
print(stays.written.VALUE)
os.unlink(new)
"""


@pytest.mark.parametrize("words", [[], ["invalidate"]], ids=["as it comes", "after invalidate_caches"])
def test_module_written_while_the_program_runs(own: Environment, words: list[str]) -> None:
    used = own.run("-c", WRITES, *words, index=True)
    assert (used.stdout, used.stderr) == ("not there yet\nwritten\n", "")


@pytest.mark.slow
def test_invalidate_caches_looks_again(own: Environment) -> None:
    code = """
import importlib, os, stays
os.replace(os.path.dirname(stays.__file__) + "/more.py", os.path.dirname(stays.__file__) + "/other.py")
importlib.invalidate_caches()
try:
    import stays.more
except ImportError as error:
    print(error)
"""
    assert own.run("-c", code, index=True).stdout == "No module named 'stays.more'\n"
