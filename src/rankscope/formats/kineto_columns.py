"""Events of a Kineto trace as columns of our events: the layer of each, its stream, its collective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    whole_number,
)
from rankscope.formats.nccl_kernels import nccl_operation
from rankscope.model.records import Layer
from rankscope.model.tables import Words

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
    elements = whole_number(arguments.in_elements) or whole_number(arguments.out_elements)
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
        trace_events = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return []
    return trace_events if isinstance(trace_events, list) else []


# ---------------------------------------------------------------- kineto columns
OLD_CATEGORIES = {  # of torch 1.8 to 1.11
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "Operator": "cpu_op",
}
# ranges of torch's own that older versions do not tell from operators
PROGRAM_RANGES = ("Optimizer.", "enumerate(DataLoader)#", "DistributedDataParallel.", "FullyShardedDataParallel.")
UNNAMED = {Layer.NCCL: "NCCL", Layer.GLOO: "Gloo"}  # groups of collectives of which the trace does not tell the group
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
    kind: Words
    user_range: Any  # hints, see docs/formats/index.md: a range of the program or of torch's loop, no operator;
    pageable: Any  # a copy from or to pageable memory;
    algorithm: Words  # a kernel of NCCL, with its algorithm and protocol

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
    categories = WordNumbers().column([span.cat for span in spans])
    categories.values = [OLD_CATEGORIES.get(category, category) for category in categories.values]
    pairs = Pairs.of(names, categories)
    start_ns, length_ns = nanoseconds([span.ts for span in spans]), nanoseconds([span.dur for span in spans])
    timed = (start_ns != NO_TIME) & (length_ns != NO_TIME)
    columns = KinetoColumns(
        layers_of(pairs),
        names,
        np.where(timed, start_ns + base_ns, NO_TIME),
        np.where(timed, start_ns + base_ns + length_ns, NO_TIME),
        _no_words(len(spans)),
        np.full(len(spans), ABSENT),
        np.full(len(spans), ABSENT),
        integers([argument.correlation for argument in arguments]),
        integers([span.tid for span in spans], 0),
        _no_words(len(spans)),
        Words(np.zeros(len(spans), np.int32), ["call"]),
        pairs.where(_is_program_range),
        pairs.where(_is_pageable),
        _no_words(len(spans)),
    )
    _fill_gpu(columns, spans, arguments)
    _fill_steps(columns)
    return _with_collectives(columns, arguments)


def _no_words(rows: int) -> Words:
    return Words(np.zeros(rows, np.int32), [""])


@dataclass(frozen=True, slots=True)
class Pairs:
    """The categories and names that come together, and which of them each event has: looked up once for each."""

    categories: Sequence[str]
    names: Sequence[str]
    codes: Ints

    @classmethod
    def of(cls, names: Words, categories: Words) -> Pairs:
        pairs, codes = np.unique(categories.codes.astype(np.int64) << 32 | names.codes, return_inverse=True)
        listed = pairs.tolist()
        return cls(
            [categories.values[code >> 32] for code in listed],
            [names.values[code & 0xFFFFFFFF] for code in listed],
            codes,
        )

    def where(self, wanted: Callable[[str, str], bool]) -> Any:
        """Which events have a category and a name that are wanted."""
        return np.array(list(map(wanted, self.categories, self.names)), bool)[self.codes]


def layers_of(pairs: Pairs) -> Words:
    """The layer of each event."""
    known = WordNumbers().column(list(map(layer_of, pairs.categories, pairs.names)))
    return Words(known.codes[pairs.codes], known.values)


def _is_program_range(category: str, name: str) -> bool:
    return category == "user_annotation" or (category == "cpu_op" and name.startswith(PROGRAM_RANGES))


def _is_pageable(category: str, name: str) -> bool:
    return category == "gpu_memcpy" and "Pageable" in name


def layer_of(category: str, name: str) -> str:
    """What Kineto calls cuda_runtime may be HIP, and a user annotation may be a step or a collective of Gloo."""
    if category in ("user_annotation", "cpu_op") and name.startswith(STEP):
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
    columns.sequence[rows] = [int(digits) if digits.isdecimal() and len(digits) < 19 else ABSENT for digits in numbers]


def _with_collectives(columns: KinetoColumns, arguments: Sequence[Arguments]) -> KinetoColumns:
    """Fill in what is told of collectives; a kernel's goes into a row of its own, since its group is the stream."""
    for row in rows_in(columns, Layer.GLOO).tolist():
        dtype, size = recorded_input(arguments[row])
        columns.bytes[row] = ABSENT if size is None else size
        _set_words(columns.dtype, np.array([row]), [dtype])
    described = np.array([row for row, argument in enumerate(arguments) if argument.collective is not None], np.int64)
    on_device = rows_in(columns, Layer.GPU)
    operations = [nccl_operation(name) if "nccl" in name else ("", "") for name in columns.name.values]
    of_nccl = np.array([bool(operation) for operation, _ in operations], bool)
    kernels = np.union1d(described[np.isin(described, on_device)], on_device[of_nccl[columns.name.codes[on_device]]])
    if not len(described) and not len(kernels):
        return _named_groups(columns)
    rows = len(columns.start_ns)
    extended = _appended(columns, kernels)
    new = np.arange(rows, len(extended.start_ns))
    place = dict(zip(kernels.tolist(), new.tolist(), strict=True))
    _set_words(extended.layer, new, [Layer.NCCL] * len(new))
    named = [operations[code] for code in columns.name.codes[kernels].tolist()]
    _set_words(
        extended.name,
        new,
        [text(arguments[row].collective) or words[0] for row, words in zip(kernels, named, strict=True)],
    )
    _set_words(extended.group, new, [""] * len(new))
    _set_words(extended.algorithm, new, [" ".join(words).strip() for words in named])
    _tell(
        extended,
        np.array([place.get(row, row) for row in described.tolist()], np.int64),
        [arguments[row] for row in described],
    )
    return _named_groups(extended)


def _named_groups(columns: KinetoColumns) -> KinetoColumns:
    """Collectives last until they are complete; those of which the group is not told are in one of their own."""
    for layer, name in UNNAMED.items():
        rows = rows_in(columns, layer)
        _set_words(columns.kind, rows, ["progress"] * len(rows))
        unnamed = rows[np.array([not word for word in columns.group.values], bool)[columns.group.codes[rows]]]
        _set_words(columns.group, unnamed, [name] * len(unnamed))
    return columns


def _appended(columns: KinetoColumns, rows: Ints) -> KinetoColumns:
    order = np.concatenate([np.arange(len(columns.start_ns)), rows])
    return KinetoColumns(*(_rows(getattr(columns, name), order) for name in KinetoColumns.__slots__))


def _tell(columns: KinetoColumns, rows: Ints, described: Sequence[Arguments]) -> None:
    sizes, numbers = (
        [bytes_of(arguments) for arguments in described],
        [whole_number(arguments.sequence) for arguments in described],
    )
    columns.bytes[rows] = [ABSENT if size is None else size for size in sizes]
    columns.sequence[rows] = [ABSENT if number is None else number for number in numbers]
    _set_words(columns.group, rows, [group_of(arguments) for arguments in described])
    _set_words(columns.dtype, rows, [text(arguments.dtype) for arguments in described])
