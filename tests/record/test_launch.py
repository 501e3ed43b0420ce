"""Launchers' command lines: how many ranks, and how our variables reach other nodes."""

import stat
from pathlib import Path

import pytest

from rankscope.record.launchers import expected_ranks, find_launcher, mpi_family, passing_on

ADDED = {"LD_PRELOAD": "/l.so", "RANKSCOPE_DIR": "/r"}
MORE = {
    "LD_PRELOAD": "/l/librankscope.so:/l/librankscope_calls.so:/e.so",
    "PYTHONPATH": "/a:/e",
    "RANKSCOPE_DIR": "/r,1",
}


@pytest.mark.parametrize(
    ("family", "line", "ranks"),
    [
        ("openmpi", "-n 4 python train.py -n 9", 4),
        ("openmpi", "--oversubscribe --mca btl self -x A=1 -np 3 a", 3),
        ("openmpi", "-n 1 server : -n 3 client -n 7", 4),
        ("openmpi", "--map-by ppr:2:node python a", None),
        ("openmpi", "-H a:2,b:2 --np 4 a", 4),
        ("hydra", "-genv A b -ppn 2 -n 8 python -n 5", 8),
        ("hydra", "-hosts a,b python", None),
        ("hydra", "-genv A=1 -n 8 python -n 5", 8),
        ("pals", "-n 24 --ppn 12 --cpu-bind depth -d 8 a", 24),
        ("slurm", "-n4 a", 4),
        ("slurm", "--ntasks=6 -N 2 a -n 3", 6),
        ("slurm", "-N 2 --ntasks-per-node=4 -c 8 --gpus-per-task 1 a", 8),
        ("slurm", "--cpu-bind=none a", 16),
        ("torchrun", "--nproc-per-node=4 --nnodes 2 train.py --nnodes 9", 8),
        ("torchrun", "--nproc_per_node 2 --standalone train.py", 2),
        ("torchrun", "--nproc-per-node=gpu train.py", None),
        ("torchrun", "--nnodes=1:4 --nproc-per-node=8 train.py", None),
    ],
)
def test_expected_ranks(family: str, line: str, ranks: int | None) -> None:
    assert expected_ranks(family, line.split(), {"SLURM_NTASKS": "16"}) == ranks


@pytest.mark.parametrize(
    ("family", "line", "result"),
    [
        ("openmpi", "-n 2 a", "-x LD_PRELOAD -x RANKSCOPE_DIR -n 2 a"),
        ("openmpi", "-n 1 a : -n 1 b", "-x LD_PRELOAD -x RANKSCOPE_DIR -n 1 a : -x LD_PRELOAD -x RANKSCOPE_DIR -n 1 b"),
        ("openmpi", "-x LD_PRELOAD=/u.so -n 2 a", "-x RANKSCOPE_DIR -x LD_PRELOAD=/l.so:/u.so -n 2 a"),
        ("openmpi", "-n 2 a -x LD_PRELOAD=/u.so", "-x LD_PRELOAD -x RANKSCOPE_DIR -n 2 a -x LD_PRELOAD=/u.so"),
        ("hydra", "-n 2 a", "-genv LD_PRELOAD /l.so -genv RANKSCOPE_DIR /r -n 2 a"),
        ("hydra", "-genv LD_PRELOAD /u.so -n 2 a", "-genv RANKSCOPE_DIR /r -genv LD_PRELOAD /l.so:/u.so -n 2 a"),
        (
            "hydra",
            "-n 1 a : -env LD_PRELOAD /u.so b",
            "-genv LD_PRELOAD /l.so -genv RANKSCOPE_DIR /r -n 1 a : -env LD_PRELOAD /l.so:/u.so b",
        ),
        ("pals", "-n 2 a", "--env LD_PRELOAD=/l.so --env RANKSCOPE_DIR=/r -n 2 a"),
        ("slurm", "-n 2 a", "-n 2 a"),
        ("slurm", "--export=ALL -n 2 a", "--export=ALL -n 2 a"),
        ("slurm", "--export=PATH -n 2 a", "--export=PATH,LD_PRELOAD,RANKSCOPE_DIR -n 2 a"),
        ("slurm", "-n 2 --export NONE a", "-n 2 --export=LD_PRELOAD,RANKSCOPE_DIR a"),
        ("slurm", "--export=NIL a", "--export=LD_PRELOAD,RANKSCOPE_DIR a"),
        ("slurm", "--export=LD_PRELOAD=/u.so a", "--export=LD_PRELOAD=/l.so:/u.so,RANKSCOPE_DIR a"),
        ("slurm", "--export=A='b,c',D a", "--export=A='b,c',D,LD_PRELOAD,RANKSCOPE_DIR a"),
        (
            "hydra",
            "-genv A=1 -genv LD_PRELOAD=/u.so -n 2 a",
            "-genv RANKSCOPE_DIR /r -genv A=1 -genv LD_PRELOAD=/l.so:/u.so -n 2 a",
        ),
        ("pals", "--env LD_PRELOAD=/u.so -n 2 a", "--env RANKSCOPE_DIR=/r --env LD_PRELOAD=/l.so:/u.so -n 2 a"),
        ("pals", "--env=RANKSCOPE_DIR=/u -n 2 a", "--env LD_PRELOAD=/l.so --env=RANKSCOPE_DIR=/u -n 2 a"),
        ("torchrun", "--standalone a", "--standalone a"),
    ],
)
def test_passing_on(family: str, line: str, result: str) -> None:
    assert passing_on(family, line.split(), dict(ADDED), {}) == result.split()


