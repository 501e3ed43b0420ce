"""The slow file system counts exactly what it is asked, with each kind of client cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.slowfs.mount import SlowMount, of_server
from slow_file_system import slow_file_system

TIMES = 7
CACHES = ("none", "positive", "negative")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a file, a file two folders down, a link, and a folder of 3,000 names."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"x" * 5000)
    (tmp_path / "a" / "b" / "deep").write_text("deep")
    (tmp_path / "link").symlink_to("a/b/deep")
    (tmp_path / "many").mkdir()
    for number in range(3000):
        (tmp_path / "many" / f"name{number:04}").touch()
    return tmp_path


def asked(mount: SlowMount, before: dict[str, int]) -> dict[str, int]:
    """What was asked since, without the zeros."""
    now = mount.counters()
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}


# A stat asks for the name and, where what came with it may not be kept, for the attributes again.
STATS = {
    "none": {"lookup": 3 * TIMES, "getattr": TIMES, "metadata": 4 * TIMES},
    "positive": {"lookup": 3, "metadata": 3},
    "negative": {"lookup": 3, "metadata": 3},
}


@pytest.mark.parametrize("cache", CACHES)
def test_stats_of_a_file_two_folders_down(source: Path, cache: str) -> None:
    with slow_file_system(source, cache=cache) as mount:
        before = mount.counters()
        assert [(mount.path / "a/b/deep").stat().st_size for _ in range(TIMES)] == [4] * TIMES
        assert asked(mount, before) == STATS[cache]


@pytest.mark.parametrize("cache", CACHES)
def test_stats_of_missing_files(source: Path, cache: str) -> None:
    with slow_file_system(source, cache=cache) as mount:
        before = mount.counters()
        for _ in range(TIMES):
            with pytest.raises(FileNotFoundError):
                (mount.path / "nothing").stat()
        lookups = 1 if cache == "negative" else TIMES
        assert asked(mount, before) == {"lookup": lookups, "missing": lookups, "metadata": lookups}


@pytest.mark.parametrize(("cache", "reads"), [("none", TIMES), ("positive", 1)])
def test_opens_go_to_the_server_and_reads_only_where_nothing_is_kept(source: Path, cache: str, reads: int) -> None:
    with slow_file_system(source, cache=cache) as mount:
        before = mount.counters()
        for _ in range(TIMES):
            descriptor = os.open(mount.path / "file", os.O_RDONLY)
            assert os.read(descriptor, 10000) == b"x" * 5000
            os.close(descriptor)
        made = asked(mount, before)
        assert (made["open"], made["read"], made["bytes"]) == (TIMES, reads, reads * 5000)


def test_links_accesses_and_terminal_questions(source: Path) -> None:
    with slow_file_system(source, cache="positive") as mount:
        before = mount.counters()
        assert os.readlink(mount.path / "link") == "a/b/deep"
        assert (mount.path / "link").read_text() == "deep"
        assert os.access(mount.path / "file", os.R_OK)
        made = asked(mount, before)
        assert made["readlink"] == 1  # kept
        assert made["access"] == 1
        assert made["lookup"] == 5  # link, a, b, deep, file
        assert made["ioctl"] >= 1  # Python asks whether it reads from a terminal
        assert made["metadata"] == sum(
            made.get(name, 0) for name in ("lookup", "getattr", "access", "readlink", "open")
        )


def test_a_big_folder_is_listed_whole(source: Path) -> None:
    with slow_file_system(source) as mount:
        before = mount.counters()
        assert sorted(os.listdir(mount.path / "many")) == sorted(os.listdir(source / "many"))
        made = asked(mount, before)
        assert made["opendir"] == 1
        assert made["readdir"] >= 2
        assert "getattr" not in made or made["getattr"] <= 1  # names only, no attributes of each


def test_what_changes_in_the_source_is_seen_without_a_cache(source: Path) -> None:
    with slow_file_system(source) as mount:
        assert (mount.path / "file").stat().st_size == 5000
        (source / "fresh").write_text("new")
        (source / "fresh").replace(source / "file")
        assert (mount.path / "file").read_text() == "new"
        (source / "file").unlink()
        assert not (mount.path / "file").exists()


def test_nothing_can_be_written(source: Path) -> None:
    with slow_file_system(source) as mount, pytest.raises(OSError, match="Read-only"):
        (mount.path / "new").touch()


def test_two_mounts_of_one_server_add_up(source: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    server = tmp_path_factory.mktemp("server") / "shared"
    with slow_file_system(source, server=server) as one, slow_file_system(source, server=server) as other:
        for mount, times in ((one, 3), (other, 5)):
            before = mount.counters()
            for _ in range(times):
                assert not (mount.path / "nothing").exists()
            assert asked(mount, before)["lookup"] == times
    assert of_server(server)["lookup"] == 8


def test_programs_modules_and_shared_objects_come_from_the_mount(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from package.inner import answer\n")
    (package / "inner.py").write_text("answer = 42\n")
    (tmp_path / "small.c").write_text("int small(void) { return 7; }\n")
    library = tmp_path / "libsmall.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "small.c", "-o", library], check=True)
    with slow_file_system(tmp_path, latency_us=100) as mount:
        code = "import ctypes, package; print(package.answer, ctypes.CDLL('./libsmall.so').small(), package.__file__)"
        environment = {**os.environ, "PYTHONPATH": str(mount.path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=mount.path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout == f"42 7 {mount.path}/package/__init__.py\n", done.stderr
        assert mount.counters()["open"] >= 3
