"""How much of the time were the GPUs recorded, what did it cost, and what do the records stand for?"""

from __future__ import annotations

from rankscope.model.records import Layer
from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import counted

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column(
        "windows",
        Unit.COUNT,
        "Windows",
        "recording windows that have ended; the first begins with the fourth step, or 10 s after CUDA's context "
        "(3 s where no optimizer was made)",
    ),
    Column("recorded_ns", Unit.NS, "Recorded", "sum of their lengths, the one under way included"),
    Column("time_share", Unit.SHARE, "% of time", "`recorded_ns` ÷ time since the first window began"),
    Column("steps", Unit.COUNT, "Steps", "steps of the rank since recording began, the first one left out"),
    Column(
        "recorded_steps", Unit.NUMBER, "Recorded steps", "of `steps`, those in windows; of a step in part, its part"
    ),
    Column("step_share", Unit.SHARE, "% of steps", "`recorded_steps` ÷ `steps`"),
    Column(
        "cost",
        Unit.SHARE,
        "Cost while recording",
        "mean recorded step ÷ mean step not recorded, around it, − 1 (of a step longer than three medians, three "
        "medians); median of the latest 15 windows; 0 if below",
    ),
    Column("cost_error", Unit.SHARE, "±", "standard error of `cost`: 1.25 × 1.4826 × median deviation ÷ √windows"),
    Column(
        "spent_ns",
        Unit.NS,
        "Total cost",
        "`cost` ÷ (1 + `cost`) × recorded time of steps, each window at the `cost` that was known when the next one "
        "began, + switching on and off; without steps 5 µs a kernel is assumed for `cost` × recorded time, and 0 where "
        "the GPU is busy for 97 % of it",
    ),
    Column("spent_share", Unit.SHARE, "% of elapsed", "`spent_ns` ÷ elapsed time of the process"),
    Column("kernels", Unit.COUNT, "Kernels recorded", "kernels in windows"),
    Column(
        "estimated_kernels",
        Unit.NUMBER,
        "Kernels, estimated",
        "kernels outside steady steps + those in steady steps × `steps` ÷ `recorded_steps`; without steps "
        "`kernels` ÷ `time_share`",
    ),
    Column("estimated_ns", Unit.NS, "Kernel time, estimated", "the same of kernel time"),
    Column(
        "work_error",
        Unit.SHARE,
        "± estimate",
        "standard deviation of kernel time per step over windows ÷ √windows ÷ its mean; empty below three windows",
    ),
)
SQL = f"""
    WITH kernels AS (
        SELECT process, sum(calls) AS calls, sum(calls) FILTER (phase = 'steady') AS steady,
            sum(total_ns) AS ns, sum(total_ns) FILTER (phase = 'steady') AS steady_ns
        FROM tallies WHERE layer = '{Layer.GPU}' AND name NOT LIKE '[CUDA %' GROUP BY process),
    found AS (
        SELECT *, seen_steps / nullif(recorded_steps, 0) - 1 AS unseen,
            if(seen_steps = 0, watched_ns / nullif(recorded_ns, 0), 1) AS times
        FROM gpu_recordings JOIN ranks USING (process) LEFT JOIN kernels USING (process)
        WHERE windows > 0 AND {{condition}})
    SELECT rank, windows, recorded_ns, recorded_ns / nullif(watched_ns, 0), seen_steps, recorded_steps,
        recorded_steps / nullif(seen_steps, 0),
        if(cost < 0, 0, cost), cost_error, spent_ns, spent_ns / nullif(elapsed_ns, 0), calls::BIGINT,
        times * calls + coalesce(steady * unseen, 0), times * ns + coalesce(steady_ns * unseen, 0), work_error
    FROM found ORDER BY rank"""
SHARE = """
    SELECT sum(windows)::BIGINT, sum(recorded_steps) / nullif(sum(seen_steps), 0),
        sum(recorded_ns) / nullif(sum(watched_ns), 0)
    FROM gpu_recordings JOIN ranks USING (process) WHERE windows > 0 AND role = 'rank'"""


def gpu_windows(tables: Tables, selection: Selection = ALL) -> Table:
    """When the GPUs of each rank were recorded, what that cost it, and estimates for the whole run."""
    rows = tables.query(SQL.format(condition=selection.condition))
    return arranged(Table("gpu_windows", "Recording of the GPUs in windows", COLUMNS, rows), selection)


def windows_note(tables: Tables) -> list[str]:
    """For tables of GPU counts: that they tell of a part of the run only."""
    windows, of_steps, of_time = tables.query(SHARE)[0]
    if not windows or of_time is None:
        return []
    share = f"{100 * of_time:.1f} % of the time" if of_steps is None else f"{100 * of_steps:.1f} % of the steps"
    return [
        f"Recorded in {counted(windows, 'window')}, {share}: counts and times cover only these "
        "(--table gpu_windows estimates the whole run; --cuda exact records it)."
    ]
