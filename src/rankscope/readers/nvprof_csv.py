"""nvprof's csv tables: a line of titles, a line of units, and rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.formats.nvprof_log import Log
from rankscope.formats.printed import count
from rankscope.formats.summary_table import Row
from rankscope.model import Severity
from rankscope.readers.csv_line import cells_of
from rankscope.readers.nvprof_trace import activity_of
from rankscope.readers.units import percent, time_ns

HEADS = ('"Type","Time(%)"', '"Time(%)","Time"', '"Start","Duration"')


def is_head(line: str) -> bool:
    return line.lstrip().startswith(HEADS)


@dataclass(slots=True)
class CsvTable:
    """An open table."""

    log: Log
    titles: list[str]
    units: dict[str, str] = field(default_factory=dict)
    begun: bool = False

    def take(self, number: int, line: str) -> bool:
        """Take the line if it has as many cells as there are titles."""
        cells = cells_of(line.strip())
        if not cells or len(cells) != len(self.titles):
            return False
        named = dict(zip(self.titles, cells, strict=True))
        if not self.begun:
            self.begun = True
            if not named.get("Name"):
                self.units = named
                return True
        return self._trace(named, number) if "Start" in named else self._summary(named, number)

    def _trace(self, named: dict[str, str], number: int) -> bool:
        trace = self.log.profile(number).trace
        activity = activity_of(named, self.units, trace, number)
        if activity is None:
            return self._unreadable(number)
        trace.add(activity, number)
        return True

    def _summary(self, named: dict[str, str], number: int) -> bool:
        share, calls = percent(named.get("Time(%)", ""), self.units.get("Time(%)", "%")), count(named.get("Calls", ""))
        times = [time_ns(named.get(title, ""), self.units.get(title, "")) for title in ("Time", "Avg", "Min", "Max")]
        if share is None or calls is None or None in times:
            return self._unreadable(number)
        if "Type" in named:
            self.log.kind = named["Type"]
        total, mean, least, most = times
        self.log.section(number).rows.append(Row(named.get("Name", ""), number, share, total, calls, mean, least, most))
        return True

    def _unreadable(self, number: int) -> bool:
        told = "a row of the table cannot be read: a time, share or count is missing"
        self.log.profile(number).note(told, Severity.WARNING, self.log.source.at(number))
        return True


def table(line: str, log: Log) -> CsvTable:
    """The table that begins with these titles."""
    titles = cells_of(line.strip())
    if "Type" not in titles and log.kind != "API calls":
        log.kind = "GPU activities"
    return CsvTable(log, titles)
