"""What the members around the events of a Kineto trace say of the process: rank, devices, versions, process groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rankscope.model import Group, RankFacts

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
    rank, world_size = whole(info.get("rank")), whole(info.get("world_size"))
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
    return [_group(one, rank) for one in configured[:MOST_GROUPS] if isinstance(one, dict)]


def _group(configured: Mapping[str, Any], rank: int | None) -> Group:
    listed = configured.get("ranks")
    ranks = [one for one in listed if isinstance(one, int)] if isinstance(listed, list) else []
    name, about = text(configured.get("pg_name")), text(configured.get("pg_desc"))
    return Group(
        name,
        identity=about if about != "undefined" else "",
        size=whole(configured.get("pg_size")) or len(ranks) or None,
        my_rank=ranks.index(rank) if rank in ranks else None,
    )


def _devices(members: Mapping[str, Any]) -> str:
    listed = members.get("deviceProperties")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = Counter(text(one.get("name")) for one in found)
    return ", ".join(f"{count} × {name}" for name, count in names.items() if name)


def _versions(members: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    found = [f"{name} {_version(key, members[key])}" for key, name in VERSIONS.items() if text(members.get(key))]
    if text(info.get("nccl_version")):
        found.append(f"NCCL {text(info.get('nccl_version'))}")
    return "; ".join(found)


def _version(key: str, value: Any) -> str:
    number = whole(value)
    if key in CUDA_CODED and number is not None:
        return f"{number // 1000}.{number % 1000 // 10}"
    return text(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def whole(value: Any) -> int | None:
    """A number of a size that all tables can hold."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def text(value: Any) -> str:
    """A word, or a number as one."""
    number = None if isinstance(value, str) else whole(value)
    return value[:MOST_LETTERS] if isinstance(value, str) else "" if number is None else str(number)
