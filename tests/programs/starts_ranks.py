"""starts_ranks.py RANKS COMMAND…: starts it as so many ranks, 50 at a time, told so as torchrun does."""

from __future__ import annotations

import os
import sys

AT_A_TIME = 50


def start(rank: int, ranks: int, command: list[str]) -> int:
    told = {"TORCHELASTIC_RUN_ID": "many", "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank}
    environment = {**os.environ, **{name: str(value) for name, value in told.items()}}
    return os.posix_spawnp(command[0], command, environment)


def main(ranks: int, command: list[str]) -> int:
    running: set[int] = set()
    failed = 0
    for rank in range(ranks):
        if len(running) == AT_A_TIME:
            failed += wait(running)
        running.add(start(rank, ranks, command))
    while running:
        failed += wait(running)
    print(f"{ranks} ranks, {failed} failed")
    return int(failed > 0)


def wait(running: set[int]) -> int:
    pid, status = os.wait()
    running.discard(pid)
    return int(os.waitstatus_to_exitcode(status) != 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
