"""How ranks that were started separately agree on one folder without talking to each other.

A claim is a symbolic link that need not lead anywhere: making one is atomic on every file system, and its target is
read in one call. It says when, on which host and under which launcher process it was made, and for which run.
"""

import os
import time

from rankscope.record.place import Place, Process, cleaned, hydra_port, launcher_process, process

# Daemons of one job start one after another and clocks differ: a claim from another host may be this much older than
# our own launcher. An unknown launcher (hidden by a process namespace) is taken to have started this long ago.
SLACK_NS = 60 * 10**9
UNKNOWN_AGE_NS = 600 * 10**9
MOST_JOBS_WITH_ONE_KEY = 1000


class Claimant:
    """Who asks: the job as seen from this process."""

    def __init__(self, key: str, host: str, launcher: Process | None, wrapped: bool) -> None:
        self.key = key
        self.host = host
        self.launcher = launcher
        self.wrapped = wrapped  # a shell stands between the launcher and us, so one rank may ask several times

    @property
    def identity(self) -> str:
        return self.launcher.identity if self.launcher else "unknown"

    def oldest_ns(self, host: str) -> int:
        """No claim that our job made on this host can be older."""
        if not self.launcher:
            return time.time_ns() - UNKNOWN_AGE_NS
        return self.launcher.started_ns - (0 if host == self.host else SLACK_NS)


def claimant(place: Place) -> Claimant:
    """The claimant for this place; outside of a launcher every process is a job of its own."""
    host = os.uname().nodename
    if not place.shared:
        return Claimant("", host, process(os.getpid()), False)
    launcher, wrapped = launcher_process(place.marker)
    key = place.job or (hydra_port(launcher.pid) if launcher else "")
    if not key:
        key = f"{host}-{launcher.identity if launcher else 'unknown'}"
    return Claimant(f"{place.launcher}-{key}-{place.ranks}", host, launcher, wrapped)


def agree(paths: list[str], name: str, asking: Claimant) -> tuple[int, str, bool]:
    """The first of these paths that is free or our job's: its index, what is claimed there, and whether we made it."""
    for index, path in enumerate(paths):
        found = claim_at(path)
        if found is None:
            claim = f"{time.time_ns()}|{asking.host}|{asking.identity}|{name}"
            if make(path, claim):
                return index, claim, True
            found = os.readlink(path)
        if is_same_job(found, asking):
            return index, found, False
    raise OSError(f"{paths[0]} and {len(paths) - 1} more are taken by other jobs")


def claim_at(path: str) -> str | None:
    """What is claimed there. Asked first: most ranks come later, and reading takes no lock from the other ranks."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def make(path: str, target: str) -> bool:
    """Make the claim and the folders above it; False if somebody has it already."""
    try:
        os.symlink(target, path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return make_in_folder(path, target)
    return True


def make_in_folder(path: str, target: str) -> bool:
    try:
        os.symlink(target, path)
    except FileExistsError:
        return False
    return True


def named(claim: str) -> str:
    """The run's name in a claim."""
    return claim.split("|", 3)[3]


def is_same_job(claim: str, asking: Claimant) -> bool:
    """Whether a claim with our job's key is our job's, and not that of an earlier one with a recycled key."""
    parts = claim.split("|", 3)
    if len(parts) != 4:
        return False
    made_ns, host, identity, _ = parts
    if not asking.key:
        return False
    if host == asking.host and asking.launcher and (identity == asking.identity or is_alive(identity)):
        return True
    return made_ns.isdigit() and int(made_ns) >= asking.oldest_ns(host)


def is_alive(identity: str) -> bool:
    """Whether that very process still runs (one job may have two launcher daemons on a host)."""
    pid = identity.partition(".")[0]
    found = process(int(pid)) if pid.isdigit() else None
    return found is not None and found.identity == identity


def turn_of(prefix: str, rank: int | None) -> int:
    """How many times this rank has asked, this time included: a script may start several commands in each rank."""
    for turn in range(1, MOST_JOBS_WITH_ONE_KEY):
        if make(f"{prefix}.turn{turn}.rank{rank}", "asked"):
            return turn
    raise OSError(f"{prefix}: more than {MOST_JOBS_WITH_ONE_KEY} commands in one rank")


def given_folder(path: str, place: Place) -> tuple[str, bool, str]:
    """The folder given by --out, or path-2, path-3 … where it already holds the run of another job."""
    folders = [path] + [f"{path}-{n}" for n in range(2, MOST_JOBS_WITH_ONE_KEY)]
    index, claim, created = agree([f"{folder}/.job" for folder in folders], os.path.basename(path), claimant(place))
    return folders[index], created, claim


def agreed_folder(root: str, dated: str, place: Place) -> tuple[str, bool, str]:
    """The one folder of all ranks of this job, and whether this rank is the one to describe it."""
    asking = claimant(place)
    tagged = f"{dated}-{asking.launcher.pid}" if asking.launcher else dated  # apart from a job of the same second
    base = f"{root}/.jobs/{cleaned(asking.key)}"
    _, claim, created = agree(generations(base), tagged, asking)
    if asking.wrapped:
        turn = turn_of(f"{root}/.jobs/{named(claim)}", place.rank)
        if turn > 1:
            _, claim, created = agree(generations(f"{base}.turn{turn}"), f"{tagged}-{turn}", asking)
    name = named(claim)
    if created or not os.path.isdir(f"{root}/{name}"):  # who claims the name makes the folder a moment later
        make_folder(f"{root}/{name}")
    return f"{root}/{name}", created, claim


def generations(base: str) -> list[str]:
    """Where the claims of jobs with this key go, should one key be used again and again."""
    return [base] + [f"{base}.{n}" for n in range(2, MOST_JOBS_WITH_ONE_KEY)]


def make_folder(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        pass
