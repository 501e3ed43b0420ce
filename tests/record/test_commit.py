"""The commit of the program, of real repositories, and of what is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rankscope.record.commit import commit_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")


def git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "program"
    (place / "deep" / "er").mkdir(parents=True)
    git(place, "init", "-q")
    (place / "deep" / "er" / "train.py").write_text("1")
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    monkeypatch.chdir(place / "deep")
    return place


def head(place: Path) -> str:
    return git(place, "rev-parse", "HEAD")


def test_of_a_branch_packed_or_not_and_of_none(repository: Path) -> None:
    assert commit_of(["./solver"]) == head(repository)
    git(repository, "checkout", "-qb", "feature/x")
    git(repository, "commit", "-qm", "two", "--allow-empty")
    assert commit_of(["./solver"]) == head(repository)
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git/refs/heads/feature/x").exists()
    assert commit_of(["./solver"]) == head(repository)
    git(repository, "checkout", "-q", "--detach", "HEAD~1")
    assert commit_of(["./solver"]) == head(repository)


def test_of_a_work_tree(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path / "tree", "commit", "-qm", "three", "--allow-empty")
    monkeypatch.chdir(tmp_path / "tree")
    assert commit_of(["./solver"]) == head(tmp_path / "tree") != head(repository)
    git(tmp_path / "tree", "pack-refs", "--all")
    assert commit_of(["./solver"]) == head(tmp_path / "tree")


def test_the_script_says_where_the_program_is(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.py").symlink_to(repository / "deep/er/train.py")
    assert commit_of(["python", str(repository / "deep/er/train.py"), "x.py"]) == head(repository)
    assert commit_of(["python", "link.py"]) == head(repository)
    assert commit_of(["python", "-m", "train"]) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda git: (git / "HEAD").write_text("ref: refs/heads/../../../etc/passwd\n"),
        lambda git: (git / "HEAD").write_text("nonsense\n"),
        lambda git: (git / "HEAD").write_bytes(b"\xff\xfe"),
        lambda git: (git / "HEAD").unlink(),
        lambda git: (git / "refs/heads/main").write_text("xyz\n"),
        lambda git: shutil.rmtree(git / "refs"),
        lambda git: ((git / "HEAD").unlink(), os.mkfifo(git / "HEAD")),
    ],
)
def test_what_is_damaged_is_unknown(damage, repository: Path) -> None:  # type: ignore[no-untyped-def]
    git(repository, "branch", "-M", "main")
    damage(repository / ".git")
    assert commit_of(["./solver"]) is None


def test_in_no_repository_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert commit_of(["python", "/nowhere/train.py"]) is None
    (tmp_path / ".git").write_text("no work tree")
    assert commit_of([]) is None
