"""Our declarations of CUPTI's records lie where the real headers say, in the oldest and the newest CUDA we know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build
from mpis import ROOT

NATIVE = ROOT / "src" / "rankscope" / "native"
WHEELS = {
    "12.1": ("cuda-cupti-cu12==12.1.*", "cuda-runtime-cu12==12.1.*", "cuda-nvcc-cu12==12.1.*"),
    "12.9": ("cuda-cupti-cu12==12.9.*", "cuda-runtime-cu12==12.9.*", "cuda-nvcc-cu12==12.9.*"),
    "13.0": ("cuda-cupti==13.0.*", "cuda-runtime==13.0.*", "cuda-crt==13.0.*"),
    "13.4": ("cuda-cupti==13.4.*", "cuda-runtime==13.4.*", "cuda-crt==13.4.*"),
}
OLD = {"POOL": "MemoryPool2", "UNIFIED": "UnifiedMemoryCounter2"}
NEW = {"POOL": "MemoryPool3", "UNIFIED": "UnifiedMemoryCounter3"}
RECORDS = {  # the name of the record in each of these versions
    "12.1": {"KERNEL": "Kernel9", "MEMCPY": "Memcpy5", "MEMSET": "Memset4", "MEMORY": "Memory3", **OLD},
    "12.9": {"KERNEL": "Kernel9", "MEMCPY": "Memcpy6", "MEMSET": "Memset4", "MEMORY": "Memory4", **OLD},
    "13.0": {"KERNEL": "Kernel10", "MEMCPY": "Memcpy6", "MEMSET": "Memset4", "MEMORY": "Memory4", **NEW},
    "13.4": {"KERNEL": "Kernel13", "MEMCPY": "Memcpy7", "MEMSET": "Memset5", "MEMORY": "Memory4", **NEW},
}
FIELDS = {  # our structure, theirs, fields of the same name
    ("rs_cupti_kernel", "KERNEL"): "kind start end completed deviceId contextId streamId correlationId gridId name",
    ("rs_cupti_memcpy", "MEMCPY"): "kind copyKind bytes start end deviceId contextId streamId correlationId",
    (
        "rs_cupti_memcpy2",
        "CUpti_ActivityMemcpyPtoP4",
    ): "kind bytes start end deviceId streamId dstDeviceId correlationId",
    ("rs_cupti_memset", "MEMSET"): "kind value bytes start end deviceId contextId streamId correlationId",
    ("rs_cupti_api", "CUpti_ActivityAPI"): "kind cbid start end processId threadId correlationId returnValue",
    ("rs_cupti_marker_record", "CUpti_ActivityMarker2"): "kind flags timestamp id objectKind name domain",
    ("rs_cupti_memory_record", "MEMORY"): (
        "kind memoryOperationType memoryKind correlationId address bytes timestamp PC processId deviceId streamId"
        " name isAsync"
    ),
    ("rs_cupti_pool_record", "POOL"): (
        "kind memoryPoolOperationType memoryPoolType deviceId minBytesToKeep address size timestamp utilizedSize"
    ),
    ("rs_cupti_unified_record", "UNIFIED"): (
        "kind counterKind value start end address srcId dstId streamId processId flags"
    ),
    ("rs_cupti_unified_config", "CUpti_ActivityUnifiedMemoryCounterConfig"): "scope kind deviceId enable",
}
POOL_FIELDS = {
    "poolType": "memoryPoolConfig.memoryPoolType",
    "poolAddress": "memoryPoolConfig.address",
    "poolSize": "memoryPoolConfig.pool.size",
    "poolUsed": "memoryPoolConfig.utilizedSize",
}
VALUES = {
    "RS_CUPTI_MEMCPY": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "RS_CUPTI_MEMSET": "CUPTI_ACTIVITY_KIND_MEMSET",
    "RS_CUPTI_DRIVER": "CUPTI_ACTIVITY_KIND_DRIVER",
    "RS_CUPTI_RUNTIME": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "RS_CUPTI_CONCURRENT_KERNEL": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "RS_CUPTI_MARKER": "CUPTI_ACTIVITY_KIND_MARKER",
    "RS_CUPTI_MEMCPY2": "CUPTI_ACTIVITY_KIND_MEMCPY2",
    "RS_CUPTI_MEMORY2": "CUPTI_ACTIVITY_KIND_MEMORY2",
    "RS_CUPTI_POOL": "CUPTI_ACTIVITY_KIND_MEMORY_POOL",
    "RS_CUPTI_UNIFIED": "CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER",
    "RS_CUPTI_MANAGED": "CUPTI_ACTIVITY_MEMORY_KIND_MANAGED",
    "RS_CUPTI_POOL_LOCAL": "CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL",
    "RS_CUPTI_POOL_CREATED": "CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED",
    "RS_CUPTI_POOL_DESTROYED": "CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED",
    "RS_CUPTI_POOL_TRIMMED": "CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED",
    "RS_CUPTI_TO_DEVICE": "CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD",
    "RS_CUPTI_TO_HOST": "CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH",
    "RS_CUPTI_CPU_FAULT": "CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_CPU_PAGE_FAULT_COUNT",
    "RS_CUPTI_GPU_FAULT": "CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT",
    "RS_CUPTI_DRIVER_API": "CUPTI_CB_DOMAIN_DRIVER_API",
    "RS_CUPTI_RUNTIME_API": "CUPTI_CB_DOMAIN_RUNTIME_API",
    "RS_CUPTI_OBJECT_THREAD": "CUPTI_ACTIVITY_OBJECT_THREAD",
    "RS_CUPTI_INSTANTANEOUS": "CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS",
    "RS_CUPTI_START": "CUPTI_ACTIVITY_FLAG_MARKER_START",
    "RS_CUPTI_END": "CUPTI_ACTIVITY_FLAG_MARKER_END",
    "RS_CUPTI_ALLOCATION": "CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION",
    "RS_CUPTI_RELEASE": "CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE",
    "RS_CUPTI_DEVICE": "CUPTI_ACTIVITY_MEMORY_KIND_DEVICE",
    "RS_CUPTI_PINNED": "CUPTI_ACTIVITY_MEMORY_KIND_PINNED",
    "RS_CUPTI_FLUSH_FORCED": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
    "RS_CUPTI_THREAD_ID_SYSTEM": "CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM",
    "RS_CUPTI_MULTIPLE_SUBSCRIBERS": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "RS_CUPTI_NOT_INITIALIZED": "CUPTI_ERROR_NOT_INITIALIZED",
}


def headers(version: str) -> list[str]:
    """The folders with the real headers, downloaded once."""
    folder = ROOT / ".envs" / "cuda-headers" / version
    if not (folder / ".ready").exists():
        packages = [f"nvidia-{name}" for name in WHEELS[version]]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"the headers of CUDA {version} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
        (folder / ".ready").touch()
    return [f"-I{path}" for path in sorted(folder.glob("nvidia/*/include"))]


def checks() -> str:
    lines = ["#include <stddef.h>", "#include <cuda.h>", "#include <cupti.h>", f'#include "{NATIVE}/cuda/cupti.h"']
    for (ours, theirs), fields in FIELDS.items():
        for field in fields.split():
            lines.append(
                f"_Static_assert(offsetof(struct {ours}, {field}) == offsetof({theirs}, {field})"
                f' && sizeof(((struct {ours} *)0)->{field}) == sizeof((({theirs} *)0)->{field}), "{ours}.{field}");'
            )
    thread = "offsetof(CUpti_ActivityMarker2, objectId) + offsetof(CUpti_ActivityObjectKindId, pt.threadId)"
    lines.append(f'_Static_assert(offsetof(struct rs_cupti_marker_record, threadId) == {thread}, "threadId");')
    for ours, theirs in POOL_FIELDS.items():
        lines.append(
            f'_Static_assert(offsetof(struct rs_cupti_memory_record, {ours}) == offsetof(MEMORY, {theirs}), "");'
        )
    lines += [f'_Static_assert({ours} == (int){theirs}, "{ours}");' for ours, theirs in VALUES.items()]
    return "\n".join(lines)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", WHEELS)
def test_records_and_numbers_are_the_real_ones(version: str, tmp_path: Path) -> None:
    folders = headers(version)
    (tmp_path / "check.c").write_text(checks() + "\n")
    names = [f"-D{ours}=CUpti_Activity{theirs}" for ours, theirs in RECORDS[version].items()]
    command = [*hatch_build.compiler(), "-std=gnu11", "-w", *folders, *names, "-c", "check.c", "-o", "check.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
