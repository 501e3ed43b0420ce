"""Events of a Kineto trace as columns of our events: the layer of each, its stream, its collective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from rankscope.formats.kineto_events import (
    ABSENT,
    NO_TIME,
    Arguments,
    Ints,
    TraceEvent,
    integers,
    nanoseconds,
    text,
    whole,
)
from rankscope.model import Layer, Words

# ---------------------------------------------------------------------------------------------------------------------
# What the arguments of an event tell about a collective: group, sequence, bytes, element type.
# torch's names of element types, as NCCL's metadata and as recorded input types have them, in lower case
ELEMENT_BYTES = {
    **dict.fromkeys(("float", "int", "complexhalf", "c10::complex<c10::half>", "quint32", "uint32"), 4),
    **dict.fromkeys(("double", "long", "long int", "int64_t", "complexfloat", "c10::complex<float>", "uint64"), 8),
    **dict.fromkeys(("complexdouble", "c10::complex<double>"), 16),
    **dict.fromkeys(("half", "bfloat16", "short", "short int", "c10::half", "c10::bfloat16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "qint8", "quint8"), 1),
}


def element_bytes(dtype: str) -> int | None:
    """How long one element is."""
    name = dtype.lower()
    return 1 if name.startswith(("float8", "c10::float8")) else ELEMENT_BYTES.get(name)


def group_of(arguments: Arguments) -> str:
    """The process group, by the name it has in distributedInfo."""
    return text(arguments.group_name) or text(arguments.group_id)


def bytes_of(arguments: Arguments) -> int | None:
    """What this rank gives to the collective (of one that only receives: what it gets)."""
    width = element_bytes(text(arguments.dtype))
    elements = whole(arguments.in_elements) or whole(arguments.out_elements)
    return width * elements if width is not None and elements is not None and 0 <= elements < 2**58 else None


def recorded_input(arguments: Arguments) -> tuple[str, int | None]:
    """Element type and bytes of the first recorded input, where shapes were recorded."""
    dims, types = _decoded(arguments.dims), _decoded(arguments.types)
    dtype = text(types[0]) if types else ""
    width, sizes = element_bytes(dtype), dims[0] if dims else None
    if width is None or not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        return dtype, None
    total = width
    for size in sizes:
        total *= size
        if not 0 <= total < 2**62:
            return dtype, None
    return dtype, total


def _decoded(raw: msgspec.Raw) -> list[Any]:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


# ---------------------------------------------------------------- kineto columns
LAYERS = {
    "kernel": Layer.GPU,
    "gpu_memcpy": Layer.GPU,
    "gpu_memset": Layer.GPU,
    "gpu_user_annotation": Layer.GPU_RANGE,
    "cuda_sync": Layer.GPU_SYNC,
    "cuda_runtime": Layer.CUDA_API,
    "cuda_driver": Layer.CUDA_API,
    "xpu_runtime": Layer.XPU_API,
    "xpu_driver": Layer.XPU_API,
    "cpu_op": Layer.TORCH,
    "user_annotation": Layer.TORCH,
    "python_function": Layer.PYTHON,
}
STEP = "ProfilerStep#"
NO_ARGUMENTS = Arguments()


class WordNumbers(dict[str, int]):
    """Numbers words in the order they come."""

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self)
        return code

    def column(self, words: Sequence[str]) -> Words:
        """The words as a column."""
        codes = np.fromiter(map(self.__getitem__, words), np.int32, len(words))
        return Words(codes, list(self))


@dataclass(slots=True)
class KinetoColumns:
    """The events of one block, row by row; absent numbers are negative."""

    layer: Words
    name: Words
    start_ns: Ints
    end_ns: Ints
    group: Words
    sequence: Ints
    bytes: Ints
    correlation: Ints
    thread: Ints
    dtype: Words

    def event_columns(self, rows: Ints) -> Mapping[str, Any]:
        """As a Reading has them."""
        fields = {name: _rows(getattr(self, name), rows) for name in self.__slots__}
        for name in ("sequence", "bytes", "correlation"):
            fields[name] = np.ma.MaskedArray(fields[name], fields[name] < 0)
        return fields


def _rows(column: Any, rows: Ints) -> Any:
    return Words(column.codes[rows], column.values) if isinstance(column, Words) else column[rows]


def columns_of(spans: Sequence[TraceEvent], base_ns: int) -> KinetoColumns:
    """The events in their order, then once more those that are a collective's kernel, in the layer nccl."""
    arguments = [span.args or NO_ARGUMENTS for span in spans]
    names = WordNumbers().column([span.name for span in spans])
    layers = layers_of(names, WordNumbers().column([span.cat for span in spans]))
    start_ns, length_ns = nanoseconds([span.ts for span in spans]), nanoseconds([span.dur for span in spans])
    timed = (start_ns != NO_TIME) & (length_ns != NO_TIME)
    made = KinetoColumns(
        layers,
        names,
        np.where(timed, start_ns + base_ns, NO_TIME),
        np.where(timed, start_ns + base_ns + length_ns, NO_TIME),
        _no_words(len(spans)),
        np.full(len(spans), ABSENT),
        np.full(len(spans), ABSENT),
        integers([one.correlation for one in arguments]),
        integers([span.tid for span in spans], 0),
        _no_words(len(spans)),
    )
    _fill_gpu(made, spans, arguments)
    _fill_steps(made)
    return _with_collectives(made, arguments)


