"""Runs a command beside a Slurm of its own: controller, node daemons and munge, nothing of the system's.

    tools/slurm_here.py [--nodes N] [--cpus N] -- sbatch --wait …

Needs the programs (Debian: slurmctld slurmd slurm-client munge), no root, no systemd, no cgroups. Everything it writes
is in one folder, which is removed at the end; all daemons are stopped, however it ends.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "sinfo", "squeue", "scancel")
SYSTEM = ("/usr/sbin", "/sbin", "/usr/local/sbin")  # where daemons are, which a user's PATH has not
READY_S = 60.0
CONFIGURATION = """\
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=5
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Programs that are not installed."""
    return [name for name in PROGRAMS if not found(name)]


def found(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *SYSTEM]))


@contextmanager
def slurm(nodes: int = 1, cpus: int = 8) -> Iterator[dict[str, str]]:
    """The variables by which commands find it, while it runs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        daemons: list[subprocess.Popen[bytes]] = []
        stack.callback(stop, daemons)
        names = configure(folder, nodes, cpus)
        variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

        def begin(*command: str) -> None:
            output = stack.enter_context((folder / f"{command[0]}.out").open("ab"))
            words = [found(command[0]) or command[0], *command[1:]]
            daemons.append(
                subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            )

        begin(*munged(folder))
        wait_until(folder, daemons, (folder / "munge.socket").exists)
        begin("slurmctld", "-D", "-i", "-f", variables["SLURM_CONF"])
        for name in names:
            begin("slurmd", "-D", "-N", name, "-f", variables["SLURM_CONF"])
        wait_until(folder, daemons, lambda: idle(variables) == nodes)
        try:
            yield {"SLURM_CONF": variables["SLURM_CONF"]}
        finally:
            asked = ["scancel", "--user", str(os.getuid()), "--signal=KILL", "--full"]
            subprocess.run(asked, env=variables, capture_output=True, timeout=30, check=False)


def configure(folder: Path, nodes: int, cpus: int) -> list[str]:
    """Writes the configuration and the key; the names of the nodes."""
    ports = free_ports(nodes + 1)
    host = socket.gethostname()
    names = [f"here{number}" for number in range(1, nodes + 1)]
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} State=UNKNOWN"
        for name, port in zip(names, ports[1:], strict=True)
    ]
    text = CONFIGURATION.format(host=host, folder=folder, controller=ports[0], user=user_name(), nodes="\n".join(lines))
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    for name in ("state", *(f"spool-{name}" for name in names)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    folder.chmod(0o755)
    return names


def munged(folder: Path) -> list[str]:
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
    files["seed-file"] = "munge.seed"
    named = [f"--{option}={folder / name}" for option, name in files.items()]
    return ["munged", "--foreground", "--force", "--num-threads=2", *named]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in made:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in made]


def user_name() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def idle(variables: dict[str, str]) -> int:
    asked = ["sinfo", "--noheader", "--Node", "--format=%N %t"]
    told = subprocess.run(asked, env=variables, capture_output=True, text=True, timeout=30, check=False)
    return sum(line.split()[1:] == ["idle"] for line in told.stdout.splitlines())


def wait_until(folder: Path, daemons: list[subprocess.Popen[bytes]], ready: Callable[[], bool]) -> None:
    until = time.monotonic() + READY_S
    while not ready():
        ended = [one for one in daemons if one.poll() is not None]
        if ended or time.monotonic() > until:
            which = f"{ended[0].args!r} has ended" if ended else "too slow"
            raise RuntimeError(f"Slurm did not start: {which}\n{logs(folder)}")
        time.sleep(0.1)


def logs(folder: Path) -> str:
    texts = [(path.name, path.read_text(errors="replace")) for path in sorted(folder.glob("*.log"))]
    texts += [(path.name, path.read_text(errors="replace")) for path in sorted(folder.glob("*.out"))]
    return "\n".join(f"--- {name}\n{text[-3000:]}" for name, text in texts if text)


def stop(daemons: list[subprocess.Popen[bytes]]) -> None:
    """The last that was started first."""
    for number, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        for one in reversed(daemons):
            if one.poll() is None:
                one.send_signal(number)
        until = time.monotonic() + patience_s
        for one in daemons:
            try:
                one.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1, help="node daemons (default: 1)")
    parser.add_argument("--cpus", type=int, default=8, help="that each node says it has (default: 8)")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if missing():
        print(
            f"slurm_here: {', '.join(missing())} not found: install slurmctld, slurmd, slurm-client and munge",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with slurm(options.nodes, options.cpus) as variables:
        return subprocess.run(options.command, env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
