"""One import, timed: what a rank pays before it can begin.

    python imports.py MODULE FOLDER [PREFIX | not PREFIX]

With PREFIX the module must come from there; with `not PREFIX` from anywhere else (a copy of it).
"""

import sys
import time

BEGIN = time.perf_counter()
MODULE = __import__(sys.argv[1])  # nothing else is imported before: it would not be paid for by the framework
SECONDS = time.perf_counter() - BEGIN

import os  # noqa: E402

import place  # noqa: E402
import result  # noqa: E402


def origin() -> str:
    """Where the package really lies."""
    path = getattr(MODULE, "__file__", None) or next(iter(getattr(MODULE, "__path__", [])), "")
    return os.path.realpath(path)


def misplaced(where: str, words: "list[str]") -> str:
    """Why the time is not of the place that was meant."""
    if not words:
        return ""
    inside = where.startswith(os.path.realpath(words[-1]) + os.sep)
    if words[0] == "not":
        return f"{where} was imported in place, not from a copy" if inside else ""
    return "" if inside else f"{where} was imported, which is not in {words[-1]}"


def main() -> None:
    folder, expected, where = sys.argv[2], sys.argv[3:], origin()
    seconds = {"import": SECONDS}
    result.leave(
        folder, place.rank(), seconds=seconds, origin=where, prefix=sys.prefix, wrong=misplaced(where, expected)
    )


if __name__ == "__main__":
    main()
