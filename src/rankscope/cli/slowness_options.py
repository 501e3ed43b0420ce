"""The options that say how slow a folder shall be, for every command that takes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from rankscope.slowfs.mount import CACHES, Slowness, bytes_per_second, duration_ns


def with_message(convert: Callable[[str], int]) -> Callable[[str], int]:
    """A conversion whose own words argparse passes on."""

    def converted(text: str) -> int:
        try:
            return convert(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return converted


def add_slowness_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how slow").add_argument
    add(
        "--latency",
        type=with_message(duration_ns),
        default=0,
        metavar="TIME",
        help="latency of a metadata operation: 1ms, 250us",
    )
    add("--read-latency", type=with_message(duration_ns), default=0, metavar="TIME", help="latency of a read")
    add(
        "--bandwidth",
        type=with_message(bytes_per_second),
        default=0,
        metavar="BYTES",
        help="bandwidth of all reads together: 200M, 1G",
    )
    add(
        "--ops-per-second",
        type=with_message(operations),
        default=0,
        metavar="N",
        help="metadata operations per second, all clients together",
    )
    add(
        "--cache",
        choices=CACHES,
        default="none",
        help="what clients cache: nothing (default), existing names, also missing names",
    )
    add("--cache-time", type=with_message(duration_ns), default=duration_ns("3600s"), metavar="TIME",
        help="cache lifetime (default: 3600s)")  # fmt: skip
    add(
        "--page-cache",
        choices=["on", "off"],
        help="whether file contents stay cached when a file is opened again (default: off with --cache none)",
    )
    add("--server", type=Path, metavar="FILE", help="mounts that name the same file share rates and counters")


def operations(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text}: give a whole number of operations per second")
    return int(text)


def slowness_of(options: argparse.Namespace) -> Slowness:
    return Slowness(
        latency_ns=options.latency,
        read_latency_ns=options.read_latency,
        bytes_per_second=options.bandwidth,
        operations_per_second=options.ops_per_second,
        cache=options.cache,
        cache_ns=options.cache_time,
        page_cache=None if options.page_cache is None else options.page_cache == "on",
        server=options.server,
    )
