"""How well did the analysis do over many cases whose truth is known?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

Named = tuple[int, str] | None  # rank and cause


@dataclass
class Scores:
    """Right, wrong and by how much."""

    caused: int = 0
    right: int = 0
    right_rank: int = 0
    quiet: int = 0
    false_alarms: int = 0
    undisturbed: int = 0  # of the quiet cases: those in which other programs left the machine alone
    undisturbed_alarms: int = 0
    errors: list[float] = field(default_factory=list)  # |estimated − injected| ÷ injected, of the time in the cause
    all_errors: list[float] = field(default_factory=list)  # the same of all by which the rank is late
    by_cause: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, truth: Named, told: Named, ratios: Sequence[float] = (), disturbed: bool = False) -> None:
        """One case: (rank, cause) or None on either side; ratios: estimated ÷ injected, in the cause, in all."""
        self.by_cause[truth[1] if truth else "none", told[1] if told else "none"] += 1
        if truth is None:
            self.quiet += 1
            self.false_alarms += told is not None
            self.undisturbed += not disturbed
            self.undisturbed_alarms += told is not None and not disturbed
            return
        self.caused += 1
        self.right += told == truth
        self.right_rank += told is not None and told[0] == truth[0]
        if told is not None and told[0] == truth[0] and ratios:
            self.errors.append(abs(ratios[0] - 1))
            self.all_errors.append(abs(ratios[1] - 1))

    def lines(self) -> list[str]:
        """The table of the scores."""
        made = [f"{'injected':20} {'told':32} cases"]
        made += [f"{truth:20} {told:32} {count:5}" for (truth, told), count in sorted(self.by_cause.items())]
        made.append(f"rank and cause right: {self.right} of {self.caused} ({self.right / max(1, self.caused):.1%})")
        made.append(f"rank right:           {self.right_rank} of {self.caused}")
        alone = f"{self.undisturbed_alarms} of the {self.undisturbed} that no other program disturbed"
        made.append(f"false alarms:         {self.false_alarms} of {self.quiet} without a cause; {alone}")
        if self.errors:
            told = f"{median(self.errors):.1%} in the cause, {median(self.all_errors):.1%} in all that the rank is late"
            made.append(f"injected wait, error: {told} (medians of {len(self.errors)})")
        return made
