"""Records and columns of readings as Arrow tables."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa

from rankscope.model.gpu import (
    AllocatorSample,
    DeviceGaps,
    DeviceStep,
    DeviceTotals,
    Gpu,
    GpuClock,
    GpuPower,
    GpuRecording,
    StepFlops,
)
from rankscope.model.imports import CallsMethod, Module, Mount, PathUse, SystemCalls
from rankscope.model.records import (
    Event,
    Figure,
    Group,
    Mark,
    MessageEnd,
    Note,
    Operation,
    Peer,
    RangeTally,
    RankFacts,
    Reading,
    Step,
    StepBlock,
    Tally,
)
from rankscope.model.tables import Words

WORD = pa.dictionary(pa.int32(), pa.string())
RECORDS: dict[str, type] = {
    "ranks": RankFacts,
    "tallies": Tally,
    "range_tallies": RangeTally,
    "events": Event,
    "message_ends": MessageEnd,
    "steps": Step,
    "step_blocks": StepBlock,
    "device_steps": DeviceStep,
    "operations": Operation,
    "marks": Mark,
    "groups": Group,
    "peers": Peer,
    "devices": DeviceTotals,
    "device_gaps": DeviceGaps,
    "gpu_recordings": GpuRecording,
    "gpu_clocks": GpuClock,
    "step_flops": StepFlops,
    "gpus": Gpu,
    "gpu_power": GpuPower,
    "allocator": AllocatorSample,
    "figures": Figure,
    "notes": Note,
    "modules": Module,
    "system_calls": SystemCalls,
    "paths": PathUse,
    "calls_method": CallsMethod,
    "mounts": Mount,
}
LISTS = (  # of few rows
    *("marks", "groups", "peers", "devices", "device_gaps", "gpu_recordings", "gpu_clocks"),
    *("figures", "notes"),
)
IMPORT_TABLES = ("modules", "system_calls", "paths", "calls_method", "mounts")
UTILISATION_TABLES = ("step_flops", "gpus", "gpu_power", "allocator")
ROUTINE_TABLES, LARGE_COUNT = ("tallies", "range_tallies", "events", "message_ends"), "_c"
# their words are few and come often
REPEATED = ("tallies", "range_tallies", "events", "message_ends", "operations", *IMPORT_TABLES)


@cache
def schema_of(table: str) -> pa.Schema:
    """The columns of a table: `process`, then the fields of its record."""
    hints = get_type_hints(RECORDS[table])
    text = WORD if table in REPEATED else pa.string()
    columns = [(field.name, arrow_type(hints[field.name], text)) for field in fields(RECORDS[table])]
    return pa.schema([("process", pa.int32()), *columns])


def arrow_type(hint: Any, text: Any) -> Any:
    kinds = {str(part) for part in getattr(hint, "__args__", (hint,))} - {str(type(None))}
    for kind, arrow in ((bool, pa.bool_()), (float, pa.float64()), (int, pa.int64())):
        if str(kind) in kinds:
            return arrow
    return text


def records_table(table: str, processes: Sequence[int | None], records: Sequence[Any]) -> pa.Table:
    """A table from records, each with the process it belongs to."""
    schema = schema_of(table)
    columns = {"process": processes}
    for name in schema.names[1:]:
        columns[name] = [_plain(getattr(record, name)) for record in records]
    return pa.table({name: pa.array(columns[name], schema.field(name).type) for name in schema.names}, schema)


def _plain(value: Any) -> Any:
    return _text(value) if isinstance(value, str) else getattr(value, "value", value)  # of an enumeration


def _text(text: str) -> str:
    """Half a surrogate pair, as a damaged JSON file may hold, is no text that can be kept."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def columns_table(table: str, process: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table from the columns of one process; a column that is not given has its field's default."""
    schema = schema_of(table)
    if table in ROUTINE_TABLES:
        columns = one_routine(columns)
    first = next(iter(columns.values()))
    rows = len(first.codes if isinstance(first, Words) else first)
    given = {**columns, "process": np.full(rows, process, np.int32)}
    defaults = {field.name: field.default for field in fields(RECORDS[table])}
    arrays = [
        _array(given[name], schema.field(name).type)
        if name in given
        else _same(defaults[name], schema.field(name).type, rows)
        for name in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def one_routine(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """MPI_Allreduce_c and MPI_Allreduce are one routine: which was called is a column of its own."""
    names = columns["name"]
    if not isinstance(names, Words) or not any(map(is_large_count, names.values)):
        return columns
    known = {name: at for at, name in reversed(list(enumerate(names.values)))}
    values, codes = list(names.values), np.arange(len(names.values), dtype=np.int32)
    large = np.array([is_large_count(name) for name in values])
    for at in np.flatnonzero(large).tolist():
        values[at] = values[at].removesuffix(LARGE_COUNT)
        codes[at] = known.setdefault(values[at], at)
    return ChainMap({"name": Words(codes[names.codes], values), "large_count": large[names.codes]}, columns)  # type: ignore[arg-type]


def is_large_count(name: str) -> bool:
    return name.startswith("MPI_") and name.endswith(LARGE_COUNT)


def _same(value: Any, kind: Any, rows: int) -> Any:
    """A column that holds the same everywhere."""
    if value is None:
        return pa.nulls(rows, kind)
    if kind == WORD:
        return _array(Words(np.zeros(rows, np.int32), [value]), kind)
    return pa.repeat(pa.scalar(value, kind), rows)


def _array(values: Any, kind: Any) -> Any:
    if isinstance(values, Words):
        words = pa.array([_text(word) for word in values.values], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(values.codes, pa.int32()), words)
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(values.data, kind, mask=np.ma.getmaskarray(values))
    return pa.array(values, kind)


def reading_tables(process: int, reading: Reading, events: bool, empty: bool = True) -> dict[str, pa.Table]:
    """The tables of one process but `ranks`, which needs all processes; those without rows only where asked for."""
    given: dict[str, tuple[Sequence[Any], Mapping[str, Any]]] = {
        "tallies": (reading.tallies, reading.tally_columns),
        "range_tallies": (reading.range_tallies, reading.range_tally_columns),
    }
    if events:
        given["events"] = (reading.events, reading.event_columns)
        given["message_ends"] = ([], reading.message_columns)
    given["steps"] = (reading.steps, reading.step_columns)
    given["step_blocks"] = ([], reading.step_block_columns)
    given["device_steps"] = ([], reading.device_step_columns)
    given["operations"] = ([], reading.operation_columns)
    given |= {name: (getattr(reading, name), {}) for name in LISTS}
    given |= {name: ([], reading.import_columns.get(name, {})) for name in IMPORT_TABLES}
    given |= {name: ([], reading.utilisation_columns.get(name, {})) for name in UTILISATION_TABLES}
    return {
        name: _either(name, process, records, columns)
        for name, (records, columns) in given.items()
        if empty or records or columns
    }


def _either(table: str, process: int, records: Sequence[Any], columns: Mapping[str, Any]) -> pa.Table:
    if not records and not columns:
        return _empty(table)
    tables = [columns_table(table, process, columns)] if columns else []
    if records:
        tables.append(records_table(table, [process] * len(records), records))
    return tables[0] if len(tables) == 1 else joined(tables)


@cache
def _empty(table: str) -> pa.Table:
    """A file of thousands of processes has most tables of each without a row."""
    return records_table(table, [], [])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Many tables as one, in one piece, with one dictionary for each column of words."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def plain_numbers(table: pa.Table) -> pa.Table:
    """The table with sums, which SQL makes of 128 bits, as numbers that every other tool knows."""
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            is_whole = field.type.scale == 0
            try:
                values = table.column(at).cast(pa.int64() if is_whole else pa.float64())
            except pa.ArrowInvalid:  # more than 64 bits
                values = table.column(at).cast(pa.float64())
            table = table.set_column(at, field.name, values)
    return table


def columns_of(table: pa.Table) -> Mapping[str, Any]:
    """The columns of an Arrow table as analyses take them: Words and arrays."""
    return {name: _column(table.column(name).combine_chunks()) for name in table.column_names}


def _column(values: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):  # of no rows
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_string(values.type):
        values = values.dictionary_encode()
    if pa.types.is_dictionary(values.type):
        return Words(values.indices.to_numpy(zero_copy_only=False), values.dictionary.to_pylist())
    return values.to_numpy(zero_copy_only=False)
