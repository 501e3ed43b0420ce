"""Ranks that are started separately find one folder; two jobs never share one."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from rankscope.record.place import ProcessIdentity, find_place, process
from rankscope.record.rendezvous import Claimant, Member, is_same_job

SHOW = ("sh", "-c", "echo $RANKSCOPE_DIR")


def rank_environment(rank: int, ranks: int, job: str) -> dict[str, str]:
    return {
        **os.environ,
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(ranks),
        "PMIX_NAMESPACE": job,
    }


@pytest.mark.parametrize("out", [(), ("--out", "chosen")])
def test_fifty_ranks_at_once_agree(rankscope: str, work: Path, out: tuple[str, ...]) -> None:
    processes = [
        subprocess.Popen(
            [rankscope, "run", *out, *SHOW],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=rank_environment(rank, 50, "race"),
        )
        for rank in range(50)
    ]
    outputs = [process.communicate(timeout=60) for process in processes]
    [folder] = {output for output, _ in outputs}
    about = json.loads((Path(os.fsdecode(folder).strip()) / "run.json").read_text())
    assert about["expected_ranks"] == 50 and about["launcher"] == "openmpi"
    assert not any(errors for _, errors in outputs)


def under_new_launcher(rankscope: str, work: Path, job: str, *options: str, times: int = 1) -> list[str]:
    """Two ranks, started by a process of their own that stands for the launcher's daemon."""
    command = f"{rankscope} run --quiet {' '.join(options)} sh -c 'echo $RANKSCOPE_DIR'"
    names = "OMPI_COMM_WORLD_RANK={0} OMPI_COMM_WORLD_LOCAL_RANK={0} OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE={1}"
    ranks = [f"env {names.format(rank, job)} {command}" for rank in range(2)]
    if times > 1:  # a shell in each rank that starts the command several times
        ranks = [
            f'env {names.format(rank, job)} sh -c "{"; ".join([command.replace("$", chr(92) + "$")] * times)}"'
            for rank in range(2)
        ]
    done = subprocess.run(["sh", "-c", "; ".join(ranks) + "; true"], cwd=work, capture_output=True, text=True)
    return done.stdout.split()


def test_a_key_that_is_used_again(rankscope: str, work: Path) -> None:
    first = under_new_launcher(rankscope, work, "same")
    second = under_new_launcher(rankscope, work, "same")
    assert len(first) == len(second) == 2
    assert len(set(first)) == len(set(second)) == 1 and set(first) != set(second)


def test_a_folder_that_is_used_again(rankscope: str, work: Path) -> None:
    first = under_new_launcher(rankscope, work, "same", "--out", "prof")
    second = under_new_launcher(rankscope, work, "same", "--out", "prof")
    assert set(first) == {f"{work}/prof"} and set(second) == {f"{work}/prof-2"}


def test_several_commands_in_one_rank(rankscope: str, work: Path) -> None:
    folders = under_new_launcher(rankscope, work, "turns", times=3)
    assert len(folders) == 6 and folders[:3] == folders[3:] and len(set(folders)) == 3


def test_single_rank_always_gets_a_new_folder(rankscope: str, work: Path) -> None:
    environment = rank_environment(0, 1, "single")
    folders = {
        subprocess.run([rankscope, "run", *SHOW], cwd=work, env=environment, capture_output=True).stdout
        for _ in range(3)
    }
    assert len(folders) == 3


def claim(made_ns: int, host: str, identity: str = "1.1") -> str:
    return f"{made_ns}|{host}|{identity}|name"


def test_claims_of_other_hosts_are_judged_by_their_time() -> None:
    launcher = process(os.getpid())
    assert launcher
    asking = Claimant("key", "here", launcher, False)
    assert is_same_job(claim(launcher.started_ns + 10**9, "there"), asking)
    assert is_same_job(claim(launcher.started_ns - 30 * 10**9, "there"), asking)  # its daemon was faster
    assert not is_same_job(claim(launcher.started_ns - 120 * 10**9, "there"), asking)
    assert not is_same_job("damaged", asking)


def test_claims_of_this_host_are_judged_by_their_launcher() -> None:
    launcher, parent = process(os.getpid()), process(os.getppid())
    assert launcher and parent
    asking = Claimant("key", "here", launcher, False)
    long_ago_ns = launcher.started_ns - 10**12
    assert is_same_job(claim(long_ago_ns, "here", launcher.identity), asking)
    assert is_same_job(claim(long_ago_ns, "here", parent.identity), asking)  # a second daemon, still alive
    recycled = ProcessIdentity(parent.pid, parent.start_ticks + 1)
    assert not is_same_job(claim(long_ago_ns, "here", recycled.identity), asking)


def one_by_one(rank: int, ranks: int, port: int = 29500, **more: str) -> dict[str, str]:
    """The variables of a rank that no launcher started."""
    ours = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {**os.environ, **ours, **more}


