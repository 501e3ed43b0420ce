"""Reads execution traces: PyTorch's (ExecutionTraceObserver, JSON) and Chakra's (.et or JSON), one rank a file.

They hold what was done in which order and what depends on what. PyTorch's have no times; Chakra's may have them.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.formats.json_stream import Object, whole_number, whole_object, word
from rankscope.formats.protobuf import fields, packed, text, varint
from rankscope.formats.source import Source
from rankscope.formats.sums import Sums
from rankscope.model.records import Event, Figure, Group, Layer, Note, RankFacts, Reading, Step
from rankscope.model.tables import Words, names_of
from rankscope.rank_file import size_class

MOST_NODES = 5_000_000
JSON_KEYS = (
    re.compile(rb'"schema"\s*:\s*"[^"]{1,60}"'),
    re.compile(rb'"nodes"\s*:\s*\['),
    re.compile(rb'"(?:ctrl_deps|ctrl_parent|rf_id)"'),  # torch until 2.1 (schema 1.0.1) calls it parent, as others do
)
# The length of the first message, and its first field: the version, or an attribute, the schema of PyTorch's trace.
CHAKRA = re.compile(
    rb"(?:[\x05-\x7f]|[\x80-\xff]{1,3}[\x01-\x7f])"
    rb"(?:\x0a[\x03-\x10]\d{1,3}\.\d{1,3}\.\d{1,3}|\x12[\x0a-\x7f]\x0a\x06schema)",
    re.DOTALL,
)
CHAKRA_KEYS = (
    re.compile(rb'"workload_graph"\s*:\s*\['),
    re.compile(rb'"Id"\s*:\s*\d'),
    re.compile(rb'"NodeType"\s*:\s*\d'),
)
OF_CHAKRA = re.compile(r"\.(\d{1,7})\.(?:et|json)(?:\.\w{1,4})?$", re.IGNORECASE)  # as simulators name them by rank
COMMUNICATION = re.compile(r"^(nccl|gloo|mpi|ucc|xccl|hccl):(\w{1,80})$")
LIBRARIES = {str(layer): layer for layer in (Layer.GLOO, Layer.MPI)}
GROUPS = "## process_group:init ##"
NO_TIMES = (
    "PyTorch execution traces have order, sizes and dependencies but no times: trace the same steps with "
    "torch.profiler to get them"
)


@dataclass(slots=True)
class Node:
    """One node of either kind of trace."""

    number: int
    name: str
    before: list[int]  # nodes that it depends on, or is inside of
    layer: str = Layer.TORCH
    role: str = "compute"
    bytes: int | None = None
    group: str = ""
    peer: int = -1
    start_ns: int | None = None
    duration_ns: int | None = None


@dataclass(slots=True)
class Trace:
    """What one file tells."""

    version: str
    nodes: list[Node] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    pid: int | None = None
    notes: list[str] = field(default_factory=list)


def sniff(head: bytes) -> bool:
    """The keys of PyTorch's JSON, or the version with which Chakra's messages begin."""
    if head.lstrip()[:1] == b"{":
        return any(all(key.search(head) for key in keys) for keys in (JSON_KEYS, CHAKRA_KEYS))
    return CHAKRA.match(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading: how often what was done, communication with its sizes, and what the graph is like."""
    trace = _of_json(source) if source.head(64).lstrip()[:1] == b"{" else _of_chakra(source)
    if not trace.nodes:
        raise source.bad("has no nodes of an execution trace")
    sums = Sums(source)
    for node in trace.nodes:
        size = size_class(node.bytes) if node.bytes is not None else None
        sums.add(
            node.layer,
            node.name,
            node.duration_ns,
            node.group,
            size,
            kind="progress" if node.role != "compute" else "call",
            size_bytes=node.bytes,
        )
        if node.role == "collective" and node.group in trace.groups:
            trace.groups[node.group].collectives += 1
    facts = RankFacts(rank=source.hints.rank, pid=trace.pid, source=str(source), versions=trace.version)
    if facts.rank is None and (numbered := OF_CHAKRA.search(source.path.name)):
        facts.rank, facts.rank_source = int(numbered[1]), "file name"
        trace.notes.append(f"rank {facts.rank} comes from the file's name: the file does not state it")
    reading = Reading(facts)
    reading.tallies = sums.tallies()
    timed = {(node.layer, node.name) for node in trace.nodes if node.duration_ns is not None}
    for tally in reading.tallies:
        if (tally.layer, tally.name) not in timed:
            tally.total_ns = None
    reading.groups = list(trace.groups.values())
    links = sum(len(node.before) for node in trace.nodes)
    for name, value in (("nodes", len(trace.nodes)), ("dependencies", links), ("longest chain", _longest(trace.nodes))):
        reading.figures.append(Figure("execution trace", name, float(value), "count"))
    _add_times(reading, trace)
    reading.notes = [Note(text, where=str(source)) for text in trace.notes]
    yield reading


