"""What are the kernels of a run called in its report?"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

from rankscope.model.tables import Cell, Table, Tables, Unit
from rankscope.questions.gpu.activities import COPY, SET, kind_of
from rankscope.questions.gpu.cxx_names import Name, NamePart, Path, function_of, leaves
from rankscope.questions.gpu.demangling import demangled

# ---------------------------------------------------------------------------------------------------------------------
# How can each kernel of many be called in few letters, so that none is taken for another?
# Left out are what a function returns and takes, the namespaces it lies in, and template arguments, but for the
# classes that say what it does (a functor). Where two would be called the same they keep the arguments in which they
# differ; where that is not enough, more: in the end the whole name as it was recorded.
FITTING = 80  # letters: up to here as many nested classes are told as there are
DEEPEST = 5
# classes that say how a kernel gets at its data and not what it does, and types of elements
PLUMBING = re.compile(
    r"(?i)array$|calculator|polic|metadata|without_?cast|with_?cast|state$|params|iterator$|strided_?batched|opaque_?type"
    r"|decomposer|allocator|helper$|default|shape$|_ptr$|^(c10|caffe2)?::?(b?float16|half|complex)$|^generator|generatorimpl"
)
PLACELESS = re.compile(r"^\(anonymous namespace\)$|^_GLOBAL__N_|^<unnamed>$")
LAMBDA = re.compile(r"^\{(?:lambda|unnamed type).*#(\d+)\}$")

Way = Callable[[], str]


def full_names(meanings: Mapping[str, str]) -> dict[str, str]:
    """Each recorded name by its meaning, but where several mean the same."""
    return _distinct({name: _ways("", None, (), meaning, name) for name, meaning in meanings.items()})


def short_names(meanings: Mapping[str, str], unparsed: Collection[str] = ()) -> dict[str, str]:
    """What to call each recorded name, given what it means; no two are called the same. Some are left whole."""
    functions = {name: None if name in unparsed else function_of(meaning) for name, meaning in meanings.items()}
    first = {name: readable_name(function) if function else meanings[name] for name, function in functions.items()}
    ways: dict[str, list[Way]] = {}
    for called, names in _together(first).items():
        parsed = {name: function for name in names if (function := functions[name])}
        shown_places = _differences(list(parsed.values())) if len(parsed) > 1 else frozenset[Path]()
        for name in names:
            ways[name] = _ways(called, functions[name], shown_places, meanings[name], name)
    return _distinct(ways)


def _ways(called: str, function: Name | None, shown_places: Collection[Path], meaning: str, recorded: str) -> list[Way]:
    """From the shortest to the longest."""
    last: list[Way] = [lambda: meaning, lambda: recorded]
    if function is None:
        return last
    return [
        lambda: called,
        lambda: readable_name(function, shown_places),
        lambda: readable_name(function, shown_places, qualified=True),
        *last,
    ]


def _distinct(ways: Mapping[str, Sequence[Way]]) -> dict[str, str]:
    """The first way of each that is nobody else's. The last one always is, so this ends."""
    level = dict.fromkeys(ways, 0)
    shown = {name: factory[0]() for name, factory in ways.items()}
    while True:
        same = [name for names in _together(shown).values() if len(names) > 1 for name in names]
        longer = [name for name in same if level[name] + 1 < len(ways[name])]
        if not longer:
            return shown
        for name in longer:
            level[name] += 1
            shown[name] = ways[name][level[name]]()


def _together(called: Mapping[str, str]) -> dict[str, list[str]]:
    by_text: dict[str, list[str]] = {}
    for name, text in called.items():
        by_text.setdefault(text, []).append(name)
    return by_text


def _differences(functions: Sequence[Name]) -> frozenset[Path]:
    """Few places at which no two of them say the same."""
    said = [dict(leaves(function)) for function in functions]
    columns = {
        place: [arguments.get(place, "") for arguments in said]
        for place in dict.fromkeys(p for arguments in said for p in arguments)
    }
    columns = {place: texts for place, texts in columns.items() if place and len(set(texts)) > 1}
    chosen: list[Path] = []
    while columns:
        place = max(columns, key=lambda place: _worth([columns[where] for where in (*chosen, place)], columns[place]))
        before = len(set(zip(*(columns[where] for where in chosen), strict=True))) if chosen else 1
        if len(set(zip(*(columns[where] for where in (*chosen, place)), strict=True))) <= before:
            break
        chosen.append(place)
    return frozenset(chosen)


def _worth(columns: Sequence[Sequence[str]], newest: Sequence[str]) -> tuple[int, bool, int]:
    """How many are told apart; by words rather than by numbers, in few letters."""
    parted = len(set(zip(*columns, strict=True)))
    return parted, not any(text[:1].isdigit() for text in newest), -sum(map(len, newest))


