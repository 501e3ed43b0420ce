"""The options of `rankscope run`."""

import pytest

from rankscope.record.options import UsageError, parse


def test_everything_given() -> None:
    words = "--out a --local=b --matrix --size 64K --log 0 --name n --quiet -- python -c x --out c"
    options = parse(words.split())
    assert (options.out, options.local, options.matrix, options.quiet) == ("a", "b", True, True)
    assert (options.file_bytes, options.log_records, options.name) == (65536, 0, "n")
    assert options.command == ["python", "-c", "x", "--out", "c"]


def test_first_word_without_dash_begins_the_command() -> None:
    assert parse(["env", "--help"]).command == ["env", "--help"]


@pytest.mark.parametrize(("text", "size"), [("65536", 65536), ("4M", 4194304), ("1g", 1073741824)])
def test_sizes(text: str, size: int) -> None:
    assert parse(["--size", text, "true"]).file_bytes == size


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("true 64M", None),
        ("--trace true", 64 << 20),
        ("--trace 128m true", 128 << 20),
        ("--trace=1G true", 1 << 30),
        ("--trace 65536 true", 65536),
        ("--trace -- 64M", 64 << 20),
    ],
)
def test_trace(line: str, size: int | None) -> None:
    options = parse(line.split())
    assert (options.trace_bytes, options.trace_keep) == (size, "")
    assert options.command in (["true"], ["true", "64M"], ["64M"])
    assert parse(["--trace-keep", "oldest", *line.split()]).trace_keep == "oldest"


@pytest.mark.parametrize("mode", ["off", "time", "calls", "paths"])
def test_imports(mode: str) -> None:
    assert parse(["--imports", mode, "true"]).imports == parse([f"--imports={mode}", "true"]).imports == mode
    assert parse(["true"]).imports == ""


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--",
        "--out",
        "--out=",
        "--size 1K true",
        "--size x true",
        "--size K true",
        "--log -1 true",
        "--log x true",
        "--bogus true",
        "-x true",
        "--matrix=1 true",
        "--trace= true",
        "--trace=x true",
        "--trace 1K true",
        "--trace 2G true",
        "--trace",
        "--trace-keep true",
        "--trace-keep both true",
        "--imports true",
        "--imports everything true",
    ],
)
def test_mistakes(line: str) -> None:
    with pytest.raises(UsageError, match=r"; "):
        parse(line.split())
