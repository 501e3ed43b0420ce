"""Each rule names its cause with evidence and an action, and is silent where it should be."""

from __future__ import annotations

from rankscope.questions.imports.offenders.lookups import listing_storm, loader_search, realpath_storm, useless_search
from rankscope.questions.imports.offenders.modules import (
    dominant_module,
    metadata_scan,
    missing_bytecode,
    started_programs,
)
from rankscope.questions.imports.offenders.offender import Offender
from rankscope.questions.imports.offenders.table import RULES, import_offenders
from rankscope.questions.imports.search import import_loader, import_search, passes, search_entries
from runs.import_runs import HandFilled, small_run


def app() -> HandFilled:
    made = HandFilled()
    made.process()
    made.module(1, 0, "app", 100, 100)
    return made


def only(found: list[Offender]) -> Offender:
    (one,) = found
    assert one.action and one.evidence and one.calls
    return one


def loader_run(library_path: str) -> HandFilled:
    """31 directories are asked for 9 libraries; the last one holds them all."""
    run = app()
    run.query("UPDATE run SET library_path = ?", [library_path])
    for folder in range(31):
        for library in range(9):
            result = "ok" if folder == 30 else "ENOENT"
            run.path(1, "loader", "open", f"/opt/d{folder}/libx{library}.so.1", result=result)
    run.path(1, "loader", "open", "/etc/ld.so.cache")
    run.path(1, "loader", "open", "/opt/d0/glibc-hwcaps/x86-64-v3/libx0.so.1", result="ENOENT")
    return run


def test_loader_told_by_the_environment() -> None:
    run = loader_run(":".join(f"/opt/d{folder}" for folder in range(31)))
    one = only(loader_search(run))
    assert one.title.startswith("The dynamic loader searches 31 directories for 9 libraries: 271 lookups ")
    assert one.action == "shorten LD_LIBRARY_PATH to the directories that hold something: /opt/d30"
    assert one.calls == 271 and one.without == "ld-library-path"
    table = import_loader(run)
    assert table.rows[0] == ("/opt/d0", "LD_LIBRARY_PATH", 10, 10, 0, 9, "app")


def test_loader_told_by_the_libraries() -> None:
    one = only(loader_search(loader_run("")))
    assert one.action.startswith("set LD_LIBRARY_PATH=/opt/d30 for this job") and one.without == ""
    told = {f"/opt/d{folder}": "RPATH of libbig.so" for folder in range(31)}
    one = only(loader_search(loader_run(""), told))
    assert one.action.startswith("shorten the RPATH of libbig.so with patchelf --set-rpath: RPATH goes before")
    assert import_loader(loader_run(""), origins=told).rows[0][:2] == ("/opt/d0", "RPATH of libbig.so")


def test_libraries_that_are_nowhere() -> None:
    run = app()
    for folder in range(10):
        for plugin in range(12):
            run.path(1, "loader", "open", f"/opt/d{folder}/libp{plugin}-fi.so", result="ENOENT")
    one = only(loader_search(run))
    assert one.rule == "absent_libraries" and one.calls == 120
    assert one.title == "12 libraries are looked for in 10 directories and are nowhere: 120 lookups"
    assert "libp0-fi.so" in one.evidence[0] and "app" in one.action


def test_loader_that_finds_at_once_is_no_offender() -> None:
    run = app()
    for library in range(200):
        run.path(1, "loader", "open", f"/lib/liby{library}.so")
    assert loader_search(run) == []


def test_chains_from_the_root_are_told_from_single_questions() -> None:
    found = passes({"/a": 10, "/a/b": 10, "/a/b/x.py": 6, "/a/b/y.py": 4, "/c/d": 99, "/e": 50})
    assert found == {"/a": 10, "/a/b": 10, "/a/b/x.py": 6, "/a/b/y.py": 4, "/e": 0}
    assert passes({"/a": 2, "/a/b": 100}) == {"/a": 2, "/a/b": 2}


def test_realpath_storm() -> None:
    run = app()
    for path in ("/opt", "/opt/env", "/opt/env/lib"):
        run.path(1, "module", "stat", path, 200)
    for module in range(100):
        run.path(1, "module", "stat", f"/opt/env/lib/m{module}.py", 2)
    run.path(1, "search", "stat", "/opt/env/lib/m1.py", 900)
    assert only(realpath_storm(run)).calls == 800
    run.path(1, "module", "readlink", "/opt/env", 200)
    assert only(realpath_storm(run)).calls == 1000
    run.query("DELETE FROM paths WHERE operation = 'readlink'")
    one = only(realpath_storm(run))
    assert one.title == "Paths are resolved link by link: 800 calls ask for 103 distinct paths"
    assert one.calls == 800 and one.without == "realpath" and "app: 800 calls, 103 paths" in one.evidence[0]


def test_many_stats_of_files_are_no_realpath_storm() -> None:
    run = app()
    run.path(1, "module", "stat", "/opt/env/lib/settings", 5000)
    assert realpath_storm(run) == []


