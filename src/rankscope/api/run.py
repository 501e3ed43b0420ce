"""A run as programs, notebooks and the commands see it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

from rankscope.api.frame import Frame, arrow_frame
from rankscope.model.tables import Column, Table, Unit, Wrong
from rankscope.pictures import Screen
from rankscope.questions.gpu.kernel_names import FORMS as KERNEL_NAMES
from rankscope.questions.gpu.kernel_names import kernel_names, renamed
from rankscope.questions.registry import ALIASES, QUESTIONS, Needs, default_tables
from rankscope.questions.run.screen import screen
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.wording import rank_words
from rankscope.rank_files.events import trace_events
from rankscope.rank_files.read import read_rank_file
from rankscope.record.gather import Left, left_here, local_folder_of
from rankscope.store import large_runs
from rankscope.store.cache import Answers, table_data, table_of
from rankscope.store.columns import RECORDS
from rankscope.store.executors import Dask, Killed, cluster
from rankscope.store.folder import RUNS, NoRun, find_run, listed, read_host_groups
from rankscope.store.rank_files import Elsewhere, Progress, unseen
from rankscope.store.run import BadQuery, OpenOptions, RunTables, open_run

__all__ = [
    "ALIASES",
    "KERNEL_NAMES",
    "LOGS_UNASKED",
    "QUESTIONS",
    "BadQuery",
    "Layout",
    "NoRun",
    "Run",
    "Screen",
    "Selection",
    "Wrong",
]


# ---------------------------------------------------------------------------------------------------------------------
# Rank files that are still on the nodes of a job (`rankscope run --local`), as workers of Dask see them there.
def asks_nodes(run: Path, dask: str | None) -> bool:
    """Whether there may be files that only workers see: then no answer of before will do."""
    return dask is not None and _local_folder(run) is not None


def files_elsewhere(run: Path, dask: str) -> list[Elsewhere]:
    """What each node has and the run has not; a folder that several nodes see is read by one of them."""
    source, folder = _local_folder(run), run.absolute()
    if source is None:
        return []
    try:
        by_host = cluster(dask).on_each_host(partial(left_here, folder, source))
    except Killed as problem:
        raise NoRun(f"{run}: {problem}") from None
    files: dict[str, Elsewhere] = {}
    for host, left in sorted(by_host.items()):
        for left_file in left:
            if left_file[0] not in files or _is_of(host, left_file):
                files[left_file[0]] = Elsewhere(host, Path(left_file[0]), *left_file[1:])
    return list(files.values())


def _is_of(host: str, left: Left) -> bool:
    return Path(left[0]).parent.name == host


def _local_folder(run: Path) -> Path | None:
    try:
        return local_folder_of(run)
    except (OSError, ValueError, TypeError, AttributeError):  # what is wrong with run.json is told elsewhere
        return None


LAYOUTS = ("mpitrace", "mpitrace-new", "nvprof", "iprof")


@dataclass(frozen=True, slots=True)
class Layout:
    """Whose layout, and how: kernels' names, one profile for all ranks, comma-separated."""

    name: str
    names: str = "short"
    merged: bool = False
    csv: bool = False


# ---------------------------------------------------------------- run
LOGS_UNASKED = 128  # rank files whose logs are always read without being asked for
LOGS_UNASKED_BYTES = 8 << 30  # on disk, of more of them
PARALLEL_GROUPS = re.compile(r"\s*\w+\s*=\s*\d")  # of ranks, as in pp=0-3;dp=0,4; anything else is a file's name
EVENTS_WORD = re.compile(r"\b(events|message_ends)\b", re.IGNORECASE)
OVERVIEW = ("findings", "overview", "coverage")
OF_RANKS = ("steps", "step_parts", "gpu_steps", "gpu_time", "waiting", "ranks")  # of a screen: for chosen ranks alone
LISTED = (
    Column("name", Unit.NAME, "Table"),
    Column("kind", Unit.NAME, "Kind"),
    Column("answers", Unit.NAME, "Answers"),
)


