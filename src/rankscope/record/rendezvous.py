"""How ranks that were started separately agree on one folder without talking to each other.

A claim is a symbolic link that need not lead anywhere: making one is atomic on every file system, and its target is
read in one call. It says when, on which host and under which launcher process it was made, and for which run.
"""

import os
import time

from rankscope.record.place import Place, ProcessIdentity, cleaned, hydra_port, launcher_process, process, rank_process

# Daemons of one job start one after another and clocks differ: a claim from another host may be this much older than
# our own launcher. An unknown launcher (hidden by a process namespace) is taken to have started this long ago.
SLACK_NS = 60 * 10**9
UNKNOWN_AGE_NS = 600 * 10**9
MOST_JOBS_WITH_ONE_KEY = 1000
JOB = "job "  # in a folder given by --out the claim says whose it is, where the launcher has a name for it
# Ranks started one by one. On other hosts nobody can see whether a rank still runs: torch's ranks wait for each other
# for at most half an hour. On this host ranks that have all ended count a moment longer: they may have failed at once.
LONGEST_MEETING_NS = 1800 * 10**9
ENDED_AT_ONCE_NS = 10 * 10**9


class Claimant:
    """Who asks: the job as seen from this process."""

    def __init__(self, key: str, host: str, launcher: ProcessIdentity | None, wrapped: bool, job: str = "") -> None:
        self.key = key
        self.job = job  # what the launcher calls it on every host, "" where it has no name for it
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
    named = f"{place.launcher}-{key}-{place.ranks}" if key else ""
    if not key:
        key = f"{host}-{launcher.identity if launcher else 'unknown'}"
    return Claimant(f"{place.launcher}-{key}-{place.ranks}", host, launcher, wrapped, named)


def agree(paths: list[str], name: str, asking: Claimant) -> tuple[int, str, bool]:
    """The first of these paths that is free or our job's: its index, what is claimed there, and whether we made it."""
    for index, path in enumerate(paths):
        holder = claim_at(path)
        if holder is None:
            claim = f"{time.time_ns()}|{asking.host}|{asking.identity}|{name}"
            if make(path, claim):
                return index, claim, True
            holder = os.readlink(path)
        if is_same_job(holder, asking):
            return index, holder, False
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


def is_same_job(claim: str, asking: Claimant) -> bool:
    """Whether a claim with our job's key is our job's, and not that of an earlier one with a recycled key."""
    parts = claim.split("|", 3)
    if len(parts) != 4:
        return False
    made_ns, host, identity, name = parts
    if not asking.key or (name.startswith(JOB) and asking.job and name != JOB + asking.job):
        return False
    if host == asking.host and asking.launcher and (identity == asking.identity or is_alive(identity)):
        return True
    return made_ns.isdigit() and int(made_ns) >= asking.oldest_ns(host)


def is_alive(identity: str) -> bool:
    """Whether that very process still runs (one job may have two launcher daemons on a host)."""
    pid = identity.partition(".")[0]
    process_identity = process(int(pid)) if pid.isdigit() else None
    return process_identity is not None and process_identity.identity == identity


def turn_of(prefix: str, rank: int | None) -> int:
    """How many times this rank has asked, this time included: a script may start several commands in each rank."""
    for turn in range(1, MOST_JOBS_WITH_ONE_KEY):
        if make(f"{prefix}.turn{turn}.rank{rank}", "asked"):
            return turn
    raise OSError(f"{prefix}: more than {MOST_JOBS_WITH_ONE_KEY} commands in one rank")


