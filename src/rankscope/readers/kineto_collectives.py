"""What the arguments of an event tell about a collective: group, sequence, bytes, element type."""

from __future__ import annotations

from typing import Any

import msgspec

from rankscope.formats.kineto_events import Arguments
from rankscope.readers.kineto_facts import text, whole

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
