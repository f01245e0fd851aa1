"""Writes docs/errors, a page for each error code: cause and cure by hand, the rest from the code.

    python -m tools.make_errors            writes the pages, and removes those of codes that are gone
    python -m tools.make_errors --check    writes nothing; names the pages that are stale, exit code 1 if there are any

Covers: code, kind, status and number; the sentences that the code prints with it, and the modules that raise it; cause,
cure and related pages from tools/error_pages/*.toml. Does not cover: the table of all codes (make_docs.py).
Always holds: the same code gives the same pages on every machine. See also: tests/docs/test_error_pages.py.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

import tilth
from tilth.base.errors import ERROR_PAGES, ErrorKind, page_of
from tilth.model.error_numbers import number_of
from tilth.server.errors import status_of
from tools.make_docs import ErrorDoc, comment_above, errors
from tools.prose import wrapped

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ERROR_PAGES
TEXTS = ROOT / "tools" / "error_pages"
MADE = "<!-- Made from the code and tools/error_pages by `python -m tools.make_errors`; do not edit. -->"

#: List of the pages in their folder.
INDEX = "README.md"
#: Page with the table of all codes.
TABLE = "errors.md"
#: Sentences of one code that its page shows.
SENTENCES_MAX = 12
#: Calls whose arguments are classes that are caught, not raised.
_CATCHES = ("isinstance", "issubclass", "suppress")


class ErrorText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hand-written part of a page."""

    #: Situation in which the code raises it.
    cause: str
    #: Step of the reader that ends it.
    cure: str
    #: Pages below docs that say more, each perhaps with a heading.
    see: tuple[str, ...] = ()


@dataclass(slots=True)
class Uses:
    """Modules that raise one code, and the sentences that they print with it."""

    #: Paths below src/tilth.
    modules: set[str] = field(default_factory=set)
    #: Sentences with the names of their facts, in the order of the code; `..` stands for what is filled in.
    sentences: list[str] = field(default_factory=list)


@cache
def texts() -> dict[str, ErrorText]:
    """Return the hand-written texts by code. Raises ValueError for a code that is there twice."""
    found: dict[str, ErrorText] = {}
    for path in sorted(TEXTS.glob("*.toml")):
        read = msgspec.convert(tomllib.loads(path.read_text()), dict[str, ErrorText])
        twice = found.keys() & read.keys()
        if twice:
            raise ValueError(f"{path.name}: {', '.join(sorted(twice))} is in another file too")
        found |= read
    return found


def pages() -> dict[str, str]:
    """Return every page by its file's name. Raises ValueError for codes without a text."""
    raised = uses()
    docs = {one.code: one for one in errors()}
    missing = sorted(docs.keys() - texts().keys())
    if missing:
        raise ValueError(f"write cause and cure in tools/error_pages of: {', '.join(missing)}")
    made = {f"{code}.md": _page(one, texts()[code], raised.get(code, Uses())) for code, one in docs.items()}
    return {INDEX: wrapped("\n".join([MADE, *_index(docs)]) + "\n"), **made}


def main(arguments: Sequence[str]) -> int:
    """Write or check; returns the exit code."""
    made = pages()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    if "--check" in arguments:
        print("\n".join(stale) or "the pages of errors are current")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in made:
            (FOLDER / name).write_text(made[name])
        else:
            (FOLDER / name).unlink()
    print(f"pages of errors: {len(made)}, written anew or removed: {len(stale)}")
    return 0


def _index(docs: Mapping[str, ErrorDoc]) -> Iterator[str]:
    yield "# Errors by kind"
    yield ""
    yield "Each page has the cause of an error and its cure. The kind says what the caller can do in any case; the"
    yield f"table of [all codes](../reference/{TABLE}) has their sentences and numbers."
    for kind in ErrorKind:
        codes = sorted(code for code, one in docs.items() if one.error.kind is kind)
        yield from ("", f"## {kind.value}", "", kind_texts()[kind], "")
        yield ", ".join(f"[`{code}`]({code}.md)" for code in codes)


def _page(one: ErrorDoc, text: ErrorText, raised: Uses) -> str:
    return wrapped("\n".join([MADE, *_lines(one, text, raised)]).rstrip() + "\n")


