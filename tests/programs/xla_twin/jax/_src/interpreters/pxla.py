from dataclasses import dataclass, field
from typing import Any

from jax._src import monitoring


class Type:
    itemsize = 4


@dataclass(frozen=True)
class Aval:
    shape: tuple
    dtype: Any = Type

    def str_short(self):
        return f"float32{list(self.shape)}"


@dataclass
class DebugInfo:
    arg_names: tuple
    func_src_info: str


@dataclass
class AllArgsInfo:
    in_avals: list
    debug_info: DebugInfo


@dataclass
class MeshExecutable:
    in_avals: list
    out_avals: list = field(default_factory=list)


class Module:
    def __init__(self, name):
        self.operation, self.attributes, self.value = self, {"sym_name": self}, name


class UnloadedMeshExecutable:
    @staticmethod
    def from_hlo(name, hlo, taken, given, all_args_info=None):
        monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", 0.25, fun_name=name)
        return MeshExecutable(taken, given)


def batched_device_put(aval, sharding, xs, devices=()):
    return xs
