"""The questions about imports, by the name of their table."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.analyse.import_causes import import_causes
from rankscope.analyse.import_loader import import_loader
from rankscope.analyse.import_module_mounts import import_module_mounts
from rankscope.analyse.import_mounts import import_mounts
from rankscope.analyse.import_offenders import import_offenders
from rankscope.analyse.import_paths import import_paths
from rankscope.analyse.import_tree import import_tree
from rankscope.model import Table, Tables
from rankscope.questions.imports.calls import import_calls
from rankscope.questions.imports.imports import imports
from rankscope.questions.imports.modules import import_modules
from rankscope.questions.imports.search import import_search
from rankscope.questions.selection import Selection

Question = Callable[[Tables, Selection], Table]

IMPORT_QUESTIONS: dict[str, Question] = {
    "imports": imports,
    "import_offenders": import_offenders,
    "import_tree": import_tree,
    "import_modules": import_modules,
    "import_causes": import_causes,
    "import_mounts": import_mounts,
    "import_module_mounts": import_module_mounts,
    "import_calls": import_calls,
    "import_paths": import_paths,
    "import_search": import_search,
    "import_loader": import_loader,
}
# what `rankscope imports` shows unasked; the others are long
SHOWN = ("imports", "import_offenders", "import_tree", "import_causes", "import_mounts")
ONLY_WHERE_ASKED = frozenset(IMPORT_QUESTIONS) - {"imports"}  # in `rankscope report`