def _longest(nodes: list[Node]) -> int:
    """Nodes on the longest chain of dependencies; links that lead back to a node under way are left out."""
    before = {node.number: node.before for node in nodes}
    depth: dict[int, int] = {}
    for first in before:
        stack = [first]
        under_way: set[int] = set()
        while stack:
            at = stack[-1]
            waiting = [node for node in before[at] if node in before and node not in depth and node not in under_way]
            if at in depth or not waiting:
                stack.pop()
                depth[at] = 1 + max((depth.get(node, 0) for node in before[at]), default=0)
            else:
                under_way.add(at)
                stack += waiting
    return max(depth.values(), default=0)


def _add_times(reading: Reading, trace: Trace) -> None:
    """Events and operations of nodes that have times; the whole trace is one step, since it names none."""
    timed = [node for node in trace.nodes if node.start_ns is not None and node.duration_ns is not None]
    if not timed:
        return
    sequence: dict[str, int] = {}
    for operation in timed:
        number = None
        if operation.role == "collective" and operation.group:
            sequence[operation.group] = number = sequence.get(operation.group, 0) + 1
        start, end = operation.start_ns or 0, (operation.start_ns or 0) + (operation.duration_ns or 0)
        layer = Layer.HOST if operation.role == "compute" else operation.layer
        reading.events.append(
            Event(layer, operation.name, start, end, operation.group, number, operation.bytes, kind="progress")
        )
    start_ns = np.array([operation.start_ns for operation in timed], np.int64)
    end_ns = start_ns + np.array([operation.duration_ns for operation in timed], np.int64)

    def words(values: list[str]) -> Words:
        known = {name: at for at, name in enumerate(dict.fromkeys(values))}
        return Words(np.array([known[name] for name in values], np.int32), list(known))

    rows = len(timed)
    reading.operation_columns = {
        "step": np.ones(rows, np.int64),
        "kind": words([operation.name for operation in timed]),
        "role": words([operation.role for operation in timed]),
        "start_ns": start_ns,
        "end_ns": end_ns,
        "group": words([operation.group if operation.role == "collective" else "" for operation in timed]),
        "peer": np.array([operation.peer for operation in timed], np.int64),
    }
    columns: dict[str, Any] = {name: np.zeros(1, np.int64) for name in names_of(Step)}
    columns |= {name: np.zeros(1, bool) for name in ("warmup", "accumulated", "skipped", "told")}
    begin, end = start_ns.min(keepdims=True), end_ns.max(keepdims=True)
    reading.step_columns = columns | {
        "number": np.ones(1, np.int64),
        "begin_ns": begin,
        "end_ns": end,
        "other_ns": end - begin,
    }
    reading.facts.steps_from = "operations"
    trace.notes.append("the trace marks no steps: all of it counts as one")