def _lines(one: ErrorDoc, text: ErrorText, raised: Uses) -> Iterator[str]:
    kind = one.error.kind
    yield from (f"# {one.code}", "", f"{one.message[:1].upper()}{one.message[1:].rstrip('.')}.", "")
    yield "| kind | HTTP status | number of ClickHouse or ByConity |"
    yield "|---|---|---|"
    yield f"| [`{kind.value}`](../reference/{TABLE}#kinds) | {status_of(one.error)} | {number_of(one.error)} |"
    yield from ("", f"Kind `{kind.value}`: {kind_texts()[kind]}", "")
    yield from ("## Cause", "", " ".join(text.cause.split()), "")
    yield from ("## Cure", "", " ".join(text.cure.split()), "")
    # The sentence of the class first; a client sees names, and an id where there is no name left.
    sentences = sorted(
        raised.sentences or [one.message],
        key=lambda each: (each.partition(":")[0] != one.message, not each.startswith(one.message), "uuid=" in each),
    )
    yield from ("## As printed", "", "```", f"{one.code} {sentences[0]}", f"  see: {page_of(one.code)}", "```")
    if len(sentences) > 1:
        yield from ("", "Other sentences with this code; `..` stands for what is filled in:", "", "```")
        yield from sentences[1:SENTENCES_MAX]
        yield from ["and others"] if len(sentences) > SENTENCES_MAX else []
        yield "```"
    modules = raised.modules or {one.module.removeprefix("tilth.").replace(".", "/") + ".py"}
    yield from ("", "## Raised by", "", "Modules below `src/tilth`, by room:", "")
    rooms: dict[str, list[str]] = {}
    for module in sorted(modules):
        rooms.setdefault(module.partition("/")[0].removesuffix(".py"), []).append(f"`{module}`")
    yield from (f"- {room}: {', '.join(names)}" for room, names in rooms.items())
    yield from ("", "## See also", "", f"- [all errors](../reference/{TABLE})")
    yield from (f"- [{_title(page)}](../{page})" for page in text.see)


@cache
def kind_texts() -> dict[ErrorKind, str]:
    """Return what each kind means for the caller."""
    return {kind: comment_above(ErrorKind, kind.name) for kind in ErrorKind}


def _title(page: str) -> str:
    """Return the title of a page, with the heading that the link names. Raises KeyError if there is no such heading."""
    name, _, anchor = page.partition("#")
    title, headings = _headings(ROOT / "docs" / name)
    return f"{title}: {headings[anchor]}" if anchor else title


@cache
def _headings(path: Path) -> tuple[str, dict[str, str]]:
    """Return the title of a page, and its headings by their anchors, as links to them have behind `#`."""
    found = re.findall(r"^#{1,6} (.+?)\s*$", path.read_text(), re.MULTILINE)
    return found[0], {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"): text for text in found}


def uses() -> dict[str, Uses]:
    """Return for each code where the package raises it, and with which sentences."""
    codes = {one.error.__name__: one.code for one in errors() if isinstance(one.error, type)}
    defaults = {one.code: one.message for one in errors()}
    found: dict[str, Uses] = {}
    package = Path(tilth.__file__).parent
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.startswith("testing/"):
            continue
        for function, node in _inside_functions(ast.parse(path.read_text())):
            code = _raised(node, codes)
            if code:
                use = found.setdefault(code, Uses())
                use.modules.add(name)
                if isinstance(node, ast.Call):
                    use.sentences += [
                        each for each in _sentences(node, function, defaults[code]) if each not in use.sentences
                    ]
    return found


def _inside_functions(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield every node with the innermost function around it, or with the module."""
    waiting: deque[tuple[ast.AST, ast.AST]] = deque([(tree, tree)])
    while waiting:
        function, node = waiting.popleft()
        yield function, node
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        waiting += [(inner, child) for child in ast.iter_child_nodes(node)]


def _raised(node: ast.AST, codes: dict[str, str]) -> str:
    """Return the code that a node raises or passes on to be raised; empty: none."""
    match node:
        case ast.Call(func=ast.Attribute(attr="coded"), args=[ast.Constant(value=str(code)), *_]):
            return code
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name))) if name in codes:
            return codes[name]
        case ast.Call(func=ast.Name(id=caller), args=[*_]) if caller in _CATCHES:
            return ""
        case ast.keyword(value=ast.Name(id=name)) | ast.IfExp(body=ast.Name(id=name)) if name in codes:
            return codes[name]
        case ast.IfExp(orelse=ast.Name(id=name)) | ast.Raise(exc=ast.Name(id=name)) if name in codes:
            return codes[name]
        case _:
            return ""


def _sentences(call: ast.Call, function: ast.AST, default: str) -> list[str]:
    """Return what a call prints, with the names of its facts; several where the sentence is one of several."""
    is_coded = isinstance(call.func, ast.Attribute) and call.func.attr == "coded"
    given = call.args[1 if is_coded else 0 :]
    facts = " ".join(f"{each.arg}=.." for each in call.keywords if each.arg not in ("hint", None))
    texts_given = _texts_of(given[0], function) if given else [default]
    return [f"{text}: {facts}" if facts else text for text in texts_given]


def _texts_of(node: ast.expr, function: ast.AST) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return ["".join(str(each.value) if isinstance(each, ast.Constant) else ".." for each in values)]
        case ast.IfExp(body=body, orelse=orelse):
            return [*_texts_of(body, function), *_texts_of(orelse, function)]
        case ast.Name(id=name):
            values = [
                each.value
                for each in ast.walk(function)
                if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in each.targets)
            ]
            return [text for value in values if not isinstance(value, ast.Name) for text in _texts_of(value, function)]
        case _:
            return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