class Ranks:
    """Ranks that are started one by one and stay until they are told to end."""

    def __init__(self, rankscope: str, work: Path, *options: str) -> None:
        self.command = [rankscope, "run", *options, "sh", "-c", "echo $RANKSCOPE_DIR; read word"]
        self.work = work
        self.running: list[subprocess.Popen[str]] = []

    def start(self, environment: dict[str, str]) -> Path:
        """The folder of its run."""
        started = subprocess.Popen(
            self.command,
            cwd=self.work,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.running.append(started)
        assert started.stdout
        return Path(started.stdout.readline().strip())

    def end(self) -> None:
        for started in self.running:
            started.communicate("end\n", timeout=30)
        self.running = []


@pytest.mark.parametrize("out", [(), ("--out", "chosen")])
def test_ranks_started_one_by_one_are_one_job(rankscope: str, work: Path, out: tuple[str, ...]) -> None:
    jobs = Ranks(rankscope, work, *out)
    first = {jobs.start(one_by_one(rank, 4)) for rank in (2, 0, 3, 1)}
    jobs.end()
    second = {jobs.start(one_by_one(rank, 4)) for rank in (1, 3, 0, 2)}  # the same port again, at once
    jobs.end()
    assert len(first) == len(second) == 1 and first != second
    for [folder] in (first, second):
        about = json.loads((folder / "run.json").read_text())
        assert (about["launcher"], about["expected_ranks"]) == ("environment", 4)


@pytest.mark.parametrize("out", [(), ("--out", "chosen")])
def test_jobs_with_other_ports_run_beside_each_other(rankscope: str, work: Path, out: tuple[str, ...]) -> None:
    jobs = Ranks(rankscope, work, *out)
    found = [(port, jobs.start(one_by_one(rank, 2, port))) for rank in range(2) for port in (29501, 29502)]
    jobs.end()
    assert len({folder for _, folder in found}) == 2 == len(set(found))


def test_a_rank_that_is_started_again_begins_a_new_run(rankscope: str, work: Path) -> None:
    jobs = Ranks(rankscope, work, "--out", "chosen")
    assert {jobs.start(one_by_one(rank, 3)) for rank in range(3)} == {work / "chosen"}
    restarted = [jobs.start(one_by_one(rank, 3)) for rank in (1, 0, 2)]  # while the first three still run
    jobs.end()
    assert restarted == [work / "chosen-2"] * 3


def test_ranks_of_a_job_that_failed_are_not_joined(rankscope: str, work: Path) -> None:
    jobs = Ranks(rankscope, work, "--out", "chosen")
    jobs.start(one_by_one(0, 2))  # its rank 1 never comes
    jobs.end()
    claim = work / "chosen" / ".job"
    made_ns, rest = os.readlink(claim).split("|", 1)
    claim.unlink()
    claim.symlink_to(f"{int(made_ns) - 11 * 10**9}|{rest}")  # eleven seconds ago
    assert [jobs.start(one_by_one(rank, 2)) for rank in (1, 0)] == [work / "chosen-2"] * 2
    jobs.end()


def test_twenty_ranks_without_a_launcher_agree_at_once(rankscope: str, work: Path) -> None:
    jobs = [
        subprocess.Popen(
            [rankscope, "run", *SHOW], cwd=work, env=one_by_one(rank, 20), stdout=subprocess.PIPE, text=True
        )
        for rank in range(20)
    ]
    assert len({job.communicate(timeout=60)[0] for job in jobs}) == 1


def test_a_script_in_each_rank_gets_a_run_for_each_command(rankscope: str, work: Path) -> None:
    script = f"for n in 1 2; do {rankscope} run sh -c 'echo $RANKSCOPE_DIR'; done; read word"
    jobs, folders = [], []
    for rank in range(2):  # the first is through with both before the second begins
        jobs.append(
            subprocess.Popen(
                ["sh", "-c", script],
                cwd=work,
                env=one_by_one(rank, 2),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        out = jobs[-1].stdout
        assert out
        folders.append([out.readline() for _ in range(2)])
    for job in jobs:
        job.communicate("end\n", timeout=30)
    assert folders[0] == folders[1] and len(set(folders[0])) == 2


def test_on_another_host_the_age_of_the_claim_counts(tmp_path: Path) -> None:
    member = Member(find_place(one_by_one(1, 2)))
    for seconds, joined in ((3600, (1, "new", True)), (600, (0, "theirs", False))):
        paths = [str(tmp_path / f"{seconds}.{n}") for n in range(2)]
        os.symlink(f"{time.time_ns() - seconds * 10**9}|elsewhere.7|12.34.1|theirs", paths[0])
        index, claim, created = member.joins(paths, ["", "new"])
        assert (index, claim.split("|")[3], created) == joined


def test_two_mpi_jobs_at_once_do_not_mix(rankscope: str, work: Path) -> None:
    jobs = Ranks(rankscope, work, "--out", "chosen")
    found = [(job, jobs.start(rank_environment(rank, 2, job))) for rank in range(2) for job in ("one", "two")]
    jobs.end()
    assert len({folder for _, folder in found}) == 2 == len(set(found))
