"""One line of a strace log, taken apart."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from rankscope.formats.printed import number

PREFIX = re.compile(
    r"(?:\[pid +(?P<pid>\d{1,9})\] |(?P<out>\d{1,9}) +(?=[\d:.]+ |[\w<+-]))?"
    r" *(?:(?P<day>\d\d:\d\d:\d\d(?:\.\d{1,9})?) |(?P<seconds>\d{1,12}\.\d{1,9}) )?"
    r"(?:\(\+ +\d+\.\d+\) )?"
    r"(?:\[ *[0-9a-f?]{1,16}\] ){0,2}"
)
NAME = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]{0,60})\(")
RESUMED = re.compile(r"<\.\.\. (?P<name>[A-Za-z_][A-Za-z0-9_]{0,60}) resumed>")
RESULT = re.compile(r"(?P<value>-?\d{1,20}|0x[0-9a-f]{1,16}|\?)(?:<[^\n]*>|\\\d+)?(?: (?P<error>E[A-Z0-9]{1,20})\b)?")
TIME = re.compile(r" <(\d{1,9}\.\d{1,9})>$")
SIGNAL = re.compile(r"--- (?:stopped by )?(?P<name>SIG[A-Z0-9_]{1,20}) ?(?:\{.*\} )?---$")
ENDED = re.compile(
    r"\+\+\+ (?:exited with (?P<code>\d{1,3})|killed by (?P<signal>SIG[A-Z0-9_]+)[^+]*"
    r"|superseded by execve in pid (?P<heir>\d{1,9})) \+\+\+$"
)
STRING = re.compile(r'"((?:[^"\\]|\\.?)*)(?:"|$)')  # strings may be cut off: then the end closes them
PADDING = 100  # strace sets results in column 40 where it can
LONGEST_RESULT = 8192  # a path and an explanation
LATEST_S = 2**33
UNIX_FROM_S = 10**8  # smaller numbers of seconds are since the line before (-r)


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A call: with its result, or cut off where another thread's line came in between."""

    name: str
    arguments: str
    result: str = ""
    error: str = ""
    ns: float | None = None
    unfinished: bool = False

    def command(self) -> str:
        """The command line of an execve."""
        words = STRING.findall(self.arguments[:10_000].partition("[")[2].partition("]")[0])
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Resumed:
    name: str
    rest: str


@dataclass(frozen=True, slots=True)
class Signal:
    name: str


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int | None = None
    signal: int | None = None
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True)
class StraceLine:
    """Whose line it is (0 where strace follows only one), when, and what it says."""

    task: int
    ns: int | None
    relative: bool
    unix: bool
    what: SystemCall | Resumed | Signal | Ended | None


def parsed(text: str) -> StraceLine:
    """The parts of a line; `what` is None for a line that is not strace's."""
    prefix = PREFIX.match(text)
    if prefix is None:  # cannot be: the pattern fits nothing, too
        return StraceLine(0, None, False, False, None)
    what = _what(text, prefix.end())
    task = int(prefix["pid"] or prefix["out"] or 0) if what else 0
    if prefix["day"]:
        return StraceLine(task, _day_ns(prefix["day"]), False, False, what)
    seconds = number(prefix["seconds"]) if prefix["seconds"] and what else None
    if seconds is None or seconds.value > LATEST_S:
        return StraceLine(task, None, False, False, what)
    unix = seconds.value > UNIX_FROM_S
    return StraceLine(task, int(seconds.value * 10**9), not unix, unix, what)


def _what(text: str, at: int) -> SystemCall | Resumed | Signal | Ended | None:
    if begun := NAME.match(text, at):
        return _call(begun["name"], text[begun.end() :])
    if resumed := RESUMED.match(text, at):
        return Resumed(resumed["name"], text[resumed.end() :])
    if signalled := SIGNAL.match(text, at):
        return Signal(signalled["name"])
    if ended := ENDED.match(text, at):
        return _ended(ended)
    return None


def _call(name: str, rest: str) -> SystemCall:
    if rest.endswith("<unfinished ...>"):
        before = rest[: -len("<unfinished ...>")].rstrip()
        if not before.endswith("= ?"):  # a process that is killed leaves this behind its last call
            return SystemCall(name, before, unfinished=True)
        rest = before
    arguments, result = _split(rest)
    match = RESULT.match(result)
    if match is None:
        return SystemCall(name, arguments)
    time = TIME.search(result)
    ns = number(time[1]) if time else None
    duration_ns = None if ns is None else float(ns.value * 10**9)
    return SystemCall(name, arguments, match["value"], match["error"] or "", duration_ns)


def _split(rest: str) -> tuple[str, str]:
    """Arguments and result: the last equals sign behind a closing bracket parts them, unless it is in a string."""
    at = len(rest)
    while (at := rest.rfind("= ", 0, at)) > 0:
        before = rest[max(0, at - PADDING) : at]
        bare = before.rstrip(" ")
        if bare.endswith(")") and len(bare) < len(before) and RESULT.match(rest, at + 2):
            return rest[: at - len(before) + len(bare) - 1], rest[at + 2 :]
        if at < len(rest) - LONGEST_RESULT:
            break
    return rest, ""


def _ended(match: re.Match[str]) -> Ended:
    if match["heir"]:
        return Ended(replaced_by=int(match["heir"]))
    if match["signal"]:
        return Ended(signal=_signal_number(match["signal"]))
    return Ended(exit_code=int(match["code"]))


def _signal_number(name: str) -> int:
    known = getattr(signal.Signals, "__members__", {})
    return int(known[name]) if name in known else 0


def _day_ns(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    exact = number(seconds)
    return (int(hours) * 3600 + int(minutes) * 60) * 10**9 + int((exact.value if exact else 0) * 10**9)