# ---------------------------------------------------------------- PyTorch
def _of_json(source: Source) -> Trace:
    content = whole_object(source)
    if isinstance(content.get("workload_graph"), list):
        return _of_workload_graph(source, content["workload_graph"])
    nodes = content.get("nodes")
    if not isinstance(nodes, list) or len(nodes) > MOST_NODES:
        raise source.bad("its nodes are not a list, or there are too many")
    trace = Trace(
        f"execution trace {word(content.get('schema'), 60)}", pid=whole_number(content.get("pid")), notes=[NO_TIMES]
    )
    group = ""
    for place, node in enumerate(nodes):
        number = whole_number(node.get("id")) if isinstance(node, dict) else None
        if number is None:
            raise source.bad(f"node {place} has no id")
        name = word(node.get("name"), 200)
        if name == GROUPS:
            _take_groups(trace, node)
            group = next(iter(trace.groups)) if len(trace.groups) == 1 else ""
            continue
        if name.startswith("[pytorch|profiler"):
            continue
        above = whole_number(node.get("ctrl_deps", node.get("ctrl_parent", node.get("parent"))))
        operation = Node(number, name, [above] if above else [])
        attributes = {
            word(each.get("name")): each.get("value") for each in node.get("attrs") or [] if isinstance(each, dict)
        }
        if match := COMMUNICATION.match(name):
            operation.layer, operation.name = LIBRARIES.get(match[1], Layer.NCCL), match[2]
            operation.role = "send" if "send" in match[2] else "receive" if "recv" in match[2] else "collective"
            operation.group, operation.bytes = word(attributes.get("pg_name")) or group, _bytes(node.get("inputs"))
        trace.nodes.append(operation)
    return trace


def _take_groups(trace: Trace, node: Object) -> None:
    """The process groups that the trace begins with, as JSON in a value."""
    try:
        groups = json.loads(node["inputs"]["values"][0])
        for entry in groups[:100_000]:
            name, ranks = word(entry.get("pg_name"), 100), entry.get("ranks") or []
            identity = f"{name}:{[int(rank) for rank in ranks]}"[:200]
            trace.groups[name] = Group(name, identity, size=whole_number(entry.get("group_size")) or len(ranks) or None)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
        trace.notes.append("the list of its process groups could not be read")


def _bytes(inputs: Any) -> int | None:
    """Of all tensors among the inputs: number of elements × bytes of each."""
    values = inputs.get("values") if isinstance(inputs, dict) else inputs  # a list until schema 1.0.1
    total, seen = 0, False
    for value in values if isinstance(values, list) else []:
        if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
            elements, each = whole_number(value[3]), whole_number(value[4])
            if elements is not None and each is not None and 0 <= elements < 2**50 and 0 <= each < 2**8:
                total, seen = total + elements * each, True
    return min(total, 2**62) if seen else None


# ---------------------------------------------------------------- Chakra
COLLECTIVES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter"),
    *("reduce_scatter_block", "barrier"),
)
ROLES = {5: "send", 6: "receive", 7: "collective"}
METADATA = 1
US = 1000


def _of_chakra(source: Source) -> Trace:
    data = b"".join(source.blocks())
    try:
        messages = _messages(data)
        version, pid = _chakra_version(next(messages))
        trace = Trace(f"Chakra {version}".strip(), pid=pid)
        for message in messages:
            if len(trace.nodes) >= MOST_NODES:
                raise source.bad(f"more than {MOST_NODES} nodes")
            if (node := _chakra_node(trace, message)) is not None:
                trace.nodes.append(node)
    except (IndexError, struct.error, ValueError, TypeError, AttributeError, StopIteration) as problem:
        raise source.bad(f"is not a Chakra trace, or is truncated ({problem or 'it ends too early'})") from None
    return _without_empty_times(trace)


def _without_empty_times(trace: Trace) -> Trace:
    """What is 0 in all nodes was not recorded."""
    if not any(node.duration_ns for node in trace.nodes):
        for node in trace.nodes:
            node.duration_ns = None
        trace.notes.append("no node of this Chakra trace has a duration: order, sizes and dependencies only")
    if not any(node.start_ns for node in trace.nodes):
        for node in trace.nodes:
            node.start_ns = None
        trace.notes.append("no node of this Chakra trace has a start time: no events, no what-if")
    return trace


def _chakra_version(message: bytes) -> tuple[str, int | None]:
    """Its own version, or the schema of the trace of PyTorch that it was made from; and the process."""
    version, attributes = "", dict[str, Any]()
    for number, value in fields(message):
        if number == 1:
            version = text(value, 40)
        elif number == 2 and not isinstance(value, int):
            name, stated = _attribute(value)
            attributes[name] = stated
    schema, pid = attributes.get("schema"), attributes.get("pid")
    stated = f"of PyTorch's {schema}" if isinstance(schema, str) else ""
    return version or stated, pid if isinstance(pid, int) else None


