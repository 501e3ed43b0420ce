"""Staging against running in place on a slow file system: nodes are network namespaces with mounts of their own.

    python benchmarks/stage.py [--nodes 1,2,4] [--ranks 3] [--latency 1ms] [--cache none] [--ops-per-second 5000]
                               [--environment .envs/torch] [--import torch] [--save | --json] [--ways in-place,staged]

Each node has its own network (joined by a bridge), host name, client of the slow file system (they share its rate and
counters) and node-local folder; its ranks are started with the variables that srun sets. Without the right to make
network namespaces the nodes share the host's network, and the result says so. Environment and bundle both lie on the
slow file system; the interpreter the environment was made from does not.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
NAME = f"rankscope-{os.getpid()}"  # of namespaces: others may run at the same time
HUB = f"{NAME}-hub"
PATIENCE_S = 900


def main() -> None:
    arguments = parsed()
    if arguments.node is not None:
        sys.exit(be_a_node(arguments))
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-stage-") as folder:
        made = make_namespaces(max(arguments.nodes))
        try:
            show(measure(arguments, Path(folder), made), arguments, made)
        finally:
            remove_namespaces(max(arguments.nodes))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--ranks", type=int, default=3, help="on each node")
    parser.add_argument("--latency", default="1ms")
    parser.add_argument("--cache", default="none")
    parser.add_argument(
        "--ops-per-second", default="0", help="metadata operations of all nodes together (default: any)"
    )
    parser.add_argument("--environment", type=Path, default=ROOT / ".envs" / "torch")
    parser.add_argument("--import", dest="module", default="torch")
    parser.add_argument("--local", type=Path, default=Path("/dev/shm"), help="where node-local folders are made")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the tables only, for other programs")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["in-place", "staged"])
    parser.add_argument("--node", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


# ---------------------------------------------------------------- nodes
def make_namespaces(count: int) -> bool:
    """Networks joined by a bridge; False where that is not allowed."""
    commands = [f"ip netns add {HUB}", f"ip -n {HUB} link add hub type bridge", f"ip -n {HUB} link set hub up"]
    for number in range(count):
        name = f"{NAME}-node{number}"
        commands += [
            f"ip netns add {name}",
            f"ip -n {name} link set lo up",
            f"ip -n {name} link add net0 type veth peer name port{number} netns {HUB}",
            f"ip -n {HUB} link set port{number} master hub up",
            f"ip -n {name} addr add 10.77.0.{number + 1}/24 dev net0",
            f"ip -n {name} link set net0 up",
        ]
    for command in commands:
        if subprocess.run(command.split(), capture_output=True).returncode:
            remove_namespaces(count)
            return False
    return True


def remove_namespaces(count: int) -> None:
    for name in [HUB, *(f"{NAME}-node{number}" for number in range(count))]:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def node_command(number: int, task: dict[str, object], separate: bool) -> list[str]:
    """Starts a node: its network, its name, its client of the slow file system, then ourselves."""
    slow = ["slowfs", "run", task["shared"], "--latency", task["latency"], "--cache", task["cache"]]
    slow += ["--ops-per-second", task["rate"]] if task["rate"] != "0" else []
    inner = [*rankscope(), *slow, "--server", task["server"], "--", sys.executable, __file__]
    inner += ["--node", str(number), "--task", json.dumps(task)]
    network = ["ip", "netns", "exec", f"{NAME}-node{number}"] if separate else []
    name = ["unshare", "-u", "sh", "-c", f'hostname node{number}; exec "$@"', "sh"] if separate else []
    return [str(word) for word in [*network, *name, *inner]]


def be_a_node(arguments: argparse.Namespace) -> int:
    """In the node: start the ranks when all nodes are there, as srun does."""
    task, number = arguments.task, arguments.node
    Path(task["meet"], f"ready-{number}").touch()
    while not Path(task["meet"], "go").exists():
        time.sleep(0.01)
    ranks = []
    for local in range(task["ranks"]):
        variables = {
            "SLURM_JOB_ID": task["job"],
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": str(number * task["ranks"] + local),
            "SLURM_LOCALID": str(local),
            "SLURM_STEP_NUM_TASKS": str(task["ranks"] * task["nodes"]),
            "SLURM_STEP_TASKS_PER_NODE": f"{task['ranks']}(x{task['nodes']})",
            "OMP_NUM_THREADS": "1",
        }
        place = ["--to", f"{task['local']}/node{number}", "--meet", task["meet"]]
        way = ["--in-place"] if task["way"] == "in-place" else [*place, "--strict"]
        command = [*rankscope(), "stage", f"{task['shared']}/env", "--bundle", f"{task['shared']}/env.bundle", *way]
        command += ["--times", task["times"], "--", "python", "-c", f"import {task['module']}"]
        ranks.append(subprocess.Popen(command, env={**os.environ, **variables}))
    return max(rank.wait() for rank in ranks)


def rankscope() -> list[str]:
    return [sys.executable, "-m", "rankscope"]


# ---------------------------------------------------------------- measuring
def measure(arguments: argparse.Namespace, folder: Path, separate: bool) -> list[dict[str, object]]:
    """Every node count, in place and staged; the tables' raw files stay in folders of --times."""
    shared = folder / "shared"
    shared.mkdir()
    environment = shared / "env"
    subprocess.run(["cp", "-a", "--reflink=auto", f"{arguments.environment.resolve()}/.", environment], check=True)
    stage = [*rankscope(), "stage", str(environment), "--bundle", str(shared / "env.bundle"), "--no-base", "--record"]
    subprocess.run([*stage, "--", "python", "-c", f"import {arguments.module}"], check=True)
    found = []
    for nodes in arguments.nodes:
        for way in arguments.ways:
            found.append(run_once(arguments, folder, shared, nodes, way, separate))
            print(found[-1], file=sys.stderr, flush=True)
    return found