def test_slurm_variable_that_drops_the_environment() -> None:
    result = passing_on("slurm", ["a"], dict(ADDED), {"SLURM_EXPORT_ENV": "NONE"})
    assert result == ["--export=LD_PRELOAD,RANKSCOPE_DIR", "a"]


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("openmpi", "-x {0} -x {1} a"),
        ("hydra", "-genv {0} -genv {1} a"),
        ("pals", "--env {0} --env {1} a"),
        ("slurm", "--export={0},{1} a"),
    ],
)
def test_what_the_user_gives_to_the_ranks_stays_behind_ours(family: str, given: str) -> None:
    line = given.format("PYTHONPATH=/u", "LD_PRELOAD=/u.so").split()
    result = " ".join(passing_on(family, line, dict(MORE), {"PYTHONPATH": "/e", "LD_PRELOAD": "/e.so"}))
    assert "PYTHONPATH=/a:/u" in result and "/e" not in result
    assert "LD_PRELOAD=/l/librankscope.so:/l/librankscope_calls.so:/u.so" in result


@pytest.mark.parametrize(("environment", "value"), [({}, "/a:/u"), ({"PYTHONPATH": "/e"}, "/a:/e")])
def test_srun_s_environment_counts_for_more_than_its_list(environment: dict[str, str], value: str) -> None:
    added = dict(MORE)
    assert passing_on("slurm", ["--export=ALL,PYTHONPATH=/u", "a"], added, environment) == ["--export=ALL", "a"]
    assert added["PYTHONPATH"] == value


def test_a_comma_in_a_path_is_not_put_into_srun_s_list() -> None:
    added = {"LD_PRELOAD": "/l,1.so", "RANKSCOPE_DIR": "/r,1"}
    assert passing_on("slurm", ["--export=LD_PRELOAD=/u.so", "a"], added, {}) == [
        "--export=LD_PRELOAD,RANKSCOPE_DIR",
        "a",
    ]
    assert added == {"LD_PRELOAD": "/l,1.so:/u.so", "RANKSCOPE_DIR": "/r,1"}


@pytest.mark.parametrize(
    ("command", "family", "begin"),
    [
        ("/usr/bin/srun a", "slurm", 1),
        ("/x/torchrun a", "torchrun", 1),
        ("/x/python3.11 -u -m torch.distributed.run --nnodes 1 a", "torchrun", 4),
        ("/x/python3 train.py -m x", "", 0),
        ("/x/env mpirun", "", 1),
        ("/x/orterun -n 2 a", "openmpi", 1),
    ],
)
def test_find_launcher(command: str, family: str, begin: int) -> None:
    words = command.split()
    assert find_launcher(words[0], words) == (family, begin)


@pytest.mark.parametrize(
    ("content", "family"),
    [
        ('#!/bin/sh\nexec mpiexec.hydra "$@"\n', "hydra"),
        ("\x7fELF prterun", "openmpi"),
        ("PALS hydra", "pals"),
        ("nothing", ""),
    ],
)
def test_family_by_content(tmp_path: Path, content: str, family: str) -> None:
    program = tmp_path / "mpirun"
    program.write_text(content)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert mpi_family(str(program)) == family


def test_family_by_the_file_behind_the_link(tmp_path: Path) -> None:
    (tmp_path / "orterun").write_text("x")
    (tmp_path / "mpirun").symlink_to("orterun")
    assert mpi_family(str(tmp_path / "mpirun")) == "openmpi"
