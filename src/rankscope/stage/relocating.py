"""Texts that say where the environment is (pyvenv.cfg, scripts' first lines, .pth files) are made to name the copy."""

import os
import re

from rankscope.stage.roots import Root

LONGEST_FIRST_LINE = 127  # what older kernels read of a #! line


def relocated(content: bytes, roots: list[Root], copy: str) -> bytes:
    """The text with every path in a root leading into the copy."""
    names = {os.fsencode(prefix): root.name for root in roots for prefix in (root.real, root.original)}
    longest_first = sorted(names, key=len, reverse=True)
    pattern = rb"(?<![\w./-])(" + b"|".join(re.escape(prefix) for prefix in longest_first) + rb")(?=[/\s\"':]|$)"
    content = re.sub(pattern, lambda found: os.fsencode(f"{copy}/{names[found.group(1)]}"), content)
    first, newline, rest = content.partition(b"\n")
    if first.startswith(b"#!") and len(first) > LONGEST_FIRST_LINE:
        return through_shell(first, newline + rest)
    return content


def through_shell(first: bytes, rest: bytes) -> bytes:
    """A line that is too long for the kernel, written so that sh runs it and Python takes it for a string."""
    return b"#!/bin/sh\n'''exec' " + first[2:].strip() + b" \"$0\" \"$@\"\n' '''" + rest
