"""many_children.py FORKS SHORT POOL SPAWNS: starts children in every way Python has, and prints what they answered."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys


def square(number: int) -> int:
    return number * number


def forked(count: int) -> int:
    """Children by fork alone, eight at a time."""
    codes = []
    for first in range(0, count, 8):
        children = [one_fork(number) for number in range(first, min(first + 8, count))]
        codes += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return sum(codes)


def one_fork(number: int) -> int:
    child = os.fork()
    if child == 0:
        os._exit(number % 3)
    return child


def executed(count: int) -> int:
    return sum(subprocess.run(["sh", "-c", f"exit {number % 3}"], check=False).returncode for number in range(count))


def pooled(method: str, count: int) -> int:
    with multiprocessing.get_context(method).Pool(2, maxtasksperchild=1) as pool:
        return sum(pool.map(square, range(count), chunksize=1))


def main(forks: int, short: int, pool: int, spawns: int) -> int:
    print("forked", forked(forks))
    print("executed", executed(short))
    print("pooled", pooled("fork", pool))
    print("spawned", pooled("spawn", spawns))
    return 7


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
