"""A bundle that is not what was packed is never used, and where nothing can be staged the job runs in place."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope.record.place import Place
from rankscope.record.rendezvous import claimant
from rankscope.stage.bundle import HEADER_BYTES, BadBundle, open_bundle, read_header
from rankscope.stage.node import open_folder
from rankscope.stage.node_daemon import Keeper
from rankscope.stage.task import StageOutcome, StageTask
from stage.conftest import make_environment
from stage.jobs import Environment, copies, python, stage, staged_folder

RAN = "import alpha, sys; print(sys.prefix); sys.exit(4)"


def brought(bundle: Path, place: Path) -> StageOutcome:
    """What a node's keeper makes of this bundle."""
    task = StageTask(str(bundle), open_folder(str(place)), claimant(Place()), Place())
    task.job = "job"
    task.check = "none"
    reader, writer = os.pipe()
    keeper = Keeper(task, f"{task.folder}/job-x", writer)
    try:
        return keeper.try_to_bring()
    finally:
        keeper.drop_bundle()
        os.close(reader)
        os.close(writer)


@pytest.fixture
def quick_place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: thousands of copies are begun there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A bundle of a few KiB, so that every byte can be tried."""
    folder = tmp_path_factory.mktemp("small") / "env"
    (folder / "lib").mkdir(parents=True)
    for number in range(4):
        (folder / "lib" / f"file{number}").write_text("content\n" * (number + 1))
    made = Environment(folder, folder / "lib", folder.parent / "small.bundle")
    assert stage(made, "--all", command=[]).returncode == 0
    return made


def test_the_same_files_give_the_same_bytes(small: Environment, tmp_path: Path) -> None:
    again = Environment(small.folder, small.packages, tmp_path / "again.bundle")
    assert stage(again, "--all", command=[]).returncode == 0
    assert again.bundle.read_bytes() == small.bundle.read_bytes()


def test_people_can_look_into_it(small: Environment) -> None:
    listed = subprocess.run(["tar", "tf", small.bundle], capture_output=True, text=True, check=True).stdout.split()
    assert listed == ["rankscope-bundle", *(f"env/lib/file{number}" for number in range(4)), "manifest.json"]


def test_every_single_byte_counts(small: Environment, tmp_path: Path, quick_place: Path) -> None:
    """Header (each byte), content, manifest, the tar's own headers, padding and end (every seventh) changed in turn."""
    whole = small.bundle.read_bytes()
    assert brought(small.bundle, tmp_path / "whole").copy
    changed, used = quick_place / "changed.bundle", []
    for at in [*range(HEADER_BYTES), *range(HEADER_BYTES, len(whole), 7), len(whole) - 1]:
        changed.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        outcome = brought(changed, quick_place)
        if outcome.copy or "is refused" not in outcome.reason:
            used.append((at, outcome.reason))
    assert used == []
    left = os.listdir(staged_folder(quick_place))
    assert [name for name in left if not name.startswith(("gate", "build-"))] == []


def test_every_length_but_its_own_is_refused(small: Environment, tmp_path: Path) -> None:
    whole = small.bundle.read_bytes()
    cut = tmp_path / "cut.bundle"
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        assert "is refused" in brought(cut, tmp_path / "node").reason
    cut.write_bytes(whole + b"\0")
    assert "added to" in brought(cut, tmp_path / "node").reason


def test_another_file_is_no_bundle(tmp_path: Path) -> None:
    for content in (b"", b"x" * 5000, bytes(5000)):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(BadBundle):
            open_bundle(str(tmp_path / "other"))


def change_header(content: bytearray) -> None:
    content[600] ^= 1


def change_content(content: bytearray) -> None:
    content[HEADER_BYTES + 700] ^= 1


def change_manifest(content: bytearray) -> None:
    content[read_header(bytes(content)).manifest_at + 700] ^= 1


