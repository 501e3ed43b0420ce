"""A document is read part by part, and places in it are places in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.cli import load as command
from rankscope.formats.recognition import parts
from rankscope.formats.source import Source
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import OpenOptions, open_run

PAGE = """\
# A report
Some words.

```text
toy profile
process rank=0
tally gpu gemm 3 600
note looks odd
```

~~~
not ours ``` at all
~~~

````
toy profile
process rank=1
```
tally gpu gemm 4 800
note looks odd
````
```
never closed
"""


def test_parts_keep_their_lines() -> None:
    source = Source(Path("x"), content=PAGE.encode())
    text, first, second, third = parts(source, PAGE.encode())
    assert text.content is not None and text.content.count(b"\n") == PAGE.count("\n")
    assert b"toy" not in text.content and b"never closed" in text.content
    assert first.content == b"toy profile\nprocess rank=0\ntally gpu gemm 3 600\nnote looks odd"
    assert (first.at(1), second.at(1), third.at(3)) == ("x:5", "x:12", "x:18")
    assert str(third.bad("odd", 2)) == "x:17: odd" and str(third.bad("odd")) == "x:16: odd"


@pytest.mark.parametrize("page", ["", "words\n", "``` not closed\nx\n", "a ``` b ``` c\n"])
def test_a_file_without_blocks_has_no_parts(page: str) -> None:
    assert parts(Source(Path("x"), content=page.encode()), page.encode()) == []


@pytest.mark.usefixtures("toy", "here")
def test_every_part_is_read_by_who_knows_it() -> None:
    Path("page.md").write_text(PAGE)
    assert command.run(["page.md", "--out", "run"]) == 0
    run = open_run(Path("run"), read_rank_file, OpenOptions(events=False))
    sql = "SELECT rank, calls FROM tallies JOIN ranks USING (process) ORDER BY rank"
    assert run.query(sql) == [(0, 3), (1, 4)]
    assert run.query('SELECT "where" FROM notes') == [("page.md:8",), ("page.md:20",)]


@pytest.mark.usefixtures("toy", "here")
def test_a_bad_part_is_told_and_the_others_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("page.md").write_text(PAGE.replace("gemm 4", "gemm four"))
    assert command.run(["page.md", "--out", "run"]) == 0
    run = open_run(Path("run"), read_rank_file, OpenOptions(events=False))
    assert run.query("SELECT sum(calls) FROM tallies") == [(3,)]
    told = [row[0] for row in run.query("SELECT text FROM notes")]
    assert "this part was left out: page.md:19: not a tally: 'gpu gemm four 800'" in told