class Member:
    """One rank of a job that has no launcher: who it is, and where one can see whether it runs.

    Two jobs with one address and port are told apart by their ranks: in a job each rank asks once. A rank that asks
    again belongs to the next one, and so do those who come after it.
    """

    def __init__(self, place: Place) -> None:
        self.rank = place.rank
        self.key = f"environment-{place.job}-{place.ranks}"
        self.host = f"{os.uname().nodename}.{pid_namespace()}"
        process_identity = rank_process(place.rank)
        self.identity = process_identity.identity if process_identity else "unknown"

    def joins(self, claims: list[str], names: list[str]) -> tuple[int, str, bool]:
        """Which of these claims is our job's, what it says, and whether we made it, by the name beside it."""
        claimed, turn = self.claimed(claims)
        for index in range(len(claimed) - 1, -1, -1):
            if self.is_ours(claimed[index], turn):
                if self.is_open(claims[index], claimed[index]) and self.enters(claims[index]):
                    return index, claimed[index], False
                break
        for index in range(len(claimed), len(claims)):
            mine = make(claims[index], f"{time.time_ns()}|{self.host}|{self.identity}.{turn}|{names[index]}")
            claim = os.readlink(claims[index])
            if self.is_ours(claim, turn) and self.enters(claims[index]):
                return index, claim, mine
        raise OSError(f"{claims[0]} and {len(claims) - 1} more are taken by other jobs")

    def claimed(self, claims: list[str]) -> tuple[list[str], int]:
        """The claims that are there, and the number of this command among those of our rank's process."""
        claimed: list[str] = []
        turn = 1
        for path in claims:
            claim = claim_at(path)
            if claim is None:
                break
            claimed.append(claim)
            turn += (claim_at(f"{path}-ranks/{self.rank}") or "").split("|")[1:] == [self.host, self.identity]
        return claimed, turn

    def is_ours(self, claim: str, turn: int) -> bool:
        """Whether it has our key, and is for the same command of those that a script starts in each rank."""
        _, _, identity, name = split_claim(claim)
        return identity.endswith(f".{turn}") and (not name.startswith(JOB) or name == JOB + self.key)

    def enters(self, claim: str) -> bool:
        """Take our rank's seat; False if it was taken before."""
        return make(f"{claim}-ranks/{self.rank}", f"{time.time_ns()}|{self.host}|{self.identity}")

    def is_open(self, path: str, claim: str) -> bool:
        """Whether the job that made this claim still gathers its ranks; seats come last: they are many."""
        made_ns, host, identity, _ = split_claim(claim)
        age_ns = time.time_ns() - made_ns
        if host != self.host:
            return age_ns < LONGEST_MEETING_NS
        if age_ns < ENDED_AT_ONCE_NS or is_alive(identity.rpartition(".")[0]):
            return True
        return any(self.may_run(seat, age_ns) for seat in seats_at(path))

    def may_run(self, seat: str, age_ns: int) -> bool:
        _, host, identity = seat.split("|")
        return is_alive(identity) if host == self.host else age_ns < LONGEST_MEETING_NS


def split_claim(claim: str) -> tuple[int, str, str, str]:
    """Its parts; those of a damaged one, or one that another version made, are of no job."""
    parts = claim.split("|", 3)
    if len(parts) != 4 or not parts[0].isdigit():
        return 0, "", "", ""
    return int(parts[0]), parts[1], parts[2], parts[3]


def seats_at(claim: str) -> list[str]:
    try:
        return [os.readlink(f"{claim}-ranks/{name}") for name in os.listdir(f"{claim}-ranks")]
    except FileNotFoundError:
        return []


def pid_namespace() -> str:
    """Containers of one host may share its name; process ids of another one say nothing here."""
    try:
        return "".join(letter for letter in os.readlink("/proc/self/ns/pid") if letter.isdigit())
    except OSError:
        return "unknown"


def given_folder(path: str, place: Place) -> tuple[str, bool, str]:
    """The folder given by --out, or path-2, path-3 … where it already holds the run of another job."""
    folders = [path] + [f"{path}-{n}" for n in range(2, MOST_JOBS_WITH_ONE_KEY)]
    claims = [f"{folder}/.job" for folder in folders]
    if place.shared and place.one_by_one:
        member = Member(place)
        index, claim, created = member.joins(claims, [JOB + member.key] * len(claims))
    else:
        asking = claimant(place)
        index, claim, created = agree(claims, JOB + asking.job, asking)
    return folders[index], created, claim


def agreed_folder(root: str, dated: str, place: Place) -> tuple[str, bool, str]:
    """The one folder of all ranks of this job, and whether this rank is the one to describe it."""
    if place.one_by_one:
        member = Member(place)
        claims = generations(f"{root}/.jobs/{cleaned(member.key)}")
        _, claim, created = member.joins(claims, generations(f"{dated}-{cleaned(place.job)}"))
        make_folder(f"{root}/{split_claim(claim)[3]}")
        return f"{root}/{split_claim(claim)[3]}", created, claim
    asking = claimant(place)
    tagged = f"{dated}-{asking.launcher.pid}" if asking.launcher else dated  # apart from a job of the same second
    base = f"{root}/.jobs/{cleaned(asking.key)}"
    _, claim, created = agree(generations(base), tagged, asking)
    if asking.wrapped:
        turn = turn_of(f"{root}/.jobs/{split_claim(claim)[3]}", place.rank)
        if turn > 1:
            _, claim, created = agree(generations(f"{base}.turn{turn}"), f"{tagged}-{turn}", asking)
    name = split_claim(claim)[3]
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
