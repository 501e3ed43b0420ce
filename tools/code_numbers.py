"""How the code is laid out, in numbers: files, lines, folders, who imports whom; of one checkout or of several.

python tools/code_numbers.py [CHECKOUT …]
"""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_RUN = "import sys; import rankscope.cli.report; print(sum(name.startswith('rankscope') for name in sys.modules))"


def modules_of(package: Path) -> dict[str, Path]:
    """Modules by their dotted names."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importers(modules: dict[str, Path], trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Of each module those that import it, wherever in them."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    target = whole if whole in modules else node.module
                    if target in modules and target != name:
                        found[target].add(name)
    return found


def numbers(checkout: Path) -> dict[str, str]:
    package = checkout / "src" / "rankscope"
    modules = modules_of(package)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules.items()}
    plain = {name: count for name, count in lines.items() if modules[name].name != "__init__.py"}
    used = importers(modules, trees)
    folders = Counter(path.parent.relative_to(package).as_posix() for path in modules.values())
    folder, files = folders.most_common(1)[0]
    classes = Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))
    docs = [path for pattern in ("*.md", "docs/**/*.md") for path in checkout.glob(pattern)]
    here = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    loaded = subprocess.run([sys.executable, "-c", NO_RUN], env=here, capture_output=True, text=True, check=True)
    return {
        "Python files": f"{len(modules):,}",
        "lines": f"{sum(lines.values()):,}",
        "median lines of a file": f"{statistics.median(plain.values()):.0f}",
        "files over 350 lines": f"{sum(count > 350 for count in plain.values())}",
        "modules with one importer": f"{sum(len(users) == 1 for users in used.values())}",
        "files in the largest folder": f"{files} (`{folder}`)",
        "class names used twice or more": f"{sum(count > 1 for count in classes.values())}",
        "our modules that `rankscope report` loads before it asks anything": loaded.stdout.strip(),
        "lines of Markdown": f"{sum(len(path.read_text(encoding='utf-8').splitlines()) for path in docs):,}",
    }


def main() -> int:
    checkouts = [Path(word).resolve() for word in sys.argv[1:]] or [ROOT]
    columns = [numbers(checkout) for checkout in checkouts]
    print("| | " + " | ".join(checkout.name for checkout in checkouts) + " |")
    print("|---|" + "---:|" * len(checkouts))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
