"""The tables of a study of imports that people make by hand, by one command: system calls to import each framework,
import time per place and scale, and with staging.

    python benchmarks/imports_document.py [--save] [--nodes 1,2,4] [--ranks 2] [--latency 200us] [--rate 20000]
                                          [--framework NAME=MODULE@PYTHON …]

Places: `disk` as it is; `soft`, a slow file system whose clients remember nothing; `lus`, with clients that do. A node
is a mount of its own with its ranks; all nodes share the server's rate. Each rank times its own import, with cold
mounts every time. The interpreter an environment was made from is not on the slow file system. Staged, by
benchmarks/stage.py: from `soft` to a folder of each node in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rankscope.analyse.import_tables import ImportTime, StagedImport, staged_times, time_per_place
from rankscope.model import Table
from rankscope.report.markdown import to_markdown
from rankscope.slowfs.program import reason_against_running

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).parent / "results" / "imports_document.md"
PLACES = {"disk": None, "soft": "none", "lus": "negative"}  # what its clients remember; None: no slow file system
# in one write: the ranks of a node share the pipe
TIMED = """import os, time
begin = time.perf_counter()
import {module}
os.write(1, b"%.6f\\n" % (time.perf_counter() - begin))"""
DEFAULT = ("numpy=numpy@.envs/packages/bin/python", "pandas=pandas@.envs/packages/bin/python")


def main() -> int:
    options = parsed()
    if options.node is not None:
        return be_a_node(json.loads(options.node))
    frameworks = {name: word for name, _, word in (text.partition("=") for text in options.framework or DEFAULT)}
    reason = reason_against_running()
    if reason:
        print(f"rankscope: {reason}", file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    parts = [calls(frameworks), *times(frameworks, options)]
    text = "\n".join([head(options, load), *parts])
    print(text)
    if options.save:
        RESULT.write_text(text, encoding="utf-8")
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    parser.add_argument("--nodes", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--ranks", type=int, default=2, help="on each node")
    parser.add_argument("--latency", default="200us", help="of a metadata operation")
    parser.add_argument("--rate", default="20000", help="metadata operations of all clients, a second")
    parser.add_argument("--framework", action="append", metavar="NAME=MODULE@PYTHON")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    return parser.parse_args()


def head(options: argparse.Namespace, load: float) -> str:
    when = f"{time.strftime('%Y-%m-%d')}, 2-core {platform.machine()} virtual machine, Linux {platform.release()[:4]}"
    slow = (
        f"Slow file system: {options.latency} for a metadata operation, {int(options.rate):,} of them a second for all"
    )
    return f"""# Imports: calls, places, scales
{when}, load {load:.0f} before; `python benchmarks/imports_document.py --save`.
{slow} nodes, {options.ranks} ranks on each; cold mounts. Counts are exact, times those of a busy machine.
"""


def calls(frameworks: dict[str, str]) -> str:
    """The first table, by the command itself."""
    words = [f"{module}@{ROOT / python}" for module, _, python in (word.partition("@") for word in frameworks.values())]
    command = [sys.executable, "-m", "rankscope", "imports", *words, "--format", "markdown"]
    if len(words) == 1:
        command += words  # side by side needs two
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return "## " + done.stdout.split("## ")[1]


def times(frameworks: dict[str, str], options: argparse.Namespace) -> list[str]:
    measured = [
        ImportTime(place, name, nodes, import_ns(word, place, nodes, options))
        for place in PLACES
        for name, word in frameworks.items()
        for nodes in options.nodes
    ]
    staged = [one for name, word in frameworks.items() for one in staged_imports(name, word, options)]
    tables: list[Table] = [time_per_place(measured, staged), staged_times(staged)]
    return [to_markdown(tables)]


def import_ns(word: str, place: str, nodes: int, options: argparse.Namespace) -> float:
    """Median over the ranks of all nodes, which start together."""
    module, _, python = word.partition("@")
    environment = (ROOT / python).parents[1].resolve()
    task = {"python": str(environment / "bin/python"), "module": module, "ranks": options.ranks}
    with tempfile.TemporaryDirectory(prefix="rankscope-document-") as folder:
        lines = [node_command(task, environment, PLACES[place], options, Path(folder)) for _ in range(nodes)]
        running = [
            subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for line in lines
        ]
        printed = [one.communicate()[0] for one in running]
    found = [float(text) for part in printed for text in part.split()]
    if len(found) != nodes * options.ranks:
        raise SystemExit(f"{module} on {place}: {len(found)} of {nodes * options.ranks} ranks came back")
    return median(found) * 1e9


def node_command(
    task: dict[str, object], environment: Path, cache: str | None, options: argparse.Namespace, folder: Path
) -> list[str]:
    node = [sys.executable, __file__, "--node", json.dumps(task)]
    if cache is None:
        return node
    slow = ["--latency", options.latency, "--ops-per-second", options.rate, "--cache", cache]
    place = [str(environment), *slow, "--server", str(folder / "server")]
    return [sys.executable, "-m", "rankscope", "slowfs", "run", *place, "--", *node]


def be_a_node(task: dict[str, object]) -> int:
    """In the node: its ranks at once; each prints its seconds."""
    command = [str(task["python"]), "-c", TIMED.format(module=task["module"])]
    ranks = [subprocess.Popen(command) for _ in range(int(str(task["ranks"])))]
    return max(rank.wait() for rank in ranks)


def staged_imports(name: str, word: str, options: argparse.Namespace) -> list[StagedImport]:
    """Transfer (what of unpacking is not hidden behind it included) and import on every number of nodes."""
    module, _, python = word.partition("@")
    command = [sys.executable, str(Path(__file__).with_name("stage.py")), "--json", "--ways", "staged"]
    command += ["--nodes", ",".join(map(str, options.nodes)), "--ranks", str(options.ranks)]
    command += ["--latency", options.latency, "--ops-per-second", options.rate, "--cache", str(PLACES["soft"])]
    command += ["--environment", str((ROOT / python).parents[1]), "--import", module]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    table = next(one for one in json.loads(done.stdout)["tables"] if one["name"] == "staging")
    at = {column["name"]: place for place, column in enumerate(table["columns"])}
    return [
        StagedImport(
            name, int(row[at["nodes"]]), row[at["transfer_ns"]] + row[at["unpack_ns"]], float(row[at["import_ns"]])
        )
        for row in table["rows"]
    ]


if __name__ == "__main__":
    sys.exit(main())
