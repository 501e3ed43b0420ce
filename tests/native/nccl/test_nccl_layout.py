"""nccl.h places fields where NCCL's interface has them: offsets worked out by hand for 64-bit Linux.

A descriptor begins with its type (one byte, eight from version 5), the parent's handle and the rank; the union with
the operation follows at byte 24 in every version. Pointers, counts and hashes take 8 bytes, int 4, the rest as said.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import hatch_build

# "coll" and "p2p" offsets include the 24 bytes before the union.
NAMED = {"coll.func": 48, "coll.count": 72, "coll.root": 80, "coll.datatype": 88, "p2p.func": 40, "p2p.datatype": 56}
NAMED |= {"coll.comm_name": 24, "coll.comm_hash": 32, "coll.sequence": 40, "p2p.count": 64, "p2p.peer": 72}
UNNAMED = {"coll.sequence": 24, "coll.func": 32, "coll.send": 40, "coll.receive": 48, "coll.count": 56}
UNNAMED |= {"coll.root": 64, "coll.datatype": 72, "coll.channels": 80, "coll.warps": 81, "coll.algo": 88}
UNNAMED |= {"coll.proto": 96, "p2p.func": 24, "p2p.buffer": 32, "p2p.datatype": 40, "p2p.count": 48, "p2p.peer": 56}
UNNAMED |= {"p2p.channels": 60, "channel.channel": 24, "channel.gpu_ns": 32}
HEAD = {"type": 0, "parent": 8, "rank": 16}
OFFSETS: dict[str, dict[str, int]] = {
    "nccl_descr_v1": HEAD
    | {"coll.comm_name": 24, "coll.comm_hash": 32, "coll.sequence": 40, "coll.func": 48, "coll.send": 56}
    | {"coll.receive": 64, "coll.count": 72, "coll.root": 80, "coll.datatype": 84, "coll.op": 88}
    | {"coll.traffic_bytes": 96, "coll.channels": 104, "coll.warps": 105, "coll.algo": 106, "coll.proto": 107}
    | {"coll.collnet": 108, "coll.nvls": 112, "p2p.comm_name": 24, "p2p.comm_hash": 32, "p2p.func": 40}
    | {"p2p.buffer": 48, "p2p.datatype": 56, "p2p.count": 64, "p2p.peer": 72},
    "nccl_descr_v2": HEAD
    | NAMED
    | {"coll.traffic_bytes": 96, "coll.channels": 104, "coll.warps": 105, "coll.algo": 112, "coll.proto": 120},
    "nccl_descr_v3": HEAD
    | NAMED
    | {"coll.channels": 96, "coll.warps": 97, "coll.algo": 104, "coll.proto": 112, "channel.channel": 24},
    "nccl_descr_v4": HEAD | UNNAMED,
    "nccl_descr_v5": HEAD
    | UNNAMED
    | {"ce_coll.sequence": 24, "ce_coll.func": 32, "ce_coll.count": 56, "ce_coll.root": 64, "ce_coll.datatype": 72},
    "nccl_profiler": {"name": 0, "init_v1": 8, "start": 16, "stop": 24, "state": 32, "finalize": 40},
}
TYPE_BYTES = {"nccl_descr_v4": 1, "nccl_descr_v5": 8}


@pytest.mark.parametrize("structure", OFFSETS)
def test_offsets(structure: str, tmp_path: Path) -> None:
    lines = [f'#include "{hatch_build.NATIVE / "nccl" / "nccl.h"}"', "#include <stdio.h>", "int main(void) {"]
    lines += [f'printf("{field} %zu\\n", offsetof(struct {structure}, {field}));' for field in OFFSETS[structure]]
    if structure in TYPE_BYTES:
        lines.append(f'printf("size %zu\\n", sizeof(((struct {structure} *)0)->type));')
    (tmp_path / "print.c").write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run(["cc", "-o", tmp_path / "print", tmp_path / "print.c"], check=True)
    printed = subprocess.run([tmp_path / "print"], check=True, capture_output=True, text=True).stdout
    found = {field: int(number) for field, number in (line.split() for line in printed.splitlines())}
    assert found.pop("size", None) == TYPE_BYTES.get(structure)
    assert found == OFFSETS[structure]