class Run:
    """One run, opened when the first question needs it; its rank files are read, never changed."""

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        dask: str | None = None,
        keep: bool = True,
        groups: str | PathLike[str] | None = None,
        progress: Progress = unseen,
        summing: Progress = unseen,
    ) -> None:
        self.folder = find_run(Path(path) if path is not None else None)
        self._progress, self._summing, self._dask, self._keep = progress, summing, dask, keep
        self._parallel = groups if isinstance(groups, str) and PARALLEL_GROUPS.match(groups) else ""
        self._groups = Path(groups) if groups is not None and not self._parallel else None
        self._store: RunTables | None = None
        self._has_events = self._wants_events = False
        self._names: dict[str, dict[str, str]] = {}
        self._kept: Answers | None = None
        self._told: dict[str, Any] | None = None

    def table(
        self,
        name: str,
        *,
        ranks: Collection[int] | None = None,
        top: int | None = None,
        sort: str | None = None,
        names: str = "short",
    ) -> Frame:
        """The answer to one question; `tables()` lists them."""
        chosen = Selection(frozenset(ranks) if ranks is not None else None, top, sort)
        answer = self.answers([name], chosen, names)[0]
        if sort is not None and sort not in (column.name for column in answer.columns):
            known = ", ".join(column.name for column in answer.columns)
            raise Wrong(f"sort {sort}: no such column; choose one of {known}")
        return Frame(answer)

    def findings(self) -> Frame:
        """What is worth doing something about, the most costly first."""
        return self.table("findings")

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Frame:
        """The answer to SQL (DuckDB's) over the tables of records: docs/reference/schema.md."""
        store = self.store(events=bool(EVENTS_WORD.search(sql)))
        return arrow_frame("query", "Query", store.arrow(sql, parameters))

    def tables(self) -> Frame:
        """The names that `table` takes, and those of the tables that `query` sees."""
        rows: list[tuple[Any, ...]] = [(name, "question", question.about) for name, question in QUESTIONS.items()]
        rows += [(name, "records", _first_line(record)) for name, record in RECORDS.items()]
        return Frame(Table("tables", "Tables", LISTED, rows))

    def answers(self, names: Sequence[str], selection: Selection, kernels: str = "short") -> list[Table]:
        """The answers to several questions, kernels called the same in all of them."""
        questions = [ALIASES.get(name, name) for name in names]
        for name in questions:
            if name not in QUESTIONS:
                raise Wrong(f"{name}: no such table; choose one of {', '.join((*QUESTIONS, *ALIASES))}")
        self.prepare(events=any(QUESTIONS[name].reads_more_than_sums for name in questions))
        self.ranks_shown(selection)
        return [self._answer(name, selection, kernels) for name in questions]

    def _answer(self, name: str, selection: Selection, kernels: str) -> Table:
        """One answer: as it was kept, or worked out, and then kept if it will hold."""
        question = ["table", name, sorted(selection.ranks or ()), selection.ranks is None, selection.top]
        question += [selection.sort, kernels, self._wants_events]
        question += [sorted(read_host_groups(self._groups).items())] if self._groups is not None else []
        question += [self._parallel] if self._parallel else []
        table = table_of(self._kept_answer(question))
        if table is None:
            table = self.answer_as_read(name, selection, kernels)
            self._keep_answer(question, table_data(table))
        return table

    def prepare(self, events: bool) -> None:
        """Say whether single events will be needed: then they are read with the rest, and not afterwards."""
        if events and not self._wants_events:
            self._wants_events, self._told = True, None

    def _kept_answer(self, question: Sequence[Any]) -> Any | None:
        if self._store is not None and (self._has_events or not self._wants_events):
            return None  # what is open answers
        answers = self._answers()
        return answers.get(question) if answers is not None else None

    def _keep_answer(self, question: Sequence[Any], answer: Any) -> None:
        answers = self._answers()
        if answers is not None and self._store is not None:
            answers.keep(self._store.stamps, question, answer)

    def _answers(self) -> Answers | None:
        """Kept answers are for large runs: of others every answer is quick."""
        if self._kept is None and self._keep:
            self._keep = len(self._files) >= large_runs.MANY_FROM
            wanted = not asks_nodes(self.folder, self._dask)
            self._kept = Answers(self.folder, self._files, wanted) if self._keep else None
        return self._kept

    def answer_as_read(self, name: str, selection: Selection, kernels: str = "short") -> Table:
        """The answer by what was read already."""
        return renamed(QUESTIONS[name].answer(self.store(), selection), self.kernel_names(kernels))

    def screen(self, selection: Selection = ALL, logs: bool = True) -> Screen:
        """What to see first, from the answers to other questions; without logs, from what all rank files sum up."""
        if logs:
            self.prepare(events=True)
        self.ranks_shown(selection)
        chosen, shown = Selection(selection.ranks), set(self.default_tables())

        @cache
        def answer(name: str) -> Table:
            question = QUESTIONS[name]
            if name not in shown or (question.reads_more_than_sums and not logs and question.needs is not Needs.LOG):
                return Table(name, "", (), [])
            return self._answer(name, chosen if name in OF_RANKS else ALL, "short")

        folder = self.folder.resolve()
        named = f"--name {folder.name}" if folder.parent.name == RUNS.name else f"--out {self.folder}"
        return screen(answer, folder.name, f"rankscope load FILES {named}", self.bad_files)

    def default_tables(self) -> list[str]:
        """The questions to which this run may have an answer."""
        return list(self._about()["tables"])

    def layout(self, layout: Layout, selection: Selection) -> str:
        """The run as another tool would have printed it."""
        from rankscope.api.layouts import laid_out

        return laid_out(self.store(), selection, self.ranks_shown(selection), layout)

    def batches(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows that the SQL asks for, some at a time: they may be too many for memory."""
        return self.store(events=bool(EVENTS_WORD.search(sql))).batches(sql)

    def ranks_shown(self, selection: Selection) -> list[int]:
        """The ranks of the selection; one that the run has not is an error."""
        present = self._about()["ranks"]
        if not self._about()["processes"]:
            raise Wrong(f"{self.folder}: none of its files could be read: {self.bad_files[0]}")
        absent = (selection.ranks or frozenset()) - set(present)
        if absent:
            raise Wrong(f"no {rank_words(absent)} in this run, which has {rank_words(present)}")
        return [rank for rank in present if selection.ranks is None or rank in selection.ranks]

    def _about(self) -> dict[str, Any]:
        """What every report asks first: the ranks that there are, the tables worth showing, and files left out."""
        if self._told is None:
            question = ["about", self._wants_events]
            stored = self._kept_answer(question)
            self._told = stored if isinstance(stored, dict) else self._about_store(question)
        return self._told

    def _about_store(self, question: Sequence[Any]) -> dict[str, Any]:
        store = self.store()
        ranks = [row[0] for row in store.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank")]
        processes = store.query("SELECT count(*) FROM ranks")[0][0]
        answers = {
            "ranks": ranks,
            "processes": processes,
            "tables": default_tables(store),
            "bad_files": store.bad_files,
        }
        self._keep_answer(question, answers)
        return answers

    @property
    def bad_files(self) -> list[str]:
        """A line for each file that could not be read."""
        return list(self._about()["bad_files"])

    def store(self, events: bool = False) -> RunTables:
        """The tables of records; read once more where single events are needed and were not read yet."""
        self.prepare(events)
        if self._store is None or (self._wants_events and not self._has_events):
            self._has_events, self._told = self._wants_events, None
            read = partial(read_rank_file, events=self._wants_events)
            elsewhere = files_elsewhere(self.folder, self._dask) if self._dask is not None else []  # before the others
            options = OpenOptions(
                events=self._wants_events,
                read_trace=trace_events,
                executor=Dask(self._dask) if self._dask is not None else None,
                keep=self._keep,
                groups=self._groups,
                elsewhere=elsewhere,
                progress=self._progress,
                summing=self._summing,
            )
            self._store = open_run(self.folder, read, options)
            self._store.parallel_groups = self._parallel
            self._names.clear()
        return self._store

    @property
    def reads_logs(self) -> bool:
        """Whether the logs of collectives are read without being asked for: up to so much on disk."""
        return self.is_small or sum(path.stat().st_blocks * 512 for path in self._files) <= LOGS_UNASKED_BYTES

    @cached_property
    def _files(self) -> list[Path]:
        return [Path(path) for path in listed(f"{self.folder}/ranks")]

    @property
    def is_small(self) -> bool:
        """Whether everything about it is quick."""
        return len(self._files) <= LOGS_UNASKED

    def kernel_names(self, form: str) -> dict[str, str]:
        """Recorded name to shown name."""
        if form not in self._names:
            self._names[form] = kernel_names(self.store(), form)
        return self._names[form]

    def __repr__(self) -> str:
        return f"rankscope.open({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        shown = [Frame(table) for table in self.answers(OVERVIEW if self.is_small else OVERVIEW[1:], Selection())]
        return "".join(frame._repr_html_() for frame in shown if len(frame) or frame.warnings)


def _first_line(what: Any) -> str:
    return (what.__doc__ or "").strip().partition("\n")[0]
