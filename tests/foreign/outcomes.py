"""Runs `-m module …` or `script …` as Python would and appends the outcome of each of its tests to a file, one JSON
line each, at once: what a crash or a time limit cuts off keeps the tests before it.

It runs inside other people's test programs, bare and recorded alike, so it needs the standard library only and leaves
nothing behind but two wrapped methods. One file per MPI rank.
"""

import json
import os
import runpy
import sys
import types

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


class Outcomes:
    def __init__(self, path):
        rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
        self.path = f"{path}.{rank}"
        self.process = os.getpid()

    def write(self, test, outcome):
        if os.getpid() != self.process:  # a child that a test has forked
            return
        line = json.dumps([test, outcome]) + "\n"
        # Opened anew each time: tests of file descriptors close what they do not know.
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def watch_unittest(outcomes):
    from unittest.result import TestResult

    def watch(method, outcome):
        original = getattr(TestResult, method)

        def add(self, test, *rest):
            outcomes.write(test.id(), outcome)
            return original(self, test, *rest)

        setattr(TestResult, method, add)

    for method, outcome in (
        ("addSuccess", "passed"),
        ("addError", "error"),
        ("addFailure", "failed"),
        ("addSkip", "skipped"),
        ("addExpectedFailure", "xfailed"),
        ("addUnexpectedSuccess", "xpassed"),
    ):
        watch(method, outcome)

    original_subtest = TestResult.addSubTest

    def add_subtest(self, test, subtest, err):
        if err is not None:
            outcomes.write(test.id(), "failed")
        return original_subtest(self, test, subtest, err)

    TestResult.addSubTest = add_subtest


def pytest_plugin(outcomes):
    """A plugin, which pytest finds under its name in sys.modules."""

    def pytest_runtest_logreport(report):
        if report.when == "call" or report.outcome != "passed":
            outcome = report.outcome if report.when == "call" or report.skipped else "error"
            if hasattr(report, "wasxfail"):
                outcome = "x" + outcome
            outcomes.write(report.nodeid, outcome)

    def pytest_collectreport(report):
        if report.failed:
            outcomes.write(report.nodeid, "not collected")

    plugin = types.ModuleType("foreign_outcomes")
    plugin.pytest_runtest_logreport = pytest_runtest_logreport
    plugin.pytest_collectreport = pytest_collectreport
    return plugin


def main():
    outcomes = Outcomes(sys.argv[1])
    program = sys.argv[2:]
    if program[:2] == ["-m", "pytest"]:
        sys.modules["foreign_outcomes"] = pytest_plugin(outcomes)
        program[2:2] = ["-p", "foreign_outcomes"]
    else:
        watch_unittest(outcomes)
    if program[0] == "-m":
        sys.argv[:] = program[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = program
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
