"""`rankscope gather` on rank files that stayed behind."""

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from installed import ROOT, compile_c
from rankscope.cli.gather import run as gather
from rankscope.record.gather import BYTE_ORDER, FIELDS, HEAD_BYTES, MAGIC, RUNNING
from rankscope.record.place import boot, namespace_of, process

EXITED = 2


def rank_file(path: Path, used_bytes: int = 8192, fill: bytes = b"x", order: str = "<", **fields: int) -> Path:
    """A file that begins as a rank file does and reserves more than it uses."""
    values = {
        "byte_order": BYTE_ORDER,
        "header_bytes": HEAD_BYTES,
        "page_bytes": 4096,
        "used_bytes": used_bytes,
        "state": RUNNING,
        "pid": 2**22 + 1,
        "start_jiffies": 77,
        "loaded_realtime_ns": 10**18,
        "heard_realtime_ns": 10**18 + 5,
        "boot_id": boot(),
        "pid_namespace": namespace_of("self"),
        **fields,
    }
    head = bytearray(HEAD_BYTES)
    head[:8] = MAGIC
    for name, (at, code) in FIELDS.items():
        struct.pack_into(order + code, head, at, values[name])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(head) + fill * (used_bytes - HEAD_BYTES) + bytes(65536 - used_bytes))
    return path


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"options": {"local_dir": str(tmp_path / "local")}}))
    return folder


def test_fields_are_where_the_layout_says(tmp_path: Path) -> None:
    names = {"heard_realtime_ns": "facts.anchor.realtime_ns", "loaded_realtime_ns": "loaded.realtime_ns"}
    lines = [
        f'printf("{name} %zu %zu\\n", offsetof(struct rs_header, {names.get(name, name)}), '
        f"sizeof(((struct rs_header *)0)->{names.get(name, name)}));"
        for name in FIELDS
    ]
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "layout.h"\nint main(void) {{ {"".join(lines)} }}'
    compile_c(source, tmp_path / "offsets", f"-I{ROOT / 'src/rankscope/native/core'}")
    output = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout
    found = {name: (int(at), int(size)) for name, at, size in (line.split() for line in output.splitlines())}
    assert found == {name: (at, struct.calcsize(code)) for name, (at, code) in FIELDS.items()}


def test_only_used_bytes_are_copied(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = rank_file(tmp_path / "local/ranks/n1/5.rank")
    assert gather([str(run_folder)]) == 0
    copy = run_folder / "ranks/n1/5.rank"
    assert copy.read_bytes() == source.read_bytes()[:8192] and source.exists()
    assert "1 copied" in capsys.readouterr().out
    assert [path.name for path in copy.parent.iterdir()] == ["5.rank"]
    assert gather([str(run_folder)]) == 0 and "1 already in the run" in capsys.readouterr().out


def test_byte_order_of_another_host(run_folder: Path, tmp_path: Path) -> None:
    rank_file(tmp_path / "local/ranks/n1/5.rank", order=">")
    assert gather([str(run_folder)]) == 0 and (run_folder / "ranks/n1/5.rank").stat().st_size == 8192


def test_a_newer_copy_is_kept(run_folder: Path, tmp_path: Path) -> None:
    rank_file(tmp_path / "local/ranks/n1/5.rank", state=RUNNING)
    there = rank_file(run_folder / "ranks/n1/5.rank", fill=b"y", state=EXITED)
    before = there.read_bytes()
    assert gather([str(run_folder)]) == 0 and there.read_bytes() == before


def test_an_older_copy_is_replaced(run_folder: Path, tmp_path: Path) -> None:
    """The local file is the live one: with equal times its counters may still have moved."""
    rank_file(tmp_path / "local/ranks/n1/5.rank", fill=b"y")
    there = rank_file(run_folder / "ranks/n1/5.rank")
    assert gather([str(run_folder)]) == 0 and there.read_bytes()[-1:] == b"y"


@pytest.mark.parametrize("other", [{"start_jiffies": 78, "loaded_realtime_ns": 7}, {"loaded_realtime_ns": 7}])
def test_two_programs_with_one_process_id(run_folder: Path, tmp_path: Path, other: dict[str, int]) -> None:
    rank_file(tmp_path / "local/ranks/n1/5.rank", **other)
    there = rank_file(run_folder / "ranks/n1/5.rank")
    before = there.read_bytes()
    assert gather([str(run_folder)]) == 0
    assert there.read_bytes() == before and (run_folder / "ranks/n1/5-7.rank").exists()


def test_remove_after_reading_back(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = rank_file(tmp_path / "local/ranks/n1/5.rank")
    assert gather([str(run_folder), "--remove"]) == 0 and not source.exists()
    assert "1 removed" in capsys.readouterr().out


def test_a_living_process_keeps_its_file(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    me = process(os.getpid())
    assert me
    source = rank_file(tmp_path / "local/ranks/n1/5.rank", pid=me.pid, start_jiffies=me.start_ticks)
    assert gather([str(run_folder), "--remove"]) == 0 and source.exists()
    assert "still running" in capsys.readouterr().out


def test_damaged_files_are_named_and_others_copied(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "local/ranks/n1"
    rank_file(folder / "1.rank")
    (folder / "2.rank").write_bytes(b"")
    rank_file(folder / "3.rank", byte_order=7)
    os.truncate(rank_file(folder / "4.rank"), 4096)
    assert gather([str(run_folder)]) == 1
    captured = capsys.readouterr()
    assert "1 copied" in captured.out and "3 failed" in captured.out
    assert [f"{n}.rank" in captured.err for n in (1, 2, 3, 4)] == [False, True, True, True]


def test_nothing_to_collect(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gather([str(run_folder)]) == 0 and "nothing to collect" in capsys.readouterr().out


def test_from_overrides(run_folder: Path, tmp_path: Path) -> None:
    rank_file(tmp_path / "elsewhere/ranks/n2/9.rank")
    assert gather([str(run_folder), "--from", str(tmp_path / "elsewhere")]) == 0
    assert (run_folder / "ranks/n2/9.rank").exists()


@pytest.mark.parametrize("words", [[], ["/no/such/run"], ["a", "b"], ["--bogus", "a"]])
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gather(words) == 2 and capsys.readouterr().err.count("\n") == 1


def test_run_without_local_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text('{"options": {"local_dir": null}}')
    assert gather([str(tmp_path)]) == 2 and "--from" in capsys.readouterr().err
