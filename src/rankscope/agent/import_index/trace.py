"""Which sources a statement loads, in order: run in the environment's Python as its users run it."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from typing import Any

loaded = [getattr(getattr(module, "__spec__", None), "origin", None) for module in list(sys.modules.values())]
get_code = SourceFileLoader.get_code


def noted(self: Any, fullname: str) -> Any:
    loaded.append(self.path)
    return get_code(self, fullname)


SourceFileLoader.get_code = noted  # type: ignore[method-assign]
statement, target = sys.argv[1:3]
sys.argv[:] = ["-c"]
exec(statement, {"__name__": "__main__"})
with open(target, "w", encoding="utf-8", errors="surrogateescape") as file:
    file.write("\n".join(path for path in loaded if isinstance(path, str)))
