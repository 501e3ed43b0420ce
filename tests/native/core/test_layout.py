"""layout.h, its Python twin and its drawing in the docs say the same."""

from __future__ import annotations

import re
import subprocess
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from rankscope import rank_file

ROOT = Path(__file__).parents[3]
LAYOUT = ROOT / "src/rankscope/native/core/layout.h"
DRAWING = ROOT / "docs/inside/rank-file.md"
ENUMS: dict[str, type[IntEnum] | type[IntFlag]] = {
    "rs_state": rank_file.State,
    "rs_flag": rank_file.Flag,
    "rs_tick_source": rank_file.TickSource,
    "rs_rank_source": rank_file.RankSource,
    "rs_layer": rank_file.LayerNumber,
    "rs_kind": rank_file.Kind,
    "rs_chunk_kind": rank_file.ChunkKind,
    "rs_collective_flag": rank_file.CollectiveFlag,
    "rs_message_flag": rank_file.MessageFlag,
    "rs_group_kind": rank_file.GroupKind,
    "rs_group_flag": rank_file.GroupFlag,
    "rs_cuda_state": rank_file.CudaState,
    "rs_cuda_api": rank_file.CudaApi,
    "rs_backend": rank_file.Backend,
    "rs_runtime_state": rank_file.RuntimeState,
    "rs_trace_keep": rank_file.TraceKeep,
    "rs_event_flag": rank_file.EventFlag,
    "rs_part": rank_file.Part,
    "rs_step_flag": rank_file.StepFlag,
    "rs_idle": rank_file.Idle,
    "rs_device_step_flag": rank_file.DeviceStepFlag,
    "rs_precision": rank_file.Precision,
    "rs_flops_flag": rank_file.FlopsFlag,
    "rs_mark_kind": rank_file.MarkKind,
    "rs_imports_mode": rank_file.ImportsMode,
    "rs_calls_method": rank_file.CallsMethod,
    "rs_module_flag": rank_file.ModuleFlag,
    "rs_cause": rank_file.Cause,
    "rs_operation": rank_file.Operation,
}

Places = dict[str, tuple[int, dict[str, tuple[int, int]]]]  # structure -> size, field -> offset and size


def twin_places() -> Places:
    places: Places = {}
    for name, dtype in rank_file.STRUCTURES.items():
        members = dtype.fields
        assert members is not None
        places[name] = (dtype.itemsize, {key: (int(at), of.itemsize) for key, (of, at, *_) in members.items()})
    return places


def printer(places: Places) -> str:
    lines = ["#include <stddef.h>", "#include <stdio.h>", f'#include "{LAYOUT}"', "int main(void) {"]
    for name, (_, fields) in places.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for key in fields:
            size = f"sizeof(((struct {name} *)0)->{key})"
            lines.append(f'printf("{name} {key} %zu %zu\\n", offsetof(struct {name}, {key}), {size});')
    return "\n".join([*lines, "return 0; }"])


def test_the_twin_has_the_offsets_and_sizes_of_the_c_structures(tmp_path: Path) -> None:
    twin = twin_places()
    (tmp_path / "print.c").write_text(printer(twin))
    subprocess.run(["cc", "-o", tmp_path / "print", tmp_path / "print.c"], check=True)
    printed = subprocess.run([tmp_path / "print"], check=True, capture_output=True, text=True).stdout
    seen: Places = {}
    for line in printed.splitlines():
        name, *rest = line.split()
        if len(rest) == 1:
            seen[name] = (int(rest[0]), {})
        else:
            seen[name][1][rest[0]] = (int(rest[1]), int(rest[2]))
    assert seen == twin


def test_the_twin_knows_every_structure_and_field() -> None:
    text = re.sub(r"/\*.*?\*/", "", LAYOUT.read_text(), flags=re.S)
    declared = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\}", text, flags=re.S):
        names = [re.sub(r"\[.*", "", part).split()[-1] for part in re.findall(r"[^,;]+(?=[,;])", body)]
        declared[name] = set(names)
    declared.pop("rs_string")  # of no fixed size; tested by its use
    assert declared == {name: set(fields) for name, (_, fields) in twin_places().items()}


@pytest.mark.parametrize("name", ENUMS)
def test_the_enumerations_are_equal(name: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", LAYOUT.read_text(), flags=re.S)
    body = re.search(rf"enum {name} \{{(.*?)\}}", text, flags=re.S)
    assert body is not None
    declared = {key: int(value) for key, value in re.findall(r"(RS_\w+) = (\d+)", body[1])}
    assert sorted(declared.values()) == sorted(member.value for member in ENUMS[name])
    for key, value in declared.items():
        assert key.endswith(ENUMS[name](value).name or "?"), key


def test_all_enumerations_are_covered() -> None:
    assert set(re.findall(r"enum (\w+) \{", LAYOUT.read_text())) == set(ENUMS) | {"rs_phase"}


def test_the_drawing_has_the_real_offsets() -> None:
    drawn: Places = {}
    name = ""
    for line in DRAWING.read_text().splitlines():
        if heading := re.match(r"### (rs_\w+) \((\d+) bytes\)", line):
            name = heading[1]
            drawn[name] = (int(heading[2]), {})
        elif row := re.match(r"\| (\d+) \| (\d+) \| `(\w+)` \|", line):
            drawn[name][1][row[3]] = (int(row[1]), int(row[2]))
    assert drawn == twin_places()
