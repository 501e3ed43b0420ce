"""Events of a Kineto trace as they stand in the file, decoded, with their times exact to the nanosecond."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.model.gpu import DeviceTotals
from rankscope.model.records import Group, RankFacts

# ---------------------------------------------------------------------------------------------------------------------
# What the members around the events of a Kineto trace say of the process: rank, devices, versions, process groups.
VERSIONS = {  # member: what it is a version of
    "cuda_runtime_version": "CUDA",
    "cuda_driver_version": "CUDA driver",
    "cupti_version": "CUPTI",
    "hip_runtime_version": "HIP",
    "hip_driver_version": "HIP driver",
    "rocm_version": "ROCm",
    "pytorch_version": "torch",
    "torch_version": "torch",
}
CUDA_CODED = ("cuda_runtime_version", "cuda_driver_version")  # 12040 means 12.4
MOST_GROUPS, MOST_LETTERS = 10_000, 1_000


def take_facts(facts: RankFacts, members: Mapping[str, Any]) -> None:
    """Add what these members say."""
    info = _mapping(members.get("distributedInfo"))
    rank, world_size = whole_number(info.get("rank")), whole_number(info.get("world_size"))
    if rank is not None and facts.rank is None:
        facts.rank, facts.rank_source = rank, "distributedInfo"
    facts.world_size = world_size if world_size is not None else facts.world_size
    facts.host = text(members.get("host_name")) or text(members.get("hostname")) or facts.host
    facts.devices = _devices(members) or facts.devices
    facts.versions = "; ".join(part for part in (facts.versions, _versions(members, info)) if part)


def groups_of(members: Mapping[str, Any], rank: int | None) -> list[Group]:
    """The process groups that distributedInfo lists."""
    configured = _mapping(members.get("distributedInfo")).get("pg_config")
    if not isinstance(configured, list):
        return []
    return [_group(group, rank) for group in configured[:MOST_GROUPS] if isinstance(group, dict)]


MEMORY, CPU = "[memory]", 0  # name of an event, and a device's type


def add_memory(devices: dict[int, DeviceTotals], arguments: Arguments) -> None:
    """Add what torch's caching allocator tells of one allocation or release: it is a pool of the device's memory."""
    device, size = whole_number(arguments.memory_device), whole_number(arguments.memory_bytes)
    kind = whole_number(arguments.memory_device_type)
    if kind is None or kind == CPU or device is None or size is None or not 0 <= device < MOST_GROUPS:
        return
    totals = devices.setdefault(device, DeviceTotals(device))
    totals.pool_allocations += size > 0
    totals.pool_releases += size < 0
    totals.pool_used_bytes = max(0, whole_number(arguments.memory_allocated) or 0)
    totals.pool_bytes = max(0, whole_number(arguments.memory_reserved) or 0)
    totals.pool_used_peak_bytes = max(totals.pool_used_peak_bytes, totals.pool_used_bytes)
    totals.pool_peak_bytes = max(totals.pool_peak_bytes, totals.pool_bytes)


def unnamed_group(name: str, groups: Sequence[Group], facts: RankFacts) -> Group:
    """The group of collectives of which the trace does not tell it: the only one there is, or else a guess."""
    if len(groups) == 1:
        return replace(groups[0], name=name, identity=f"{groups[0].identity}, by order")
    if not groups and facts.world_size:
        return Group(name, "all ranks, by order", size=facts.world_size, my_rank=facts.rank)
    return Group(name, "group unknown", guessed=True)


def _group(configured: Mapping[str, Any], rank: int | None) -> Group:
    listed = configured.get("ranks")
    ranks = [rank_listed for rank_listed in listed if isinstance(rank_listed, int)] if isinstance(listed, list) else []
    name, about = text(configured.get("pg_name")), text(configured.get("pg_desc"))
    # several groups may have one description, as those of the rows of a mesh
    identity = " ".join(part for part in (about if about != "undefined" else "", name) if part)
    return Group(
        name,
        identity=identity,
        size=whole_number(configured.get("pg_size")) or len(ranks) or None,
        my_rank=ranks.index(rank) if rank in ranks else None,
    )


def _devices(members: Mapping[str, Any]) -> str:
    listed = members.get("deviceProperties")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    names = Counter(text(device.get("name")) for device in devices)
    return ", ".join(f"{count} × {name}" for name, count in names.items() if name)


def _versions(members: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    texts = [f"{name} {_version(key, members[key])}" for key, name in VERSIONS.items() if text(members.get(key))]
    if text(info.get("nccl_version")):
        texts.append(f"NCCL {text(info.get('nccl_version'))}")
    return "; ".join(texts)


def _version(key: str, value: Any) -> str:
    number = whole_number(value)
    if key in CUDA_CODED and number is not None:
        return f"{number // 1000}.{number % 1000 // 10}"
    return text(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def whole_number(value: Any) -> int | None:
    """A number of a size that all tables can hold."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def text(value: Any) -> str:
    """A word, or a number as one."""
    number = None if isinstance(value, str) else whole_number(value)
    return value[:MOST_LETTERS] if isinstance(value, str) else "" if number is None else str(number)