def readable_name(function: Name, shown_places: Collection[Path] = (), qualified: bool = False) -> str:
    """The function without its noise, with the arguments at these places."""
    inside = {place[:length] for place in shown_places for length in range(1, len(place) + 1)}
    for depth in range(DEEPEST, 0, -1):
        text = _text(function, inside, (), depth, qualified)
        if len(text) <= FITTING:
            break
    return text or function.words


def _text(name: Name, inside: Set[Path], at: Path, depth: int, qualified: bool = False) -> str:
    first = 0 if qualified else _first_shown(name.parts)
    words: list[str] = []
    for which, part in enumerate(name.parts):
        places = [(*at, (which, number)) for number in range(len(part.arguments))]
        if which < first and inside.isdisjoint(places):
            continue
        told_of = zip(part.arguments, places, strict=True)
        shown = [text for argument, place in told_of if (text := _argument(argument, inside, place, depth))]
        words.append(_word(part) + (f"<{', '.join(shown)}>" if shown else ""))
    return "::".join(_lambdas_joined(word for word in words if word)) + name.tail


def _argument(argument: Name | str, inside: Set[Path], at: Path, depth: int) -> str:
    if at in inside:
        return argument if isinstance(argument, str) else _text(argument, inside, at, depth - 1)
    if depth < 1 or isinstance(argument, str) or not _tells(argument):
        return ""
    return _text(argument, inside, at, depth - 1)


def _tells(name: Name) -> bool:
    """Whether a class says what a kernel does."""
    return not name.tail and not PLUMBING.search(name.parts[-1].word)


def _first_shown(parts: Sequence[NamePart]) -> int:
    """The last word that means something by itself: a lambda is told with the function it lies in."""
    for at in range(len(parts) - 1, 0, -1):
        word = parts[at].word
        if not (LAMBDA.match(word) or word.startswith(("operator", "'"))):
            return at
    return 0


def _word(part: NamePart) -> str:
    if PLACELESS.match(part.word) or (part.word == "operator()" and part.called):
        return ""
    return part.word


def _lambdas_joined(words: Iterable[str]) -> list[str]:
    """A lambda in a lambda in a lambda by its numbers: {lambda#1.7.1}."""
    joined: list[str] = []
    for word in words:
        if number := LAMBDA.match(word):
            if joined and joined[-1].startswith("{lambda#"):
                joined[-1] = f"{joined[-1][:-1]}.{number[1]}}}"
                continue
            word = f"{{lambda#{number[1]}}}"
        joined.append(word)
    return joined


# ---------------------------------------------------------------- kernel names
FORMS = ("short", "full", "mangled")
SQL = """
    SELECT DISTINCT name FROM {table} WHERE layer = 'gpu'
    AND ({loaded} OR process IN (SELECT process FROM ranks WHERE coalesce(tool, '') = ''))"""


def kernel_names(tables: Tables, form: str = "short", loaded: bool = True) -> dict[str, str]:
    """Recorded name to shown name: the same in all tables of a report, and no two the same.

    Without `loaded`, names that come from files of other tools only are left as those tools wrote them.
    """
    if form == "mangled":
        return {}
    named = ("tallies", "range_tallies", "untraced_events")
    answers = [tables.query(SQL.format(table=table, loaded=str(loaded).lower())) for table in named]
    recorded = sorted({str(name) for rows in answers for (name,) in rows})
    meanings = demangled(recorded)
    everyone = {name: meanings.get(name, name) for name in recorded}
    if form == "full":
        return full_names(everyone)
    return short_names(everyone, unparsed={name for name in recorded if kind_of(name) in (COPY, SET)})


def renamed(table: Table, names: Mapping[str, str]) -> Table:
    """The table with its kernels called so."""
    at = next(
        (at for at, column in enumerate(table.columns) if column.name == "name" and column.unit is Unit.NAME), None
    )
    if at is None or not names:
        return table
    layer = next((at for at, column in enumerate(table.columns) if column.name == "layer"), None)
    table.rows = [_renamed(row, at, layer, names) for row in table.rows]
    table.warnings = [_begun_anew(text, names) for text in table.warnings]
    return table


def _renamed(row: tuple[Cell, ...], at: int, layer: int | None, names: Mapping[str, str]) -> tuple[Cell, ...]:
    name = row[at]
    if not isinstance(name, str) or name not in names or (layer is not None and row[layer] != "gpu"):
        return row
    return (*row[:at], names[name], *row[at + 1 :])


def _begun_anew(text: str, names: Mapping[str, str]) -> str:
    """A warning about a kernel begins with its name."""
    name, colon, rest = text.partition(": ")
    return f"{names.get(name, name)}{colon}{rest}"
