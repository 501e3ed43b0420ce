"""What the processes and modules of an import tree are called."""

from __future__ import annotations

import os
import shlex

from rankscope.questions.imports.trees import Node

LONGEST = 40


def node_name(node: Node) -> str:
    """A module's name, or a process's command in short."""
    return command_name(node.name) if node.is_process else node.name


def command_name(command: str) -> str:
    """python -c 'import torch' for /long/path/to/python -c 'import torch'."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words:
        return "(process)"
    text = shlex.join([os.path.basename(words[0]), *words[1:]])
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