def search_run() -> HandFilled:
    """sys.path of four: nothing, a package, a module, a namespace."""
    run = app()
    for folder in ("/never", "/packages", "/modules", "/spaces", "/packages/pandas"):
        run.path(1, "search", "list", folder)
    run.path(0, "interpreter", "list", "/elsewhere")
    for folder in ("/never", "/packages", "/modules", "/spaces", "/packages/pandas"):
        run.path(1, "search", "stat", folder, 100)
    run.path(1, "search", "stat", "/packages/pandas/__init__.py")
    run.path(1, "code", "open", "/packages/pandas/__pycache__/__init__.cpython-311.pyc")
    run.path(1, "code", "open", "/modules/__pycache__/six.cpython-311.pyc")
    run.path(1, "search", "stat", "/spaces/google")
    run.path(1, "search", "stat", "/packages/pandas/absent.py", 5, result="ENOENT")
    return run


def test_entries_of_sys_path_that_never_hit() -> None:
    one = only(useless_search(search_run()))
    assert one.title == "1 entry of sys.path holds no module that was looked for: /never"
    assert one.calls == 101 and one.without == "search"
    assert one.action.startswith("remove them from PYTHONPATH")
    run = search_run()
    run.query("UPDATE run SET cwd = '/never'")
    assert only(useless_search(run)).action.startswith("python -P or PYTHONSAFEPATH=1")
    kinds = {entry.path: entry.kind for entry in search_entries(search_run())}
    assert kinds["/packages/pandas"] == "package" and kinds["/spaces"] == kinds["/modules"] == ""
    assert ("/packages/pandas", 107, 1, 5, 2, "package") in import_search(search_run()).rows


def bytecode_run(writing: str) -> HandFilled:
    run = app()
    for module in range(12):
        run.path(1, "code", "open", f"/p/__pycache__/m{module}.cpython-311.pyc", result="ENOENT")
        run.path(1, "code", "open", f"/p/m{module}.py", bytes=1024)
        if writing:
            run.path(1, "code", "open", f"/p/__pycache__/m{module}.cpython-311.pyc.139", result=writing)
    return run


def test_missing_bytecode() -> None:
    one = only(missing_bytecode(bytecode_run("EROFS")))
    assert one.title == "12 modules (12 KiB of source) are compiled because bytecode is missing"
    assert one.action.startswith("__pycache__ cannot be written") and one.calls == 36
    assert only(missing_bytecode(bytecode_run("ok"))).action.startswith("nothing: ")
    assert "PYTHONDONTWRITEBYTECODE" in only(missing_bytecode(bytecode_run(""))).action


def test_bytecode_that_is_there_is_no_offender() -> None:
    run = app()
    for module in range(50):
        run.path(1, "code", "open", f"/p/__pycache__/m{module}.cpython-311.pyc")
    run.path(1, "module", "open", "/p/data.py")
    assert missing_bytecode(run) == []


def test_listing_storm() -> None:
    run = app()
    run.path(1, "module", "list", "/themes/a", 30)
    assert listing_storm(run) == []
    run.path(1, "module", "list", "/themes/b", 31)
    one = only(listing_storm(run))
    assert one.title == "app lists directories 61 times while it is imported, 2 distinct ones"
    assert "/themes/b" in one.evidence[0]


def test_programs_started_at_import() -> None:
    one = only(started_programs(small_run()))
    assert one.title == "slow starts 1 program while it is imported (40 ms): ldconfig -p" and one.calls == 12
    assert one.without == "module=slow"


def test_metadata_of_many_packages() -> None:
    run = app()
    for package in range(6):
        run.path(1, "module", "stat", f"/s/p{package}-1.0.dist-info")
        run.path(1, "module", "open", f"/s/p{package}-1.0.dist-info/entry_points.txt", 2)
    one = only(metadata_scan(run))
    assert one.title == "app reads the metadata of 6 installed packages while it is imported" and one.calls == 18
    few = app()
    few.path(1, "module", "open", "/s/one-1.0.dist-info/METADATA", 900)
    assert metadata_scan(few) == []


def test_a_dominant_module_of_another_package() -> None:
    run = small_run()
    one = only(dominant_module(run))
    assert one.rule == "dominant_module" and one.title.startswith("deep makes 30 % of the time and 2 % ")
    run.query("UPDATE modules SET name = 'app.' || name WHERE name IN ('slow', 'deep')")
    assert dominant_module(run) == []


def test_the_table_is_ordered_and_silent_without_cause() -> None:
    run = loader_run("")
    run.path(1, "module", "list", "/themes/b", 60)
    run.calls(1, "loader", "openat", 542)
    table = import_offenders(run)
    assert [row[-1] for row in table.rows] == ["loader_search", "listing_storm"]
    assert table.rows[0][2:4] == (271, 0.5) and "Attributed is not saved" in table.notes[0]
    run.calls(1, "module", "read", 60_000)
    assert import_offenders(run).rows == []  # too few of all
    assert import_offenders(app()).rows == [] and len(RULES) == 7