def _of_workload_graph(source: Source, nodes: list[Any]) -> Trace:
    """Chakra's nodes as JSON, as its feeder reads them."""
    if len(nodes) > MOST_NODES:
        raise source.bad(f"more than {MOST_NODES} nodes")
    trace = Trace("Chakra, as JSON")
    for place, node in enumerate(nodes):
        number = whole_number(node.get("Id")) if isinstance(node, dict) else None
        if number is None:
            raise source.bad(f"node {place} has no Id")
        before = [*_numbers(node.get("ctrlDeps", node.get("ctrl_deps"))), *_numbers(node.get("data_deps"))]
        operation = Node(
            number,
            word(node.get("Name"), 200),
            before,
            start_ns=(whole_number(node.get("start_time_micros")) or 0) * US,
            duration_ns=(whole_number(node.get("runtime")) or 0) * US,
        )
        kind = whole_number(node.get("NodeType")) or 0
        if kind != METADATA:
            _tell_communication(trace, operation, kind, node)
            trace.nodes.append(operation)
    return _without_empty_times(trace)


def _numbers(value: Any) -> list[int]:
    numbers = [whole_number(item) for item in value] if isinstance(value, list) else []
    return [item for item in numbers if item is not None]


def _chakra_node(trace: Trace, message: bytes) -> Node | None:
    fields_of: dict[int, Any] = {}
    before: list[int] = []
    attributes: dict[str, Any] = {}
    for number, value in fields(message):
        if number in (4, 5):
            before += packed(value) if isinstance(value, bytes) else [value]
        elif number == 10:
            name, attribute = _attribute(value)
            attributes[name] = attribute
        else:
            fields_of[number] = value
    kind = fields_of.get(3, 0)
    if kind == METADATA:
        return None
    name = text(fields_of.get(2, b""), 200)
    node = Node(
        int(fields_of.get(1, 0)),
        name,
        before,
        start_ns=int(fields_of.get(6, 0)) * US,
        duration_ns=int(fields_of.get(7, 0)) * US,
    )
    _tell_communication(trace, node, kind, attributes)
    return node


def _tell_communication(trace: Trace, node: Node, kind: int, attributes: dict[str, Any]) -> None:
    """What a node of communication says more; the call on the CPU that only enqueues one is none itself."""
    is_call = attributes.get("is_cpu_op") and not {"comm_type", "comm_size"} & attributes.keys()
    if kind not in ROLES or is_call:
        return
    node.role, node.layer = ROLES[kind], Layer.NCCL
    size = whole_number(attributes.get("comm_size"))
    node.bytes = min(size, 2**62) if size is not None else None
    node.group = str(attributes.get("pg_name", ""))[:100] or ("all ranks" if kind == 7 else "")
    code = attributes.get("comm_type")
    if kind == 7 and isinstance(code, int) and 0 <= code < len(COLLECTIVES):
        node.name = COLLECTIVES[code]
    if kind != 7:  # the n-th from one rank to another is the n-th there, of each tag
        node.name = f"{'send' if kind == 5 else 'recv'} tag {attributes.get('comm_tag', 0)}"[:200]
        peer = attributes.get("comm_dst" if kind == 5 else "comm_src")
        node.peer = peer if isinstance(peer, int) else -1
    if kind == 7:
        trace.groups.setdefault(node.group, Group(node.group, node.group))


def _messages(data: bytes) -> Iterator[bytes]:
    """Messages, each after its length."""
    at = 0
    while at < len(data):
        length, at = varint(data, at)
        if at + length > len(data):
            raise ValueError(f"a message at byte {at} ends after the file")
        yield data[at : at + length]
        at += length


WHOLE, ZIGZAG, TEXT = (7, 9, 11, 13, 27), (15, 17), 29


def _attribute(message: bytes) -> tuple[str, Any]:
    """Name and value of an attribute, where it is a single whole number or a text."""
    name = ""
    attribute: Any = None
    for number, value in fields(message):
        if number == 1:
            name = text(value, 100)
        elif number in WHOLE and isinstance(value, int):
            attribute = value - 2**64 if value >= 2**63 else value
        elif number in ZIGZAG and isinstance(value, int):
            attribute = (value >> 1) ^ -(value & 1)
        elif number == TEXT and isinstance(value, bytes):
            attribute = value.decode("utf-8", "replace")[:100]
    return name, attribute
