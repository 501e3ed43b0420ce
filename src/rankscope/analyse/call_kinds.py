"""Which system calls are opens, stats, reads …: the names as strace prints them."""

from __future__ import annotations

from rankscope.model import Column, Unit

OPENS = ("open", "openat", "openat2", "creat")
STATS = ("stat", "lstat", "fstat", "newfstatat", "fstatat64", "statx", "stat64", "lstat64", "fstat64")
READS = ("read", "pread64", "readv", "preadv", "preadv2")
MMAPS = ("mmap", "mmap2")
# In which a thread waits for another, for a time or for a process: not what files cost.
WAITS = (
    *("futex", "futex_wait", "futex_waitv", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"),
    *("epoll_pwait2", "nanosleep", "clock_nanosleep", "pause", "rt_sigsuspend", "rt_sigtimedwait", "wait4", "waitid"),
)
STARTS = ("fork", "vfork", "clone", "clone3")  # of threads and processes alike


def one_of(names: tuple[str, ...]) -> str:
    """The SQL condition that a row of system_calls is one of these."""
    return f"call IN ({', '.join(repr(name) for name in names)})"


def sums(prefix: str = "") -> str:
    """The SQL sums over rows of system_calls, in the order of COUNTED."""
    parts = {
        "calls": "calls",
        "opens": f"CASE WHEN {one_of(OPENS)} THEN calls END",
        "stats": f"CASE WHEN {one_of(STATS)} THEN calls END",
        "reads": f"CASE WHEN {one_of(READS)} THEN calls END",
        "mmaps": f"CASE WHEN {one_of(MMAPS)} THEN calls END",
        "failed": "failed",
        "missing": "missing",
        "read_bytes": f"CASE WHEN {one_of(READS)} THEN bytes END",
        "call_ns": f"CASE WHEN NOT {one_of(WAITS)} THEN total_ns END",
    }
    return ", ".join(f"coalesce(sum({sql}), 0)::BIGINT AS {prefix}{name}" for name, sql in parts.items())


def by_cause() -> str:
    """The SQL sums of calls by the causes that belong to modules."""
    parts = [f"CASE WHEN cause = '{cause}' THEN calls END" for cause in ("search", "code", "loader", "module")]
    return ", ".join(f"coalesce(sum({sql}), 0)::BIGINT" for sql in parts)


COUNTED = ("calls", "opens", "stats", "reads", "mmaps", "failed", "missing", "read_bytes", "call_ns")
CALL_COLUMNS = (
    Column("calls", Unit.COUNT, "Calls"),
    Column("opens", Unit.COUNT, "Opens"),
    Column("stats", Unit.COUNT, "Stats"),
    Column("reads", Unit.COUNT, "Reads"),
    Column("mmaps", Unit.COUNT, "Mmaps"),
    Column("failed", Unit.COUNT, "Failed"),
)
