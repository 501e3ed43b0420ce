"""Starting the keeper, and waiting for its word."""

import os
import resource
import select

from rankscope.stage.task import Outcome, Task, outcome_from

LONGEST_LINE_BYTES = 65536


def start_keeper(task: Task, name: str) -> int:
    """Fork twice, so that nobody has to wait for the keeper; the end of a pipe at which it says the outcome."""
    outlet_read, outlet = os.pipe()
    child = os.fork()
    if child:
        os.close(outlet)
        os.waitpid(child, 0)
        return outlet_read
    try:
        os.setsid()
        if os.fork() == 0:
            keep(task, name, outlet)
    finally:
        os._exit(0)  # whatever happens: no second copy of the rank may go on


def keep(task: Task, name: str, outlet: int) -> None:
    outlet = detach(outlet)
    from rankscope.stage.node_daemon import Keeper

    Keeper(task, name, outlet).run()


def detach(outlet: int) -> int:
    """Let go of everything of the job: its output, its launcher's sockets, its folder."""
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(outlet, 3) if outlet != 3 else None
    for standard in range(3):
        os.dup2(nothing, standard)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(4, min(max(soft, 4096), 1 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.umask(0o022)
    os.chdir("/")
    return 3


def word_of(outlet: int, patience_s: float) -> Outcome:
    """The keeper's word; no word where it was killed or does not come to an end."""
    text = b""
    try:
        while not text.endswith(b"\n"):
            if not select.select([outlet], [], [], patience_s)[0]:
                return Outcome("", f"nothing arrived within {patience_s:.0f} s")
            block = os.read(outlet, LONGEST_LINE_BYTES)
            if not block:
                return Outcome("", "")  # killed: the next attempt starts another
            text += block
    finally:
        os.close(outlet)
    return outcome_from(os.fsdecode(text))
