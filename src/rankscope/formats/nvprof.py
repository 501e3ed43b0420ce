"""nvprof's output, text or csv: summaries, traces and NVTX results of one or many processes, among other output."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.formats.nvprof_log import Log
from rankscope.formats.source import Source
from rankscope.model import Reading
from rankscope.readers import nvprof_csv, nvprof_trace
from rankscope.readers.nvprof_rows import SUMMARY_HEAD, read_summary_line

TAGGED = rb"={2}\d{1,10}={2} (?:NVPROF is profiling process \d|Profiling application: |Profiling result:|NVTX result:)"
KNOWN = re.compile(
    rb"^(?:" + TAGGED + rb"|={8} Profiling result:"
    rb'|[ \t]*(?:"?Type"?,)?"Time\(%\)","Time","Calls","Avg","Min","Max","Name"'
    rb"|[ ]*(?:Type +)?Time\(%\) +Time +Calls +Avg +Min +Max  Name[ \r]*$"
    rb'|"Start","Duration",'
    rb"|[ ]*Start  Duration +(?:Grid Size +Block Size|Name[ \r]*$))",
    re.MULTILINE,
)


def sniff(head: bytes) -> bool:
    """Whether a line of nvprof's own stands there."""
    return KNOWN.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading per profiled process, in the order of their results."""
    log = Log(source)
    for number, line in source.lines():
        _take(log, number, line)
    yield from log.readings()


def _take(log: Log, number: int, line: str) -> None:
    """A line belongs to nvprof itself, to the table it has opened, or to the program that was profiled."""
    if line.startswith("==") and log.take_tag(number, line):
        return
    if SUMMARY_HEAD.match(line):
        log.open_summary(typed=line.lstrip().startswith("Type"))
    elif nvprof_csv.is_head(line):
        log.open_table(nvprof_csv.table(line, log))
    elif nvprof_trace.is_head(line):
        log.open_table(nvprof_trace.table(line, log))
    elif log.table is not None and log.table.take(number, line):
        return
    elif not (log.in_summary and read_summary_line(log, number, line)):
        log.take_other(number, line)