def _no_words(rows: int) -> Words:
    return Words(np.zeros(rows, np.int32), [""])


def layers_of(names: Words, categories: Words) -> Words:
    """The layer of each event, looked up once for each name in each category."""
    pairs, codes = np.unique(categories.codes.astype(np.int64) << 32 | names.codes, return_inverse=True)
    found = [layer_of(categories.values[pair >> 32], names.values[pair & 0xFFFFFFFF]) for pair in pairs.tolist()]
    known = WordNumbers().column(found)
    return Words(known.codes[codes], known.values)


def layer_of(category: str, name: str) -> str:
    """What Kineto calls cuda_runtime may be HIP, and a user annotation may be a step or a collective of Gloo."""
    if category == "user_annotation" and name.startswith(STEP):
        return Layer.STEP
    if category == "user_annotation" and name.startswith("gloo:"):
        return Layer.GLOO
    layer: str = LAYERS.get(category, "")
    if layer == Layer.CUDA_API and name.startswith("hip"):
        return Layer.HIP_API
    return layer or (f"{category.removesuffix('_runtime')}_api" if category.endswith("_runtime") else category)


def rows_in(columns: KinetoColumns, *layers: str) -> Ints:
    """Which rows belong to one of these layers."""
    wanted = np.array([layer in layers for layer in columns.layer.values], np.bool_)
    return np.flatnonzero(wanted[columns.layer.codes]) if len(wanted) else np.empty(0, np.int64)


def _fill_gpu(columns: KinetoColumns, spans: Sequence[TraceEvent], arguments: Sequence[Arguments]) -> None:
    """Device and stream; where the arguments lack them, Kineto's pid and tid of a GPU event are the same."""
    rows = rows_in(columns, Layer.GPU, Layer.GPU_RANGE, Layer.GPU_SYNC)
    chosen = rows.tolist()
    devices, streams = (integers([getattr(arguments[row], key) for row in chosen]) for key in ("device", "stream"))
    devices = np.where(devices < 0, integers([spans[row].pid for row in chosen]), devices)
    streams = np.where(streams < 0, columns.thread[rows], streams)
    named = [f"{device}/{stream}" for device, stream in zip(devices.tolist(), streams.tolist(), strict=True)]
    _set_words(columns.group, rows, named)
    columns.bytes[rows] = integers([arguments[row].bytes for row in chosen])
    columns.thread[rows] = 0


def _set_words(column: Words, rows: Ints, words: Iterable[str]) -> None:
    known = WordNumbers((word, code) for code, word in enumerate(column.values))
    column.codes[rows] = [known[word] for word in words]
    column.values = list(known)


def _fill_steps(columns: KinetoColumns) -> None:
    rows = rows_in(columns, "step")
    numbers = (columns.name.values[code].removeprefix(STEP) for code in columns.name.codes[rows].tolist())
    columns.sequence[rows] = [int(one) if one.isdecimal() and len(one) < 19 else ABSENT for one in numbers]


def _with_collectives(columns: KinetoColumns, arguments: Sequence[Arguments]) -> KinetoColumns:
    """Fill in what is told of collectives; a kernel's goes into a row of its own, since its group is the stream."""
    gloo = rows_in(columns, Layer.GLOO)
    for row in gloo.tolist():
        dtype, size = recorded_input(arguments[row])
        columns.bytes[row] = ABSENT if size is None else size
        _set_words(columns.dtype, np.array([row]), [dtype])
    told = np.array([row for row, one in enumerate(arguments) if one.collective is not None], np.int64)
    if not len(told):
        return columns
    kernels = np.isin(told, rows_in(columns, Layer.GPU))
    rows = len(columns.start_ns)
    made = _appended(columns, told[kernels])
    places = np.where(kernels, rows - 1 + np.cumsum(kernels), told)
    _tell(made, places, [arguments[row] for row in told.tolist()])
    new = np.arange(rows, len(made.start_ns))
    _set_words(made.layer, new, [Layer.NCCL] * len(new))
    _set_words(made.name, new, [text(arguments[row].collective) for row in told[kernels].tolist()])
    return made


def _appended(columns: KinetoColumns, rows: Ints) -> KinetoColumns:
    order = np.concatenate([np.arange(len(columns.start_ns)), rows])
    return KinetoColumns(*(_rows(getattr(columns, name), order) for name in KinetoColumns.__slots__))


def _tell(columns: KinetoColumns, rows: Ints, told: Sequence[Arguments]) -> None:
    sizes, numbers = [bytes_of(one) for one in told], [whole(one.sequence) for one in told]
    columns.bytes[rows] = [ABSENT if size is None else size for size in sizes]
    columns.sequence[rows] = [ABSENT if number is None else number for number in numbers]
    _set_words(columns.group, rows, [group_of(one) for one in told])
    _set_words(columns.dtype, rows, [text(one.dtype) for one in told])
