"""Plain words: docstrings and comments of fields start with a verb or a noun phrase, and the old words are gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.sources import PACKAGE, PROGRAMS, ROOT, place, python_files, tree_of

#: A docstring that starts with one of these is half a sentence, and its noun is missing.
HALF_SENTENCE = re.compile(
    r"(What|How|Of|Those|By|Whether|Who|Where|When|That|So|Why|Which|As|For|From|In|Inside|With|Without|Like|To|Is)\b"
)
#: A comment that starts with one of these is half a sentence, or has a relative clause for its subject.
HALF_COMMENT = re.compile(r"(What|How|Of|Those|By|Whether|Who|Why|That|So|Which|As|Inside|Like|Is)\b")
#: The word of today in each case: status, report, settings, poller, observations, pending, compute, context, state
#: machine, snapshot service, counters.
OLD_WORDS = (
    "told|tell|tells|telling|teller|shall|knob|knobs|lookout|dues|reckon|reckons|reckoned|surroundings|heart|desk|tally|"
    "so far"
)
_CAPITALIZED = "|".join(word.capitalize() for word in OLD_WORDS.split("|"))
#: Whole words, also as a part of a name: `is_told`, `ServiceHeart`.
OLD_WORD = re.compile(rf"(?<![A-Za-z])(?:{OLD_WORDS})(?![a-z])|(?:{_CAPITALIZED})(?![a-z])")

#: Words that are gone from single rooms, which have several meanings elsewhere; also as a part of a name, as in
#: `LOOK_SECONDS` and `_ask`.
_MEANINGS = (
    "places?|looks?|looked|looking|asks?|asked|asking|hears?|heard|claims?|claimed|turns?|moments?|presence|unswept|"
    "misjudged|stewards?"
)
#: The same, without words that have an ordinary meaning: to look something up, to turn one thing into another.
_SINGLE_MEANINGS = (
    "places?|looks?(?! up| like| it up)|looked(?! up)|looking(?! up)|asks?|asked|asking|hears?|heard|claims?|claimed|"
    "moments?|presence|unswept|misjudged|stewards?"
)
_FAR = "(?<!so )(?<!as )(?<!how )far"
#: Parquet has row groups and a file a group; a list of indices or of chosen items says which they are.
_GROUPS = "(?<!row )(?<!row_)(?<!owner and )groups?(?!By)|taken(?= =)"
GONE_FROM_ROOMS = {
    **dict.fromkeys(("catalog", "membership", "verify", "recovery", "model", "base"), f"{_MEANINGS}|{_FAR}"),
    **dict.fromkeys(
        ("ingest", "warehouse", "formats", "query", "control", "grammar", "clickhouse", "statements", "introspection"),
        f"{_SINGLE_MEANINGS}|{_FAR}",
    ),
    **dict.fromkeys(("server", "client"), f"{_SINGLE_MEANINGS}|{_FAR}"),
    "maintenance": f"{_SINGLE_MEANINGS}|{_FAR}|{_GROUPS}",
    "storage": "places?|looks?|looked|looking|asks?|asked|asking|hears?|heard|says?|said|lanes?|claims?|claimed|"
    f"misjudged|turns?|turned|moments?|{_FAR}|{_GROUPS}",
}
#: Texts with such words that stay: they are in files, messages or error facts.
TEXTS_ALLOWED = (
    'b"a place of tables of Tilth\\n"',
    'b"tilth.misjudged"',
    '"steward"',
    "asked_by: str",
    '"asked_by", TEXT',
    "asked_by=one",
    "asked_by=switch",
    "asked_from: str",
    '"asked_from", TEXT',
    "asked_from=one",
    "asked_from=switch",
    "asked=show_bytes",
    "ask the operator to",
    "presence_name",
    "asked_by=said",
    "asked_from=said",
)

#: Names that Python asks for, by file.
NAMES_ALLOWED = {
    "storage/store/backends/local.py": {"tell"},
    "storage/store/replicas/new_copies.py": {"tell"},
    "storage/store/protocol.py": {"tell"},
    "storage/store/backends/streams.py": {"tell"},
    "query/results/stored.py": {"tell"},
    "query/worker/avro_arrays.py": {"tell"},
}


def test_docstrings_start_with_a_verb_or_a_noun_phrase() -> None:
    faults = [
        f"{where} {text.splitlines()[0][:60]}"
        for path in python_files(PACKAGE)
        for where, text in _docstrings(path)
        if HALF_SENTENCE.match(text)
    ]
    assert faults == []


def test_comments_of_constants_and_fields_start_with_a_noun_phrase_or_a_sentence() -> None:
    assert _half(python_files(PACKAGE), "#:", HALF_SENTENCE) == []


def test_comments_are_noun_phrases_or_sentences() -> None:
    assert _half(python_files(*PROGRAMS, ROOT / "tests"), "#", HALF_COMMENT) == []


def test_old_words_are_gone() -> None:
    faults = [
        f"{place(path)}:{number} {line.strip()[:80]}"
        for path in python_files(PACKAGE)
        for number, line in enumerate(_without_allowed(path).splitlines(), start=1)
        if OLD_WORD.search(line)
    ]
    assert faults == []


def test_words_that_are_gone_from_a_room_do_not_come_back() -> None:
    faults = [
        f"{place(path)}:{number} {line.strip()[:80]}"
        for room, words in GONE_FROM_ROOMS.items()
        for path in python_files(PACKAGE / room)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if _gone(words).search(line) and not any(text in line for text in TEXTS_ALLOWED)
    ]
    assert faults == []


def test_no_name_is_allowed_that_is_gone() -> None:
    faults = [
        f"{file}: {name}"
        for file, names in NAMES_ALLOWED.items()
        for name in names
        if not re.search(rf"\b{name}\b", (PACKAGE / file).read_text())
    ]
    assert faults == []


def test_the_rules_find_what_they_are_for() -> None:
    refused = ("is_told", "ServiceHeart", "the knobs of a room", "Teller", "it tells", "_tell(")
    assert [text for text in refused if not OLD_WORD.search(text)] == []
    allowed = ("retold", "hearts", "the intellect", "desktop", "status", "totally")
    assert [text for text in allowed if OLD_WORD.search(text)] == []
    gone = _gone("places?|asks?")
    assert all(gone.search(text) for text in ("PLACES_MAX", "self._ask(", "AskError", "in its place"))
    assert not any(gone.search(text) for text in ("replaced", "MASK_DDL", "a task", "placement", "PLACEMENT"))
    assert HALF_SENTENCE.match("Whether it is open.")
    assert not HALF_SENTENCE.match("Thatched roofs of a room.")


def _gone(words: str) -> re.Pattern[str]:
    upper = words.upper()
    return re.compile(rf"(?<![A-Za-z])(?:(?!{upper})(?i:{words})(?![a-z])|(?:{upper})(?![A-Za-z]))")


def _docstrings(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield place(path, None if isinstance(node, ast.Module) else node), text


def _without_allowed(path: Path) -> str:
    text = path.read_text()
    for name in NAMES_ALLOWED.get(path.relative_to(PACKAGE).as_posix(), ()):
        text = re.sub(rf"\b{name}\b", "", text)
    return text


def _half(files: Iterable[Path], mark: str, opening: re.Pattern[str]) -> list[str]:
    """Return the first lines of blocks of comments that begin so; the lines behind them go on with their sentence."""
    faults = []
    for path in files:
        before = ""
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            text = line.strip()
            is_first = text.startswith(f"{mark} ") and not before.startswith(f"{mark} ")
            if is_first and opening.match(text.removeprefix(f"{mark} ")):
                faults.append(f"{place(path)}:{number} {text[:60]}")
            before = text
    return faults