def run_once(
    arguments: argparse.Namespace, folder: Path, shared: Path, nodes: int, way: str, separate: bool
) -> dict[str, object]:
    meet = folder / f"meet-{nodes}-{way}"
    meet.mkdir()
    times = folder / f"times-{nodes}" / f"{way}-1"
    times.mkdir(parents=True)
    local = Path(tempfile.mkdtemp(prefix="rankscope-bench-nodes-", dir=arguments.local))
    task: dict[str, object] = {
        "shared": str(shared),
        "latency": arguments.latency,
        "cache": arguments.cache,
        "rate": arguments.ops_per_second,
        "server": str(folder / f"server-{nodes}-{way}"),
        "meet": str(meet),
        "job": f"{os.getpid()}{nodes}",
        "ranks": arguments.ranks,
        "nodes": nodes,
        "local": str(local),
        "way": way,
        "times": str(times),
        "module": arguments.module,
    }
    jobs = [subprocess.Popen(node_command(number, task, separate)) for number in range(nodes)]
    while len(list(meet.glob("ready-*"))) < nodes and all(job.poll() is None for job in jobs):
        time.sleep(0.05)
    (meet / "go").touch()
    codes = [job.wait(PATIENCE_S) for job in jobs]
    if any(codes):
        raise SystemExit(f"{way} on {nodes} nodes: exit codes {codes}")
    wait_for_keepers(times, nodes if way == "staged" else 0)
    shutil.rmtree(local, ignore_errors=True)
    return {"nodes": nodes, "way": way, "times": str(times.parent), **counters(Path(str(task["server"])))}


def wait_for_keepers(times: Path, nodes: int) -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        reports = [json.loads(path.read_text()) for path in times.glob("node-*.json")]
        if len([report for report in reports if report["ended"]]) >= nodes:
            return
        time.sleep(0.1)


def counters(server: Path) -> dict[str, int]:
    sys.path.insert(0, str(ROOT / "src"))
    from rankscope.slowfs.mount import of_server

    found = of_server(server)
    return {"metadata_operations": found["metadata"], "reads": found["read"], "read_bytes": found["bytes"]}


# ---------------------------------------------------------------- showing
def show(found: list[dict[str, object]], arguments: argparse.Namespace, separate: bool) -> None:
    folders = dict.fromkeys(str(row["times"]) for row in found)
    words = [word for folder in folders for word in ("--table", folder)]
    form = "json" if arguments.json else "markdown"
    table = subprocess.run(
        [*rankscope(), "stage", *words, "--format", form], capture_output=True, text=True, check=True
    ).stdout
    if arguments.json:
        print(table)
        return
    text = "\n".join([head(arguments, separate), table, *asked(found)]) + "\n"
    print(text)
    if arguments.save:
        rate = f"-{arguments.ops_per_second}" if arguments.ops_per_second != "0" else ""
        name = f"stage-{arguments.module}-{arguments.cache}{rate}.md"
        (RESULTS / name).write_text(text, encoding="utf-8")


def head(arguments: argparse.Namespace, separate: bool) -> str:
    command = f"python benchmarks/stage.py --nodes {','.join(map(str, arguments.nodes))} --ranks {arguments.ranks}"
    command += f" --latency {arguments.latency} --cache {arguments.cache} --ops-per-second {arguments.ops_per_second}"
    command += f" --environment {os.path.relpath(arguments.environment, ROOT)} --import {arguments.module} --save"
    rate = f"{arguments.ops_per_second} a second for all nodes, " if arguments.ops_per_second != "0" else ""
    nodes = "network namespaces joined by a bridge" if separate else "folders (no network namespaces allowed)"
    machine = f"{os.cpu_count()}-core {platform.machine()} virtual machine, Linux {platform.release().split('-')[0]}"
    return f"""# rankscope stage: import {arguments.module} from a slow file system
{time.strftime("%Y-%m-%d")}, {machine}, load {os.getloadavg()[0]:.1f} at the end.
Nodes are {nodes}, each with its own
client of the slow file system ({arguments.latency} per metadata operation, {rate}client cache: {arguments.cache}) and
{arguments.ranks} ranks. All ranks share {os.cpu_count()} cores: the computing part of an import grows with them in
both ways, where real nodes bring cores of their own.

    {command}
"""


def asked(found: list[dict[str, object]]) -> list[str]:
    """What the slow file system was asked for."""
    lines = ["## What the shared file system was asked for", ""]
    lines += ["| Nodes | Way | Metadata operations | Reads | MiB read |", "| ---: | --- | ---: | ---: | ---: |"]
    for row in found:
        size = int(str(row["read_bytes"])) / 1024**2
        lines.append(
            f"| {row['nodes']} | {row['way']} | {row['metadata_operations']:,} | {row['reads']:,} | {size:,.1f} |"
        )
    return lines


if __name__ == "__main__":
    main()