def cut_off(content: bytearray) -> None:
    del content[len(content) // 2 :]


@pytest.mark.parametrize("harm", [change_header, change_content, change_manifest, cut_off])
def test_the_job_runs_in_place_with_one_line_said(
    environment: Environment, tmp_path: Path, harm: Callable[[bytearray], None]
) -> None:
    content = bytearray(environment.bundle.read_bytes())
    harm(content)
    (tmp_path / "bad.bundle").write_bytes(content)
    bad = Environment(environment.folder, environment.packages, tmp_path / "bad.bundle")
    done = stage(bad, "--to", tmp_path, command=python(RAN))
    assert (done.returncode, done.stdout) == (4, f"{environment.folder}\n")
    assert done.stderr.count("\n") == 1 and "bad.bundle is refused" in done.stderr, done.stderr
    strict = stage(bad, "--to", tmp_path, "--strict", command=python(RAN))
    assert (strict.returncode, strict.stdout) == (3, "")
    assert copies(tmp_path) == []


@pytest.mark.parametrize("missing", ["bundle", "place", "identity"])
def test_other_reasons_to_run_in_place(environment: Environment, tmp_path: Path, missing: str) -> None:
    (tmp_path / "file").touch()
    bundle = tmp_path / "none.bundle" if missing == "bundle" else environment.bundle
    own = Environment(environment.folder, environment.packages, bundle)
    place = tmp_path / "file" / "below" if missing == "place" else tmp_path
    expected = ["--expect", "0123"] if missing == "identity" else []
    done = stage(own, "--to", place, *expected, command=python(RAN))
    assert (done.returncode, done.stdout) == (4, f"{environment.folder}\n")
    words = {"bundle": "--record", "place": "--to", "identity": "not 0123"}
    assert done.stderr.count("\n") == 1 and words[missing] in done.stderr, done.stderr


def test_a_full_place(environment: Environment, tmp_path: Path) -> None:
    """On a file system of its own with almost no room, where one can be had."""
    (tmp_path / "node").mkdir()
    script = f'mount -t tmpfs -o size=40k tmpfs "{tmp_path}/node" || exit 99; shift 0; exec "$@"'
    inner = ["sh", "-c", script, "sh"]
    from stage.jobs import clean_variables, words

    done = subprocess.run(
        ["unshare", "-Urm", *inner, *words(environment, "--to", tmp_path / "node", command=python(RAN))],
        env=clean_variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or done.returncode == 99:
        pytest.skip(f"no file system of one's own here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (4, f"{environment.folder}\n")
    assert done.stderr.count("\n") == 1 and "MiB free" in done.stderr


def install(packages: Path) -> None:
    (packages / "new_package").mkdir()


def remove(packages: Path) -> None:
    (packages / "gamma.py").unlink()


def replace(packages: Path) -> None:
    """As an editor does: written beside, then renamed."""
    (packages / "alpha" / "near.py~").write_text("WHERE = 'elsewhere'\n")
    (packages / "alpha" / "near.py~").rename(packages / "alpha" / "near.py")


@pytest.mark.parametrize("change", [install, remove, replace])
def test_an_environment_that_changed_is_noticed(
    own_environment: Environment, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(own_environment.packages)
    done = stage(own_environment, "--to", tmp_path, command=python("import sys; print(sys.prefix)"))
    assert (done.returncode, done.stdout) == (0, f"{own_environment.folder}\n")
    assert done.stderr.count("\n") == 1 and "has changed since" in done.stderr


def test_compiling_a_module_is_no_change(own_environment: Environment, tmp_path: Path) -> None:
    """Python makes a folder for bytecode beside a module that is imported for the first time, in place."""
    assert stage(own_environment, "--in-place", command=python("import gamma, alpha.deep")).returncode == 0
    assert (own_environment.packages / "__pycache__").is_dir()
    done = stage(own_environment, "--to", tmp_path, command=python("import sys, gamma; print(sys.prefix)"))
    assert done.stderr == "" and done.stdout.startswith(str(staged_folder(tmp_path)))


def test_a_file_edited_in_place_is_noticed_by_the_full_check(own_environment: Environment, tmp_path: Path) -> None:
    with open(own_environment.packages / "alpha/near.py", "a") as file:
        file.write("WHERE = 'edited'\n")
    for check, said in (("quick", ""), ("full", "has changed since")):
        done = stage(own_environment, "--to", tmp_path, "--check", check, command=python("import alpha"))
        assert done.returncode == 0
        assert said in done.stderr and bool(said) == bool(done.stderr)


def test_a_rehearsal_that_fails_packs_nothing(tmp_path: Path) -> None:
    made = make_environment(tmp_path / "env")
    done = stage(made, "--record", "--no-base", command=python("import missing_module"))
    assert done.returncode == 1 and "exit code 1" in done.stderr
    assert not made.bundle.exists() and not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize(
    "arguments",
    [["--wrong"], ["--to"], ["--check", "much"], ["--patience", "long"], ["env", "other"], [], ["--compare"]],
)
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "stage", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_a_hostile_manifest_cannot_write_elsewhere(small: Environment, tmp_path: Path) -> None:
    """A bundle that seals paths which lead out of the copy is refused before anything is written."""
    from rankscope.stage import build_bundle
    from rankscope.stage.contents import choose, lay_out
    from rankscope.stage.roots import find_roots

    for wicked in ("../outside", "/tmp/outside", "env/../../outside", "env/lib/./x", ""):
        choice = choose(find_roots(str(small.folder), [], False), {}, [], True)
        tree = lay_out(choice)
        tree.files[0].path = wicked
        with open(tmp_path / "wicked.bundle", "wb") as file:
            build_bundle.write_bundle(file, choice, tree, False, {})
        assert "is refused" in brought(tmp_path / "wicked.bundle", tmp_path / "node").reason
    choice = choose(find_roots(str(small.folder), [], False), {}, [], True)
    tree = lay_out(choice)
    tree.links.append(("env/out", str(tmp_path), "i"))
    tree.files[0].path = "env/out/written"
    with open(tmp_path / "wicked.bundle", "wb") as file:
        build_bundle.write_bundle(file, choice, tree, False, {})
    assert "leads nowhere" in brought(tmp_path / "wicked.bundle", tmp_path / "node").reason
    assert not (tmp_path / "written").exists()
    shutil.rmtree(tmp_path / "node")