# ---------------------------------------------------------------- kineto events
Ints = NDArray[np.int64]

ABSENT = -1
NO_TIME = -(2**63)
EXACT_BELOW_US = 1 << 43  # a double tells the nanoseconds of smaller times in microseconds
LARGEST_US = 2**62 // 1000  # 146 years
FRACTION = re.compile(rb'"ts"\s*:\s*(\d{13,16})\.\d')
LOOKED_AT_BYTES = 8 << 10
NOTHING = msgspec.Raw(b"[]")


class Arguments(msgspec.Struct, gc=False):
    """The arguments that are read; each category of events has some of them."""

    correlation: Any = ABSENT
    stream: Any = ABSENT
    device: Any = ABSENT
    bytes: Any = ABSENT
    name: Any = None  # of metadata events
    labels: Any = None
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    collective: Any = msgspec.field(default=None, name="Collective name")
    sequence: Any = msgspec.field(default=None, name="Seq")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_id: Any = msgspec.field(default=None, name="Process Group ID")
    memory_device_type: Any = msgspec.field(default=None, name="Device Type")  # of [memory] events, also the next ones
    memory_device: Any = msgspec.field(default=None, name="Device Id")
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    memory_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    memory_reserved: Any = msgspec.field(default=None, name="Total Reserved")


class TraceEvent(msgspec.Struct, gc=False):
    """One event; those with a duration are the ones that count."""

    name: str = ""
    cat: str = ""
    ts: Any = None  # µs
    dur: Any = None  # µs
    pid: Any = None
    tid: Any = None
    args: Arguments | None = None


PLAIN = msgspec.json.Decoder(list[TraceEvent])
EXACT = msgspec.json.Decoder(list[TraceEvent], float_hook=Decimal)  # slower


def decode(block: bytes) -> list[TraceEvent]:
    """The events of a JSON array."""
    fraction = FRACTION.search(block, 0, LOOKED_AT_BYTES)
    large = fraction is not None and int(fraction[1]) >= EXACT_BELOW_US
    return (EXACT if large else PLAIN).decode(block)


def nanoseconds(times_us: Sequence[Any]) -> Ints:
    """Times in microseconds as whole nanoseconds; NO_TIME for what is none."""
    try:
        times = np.array(times_us, None if times_us else np.int64)
    except (ValueError, OverflowError):  # lists among them
        times = np.empty(0, object)
    if times.dtype == np.int64 and (np.abs(times) < LARGEST_US).all():
        return np.asarray(times * 1000, np.int64)
    if times.dtype == np.float64 and (np.abs(times) < EXACT_BELOW_US).all():
        return np.asarray(np.rint(times * 1000), np.int64)
    return np.fromiter(map(_one_time, times_us), np.int64, len(times_us))


def _one_time(time_us: Any) -> int:
    if not isinstance(time_us, (int, float, Decimal)) or not -LARGEST_US < time_us < LARGEST_US:  # nan is not either
        return NO_TIME
    return round(Decimal(time_us) * 1000)


def integers(values: Sequence[Any], otherwise: int = ABSENT) -> Ints:
    """Whole numbers; anything else is replaced."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter((_integer(value, otherwise) for value in values), np.int64, len(values))


def _integer(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and abs(value) < 2**63 else otherwise
