"""Latency is added, the rate is shared by all clients, and clients do not wait for each other."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.slowfs.mount import Slowness, bytes_per_second, duration_ns
from slow_file_system import slow_file_system

# Looks N times for a name that is not there: one operation each, whatever the cache. Each client for a name of its own:
# of those that look for the same one the kernel lets only one ask at a time.
PROBES = "import os, sys\nfor _ in range(int(sys.argv[2])):\n    os.path.exists(f'{sys.argv[1]}/nothing{os.getpid()}')"


def probe(places: list[Path], times: int) -> float:
    """Seconds from the first start to the last end of one client for each place."""
    begin = time.monotonic()
    clients = [subprocess.Popen([sys.executable, "-I", "-S", "-c", PROBES, place, str(times)]) for place in places]
    assert [client.wait() for client in clients] == [0] * len(clients)
    return time.monotonic() - begin


def test_every_operation_is_held_back(tmp_path: Path) -> None:
    with slow_file_system(tmp_path, latency_us=5000) as mount:
        before, begin = mount.counters(), time.monotonic()
        for _ in range(20):
            assert not (mount.path / "nothing").exists()
        assert time.monotonic() - begin >= 20 * 0.005
        after = mount.counters()
        assert after["delayed_ns"] - before["delayed_ns"] == 20 * 5_000_000
        assert after["queued_ns"] == 0


def test_reads_have_a_latency_and_a_bandwidth_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1_000_000))
    with slow_file_system(tmp_path, read_latency_us=1000, bytes_per_second=5_000_000) as mount:
        begin = time.monotonic()
        assert len((mount.path / "file").read_bytes()) == 1_000_000
        assert time.monotonic() - begin >= 0.2
        counters = mount.counters()
        assert counters["bytes"] == 1_000_000
        assert counters["queued_ns"] >= 0.2e9


def test_four_clients_share_the_rate_of_one_server(tmp_path: Path) -> None:
    server = tmp_path / "server"
    (tmp_path / "source").mkdir()
    rate = {"operations_per_second": 500, "server": server}
    with slow_file_system(tmp_path / "source", **rate) as one, slow_file_system(tmp_path / "source", **rate) as other:
        took = probe([one.path, one.path, other.path, other.path], 100)
    assert took >= 400 / 500 * 0.99  # never faster; how much slower is the machine's affair


def test_clients_do_not_wait_for_each_others_latency(tmp_path: Path) -> None:
    with slow_file_system(tmp_path, latency_us=200_000) as mount:
        took = probe([mount.path] * 8, 10)
        assert mount.counters()["missing"] == 80
    assert took < 80 * 0.2  # one after the other would take that long, and all at once 2 s


@pytest.mark.parametrize(("text", "expected"), [("1ms", 1_000_000), ("250us", 250_000), ("0.5s", 500_000_000)])
def test_times(text: str, expected: int) -> None:
    assert duration_ns(text) == expected


@pytest.mark.parametrize("text", ["1", "ms", "-1ms", "1 minute", ""])
def test_times_without_a_unit_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give a time with its unit"):
        duration_ns(text)


def test_bandwidths() -> None:
    assert [bytes_per_second(text) for text in ("200M", "1GB/s", "64Mi", "10")] == [2 * 10**8, 10**9, 2**26, 10]


def test_flags_name_everything() -> None:
    flags = Slowness(latency_ns=5, cache="negative", page_cache=False, server=Path("/x")).flags()
    assert {"--latency-ns=5", "--cache=negative", "--page-cache=off", "--server=/x"} <= set(flags)
