"""Definitions of other systems, one file for each, with what importing them gives in a comment before each.

Modules: migration/translate.py, migration/draft.py.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT
from tilth.grammar.statements import CreateTable
from tilth.migration import DdlReport, Difference, ForeignSystem, StatementVerdict, Translated, translate_script
from tilth.migration.checks import check
from tilth.statements.registry import parse

FILES = sorted((ROOT / "tests" / "fixtures" / "ddl").glob("*.sql"))
EXPECTED = re.compile(r"^--= (.*)$", re.MULTILINE)
#: Statements of all files together.
STATEMENTS_MIN = 90


@cache
def report_of(path: Path) -> DdlReport:
    return translate_script(path.read_text())


def expectations(path: Path) -> list[str]:
    return EXPECTED.findall(path.read_text())


CASES = [
    pytest.param(path, number, id=f"{path.stem}-{number}")
    for path in FILES
    for number in range(len(expectations(path)))
]


def shown(translated: Translated) -> list[str]:
    return [f"{each.kind.value}: {each.what} {each.why} {each.instead}" for each in translated.findings]


def test_the_corpus_is_large_and_every_statement_has_a_line() -> None:
    assert len(CASES) >= STATEMENTS_MIN
    assert {path.stem for path in FILES} == {source.value for source in ForeignSystem}
    for path in FILES:
        assert len(report_of(path).statements) == len(expectations(path)), path.name


@pytest.mark.parametrize(("path", "number"), CASES)
def test_a_statement_gives_what_its_line_says(path: Path, number: int) -> None:
    translated = report_of(path).statements[number]
    verdict, *findings = expectations(path)[number].split("; ")
    name, _, reason = verdict.partition(": ")
    found = shown(translated)
    assert (translated.verdict.value, found) == (name, found)
    wanted = [*findings, *([f"refused: {reason}"] if reason else [])]
    missing = [
        each
        for each in wanted
        if not any(one.startswith(each.split(": ", 1)[0]) and each.split(": ", 1)[1] in one for one in found)
    ]
    assert missing == [], found
    assert (translated.verdict is StatementVerdict.REFUSED) == any(one.startswith("refused") for one in found)


@pytest.mark.parametrize(("path", "number"), CASES)
def test_what_goes_out_is_read_by_tilth_and_nothing_goes_out_otherwise(path: Path, number: int) -> None:
    translated = report_of(path).statements[number]
    goes_out = translated.verdict in (StatementVerdict.UNCHANGED, StatementVerdict.CHANGED)
    assert (translated.statement is not None) == goes_out
    if translated.statement is None:
        return
    statement = parse(translated.statement)
    is_nullable = ("data_type_default_nullable", "0") not in translated.settings
    check(statement, is_nullable=is_nullable)
    assert is_nullable == (translated.source not in (ForeignSystem.CLICKHOUSE, ForeignSystem.BYCONITY))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_unchanged_texts_are_the_user_s_own(path: Path) -> None:
    text = path.read_text()
    for translated in report_of(path).statements:
        if translated.verdict is StatementVerdict.UNCHANGED:
            assert translated.statement is not None
            assert translated.statement in text
            assert all(each.kind is not Difference.LEFT_OUT for each in translated.findings)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_finding_is_on_a_line_of_its_statement(path: Path) -> None:
    report = report_of(path)
    starts = [each.line for each in report.statements]
    for translated, end in zip(report.statements, [*starts[1:], 10**6], strict=True):
        lines = [finding.line for finding in translated.findings]
        assert lines == sorted(lines)
        assert all(translated.line <= line < end for line in lines), translated


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_windows_line_ends_change_nothing(path: Path) -> None:
    plain = report_of(path)
    windows = translate_script(path.read_text().replace("\n", "\r\n"))
    assert [(each.line, each.what, each.verdict) for each in windows.statements] == [
        (each.line, each.what, each.verdict) for each in plain.statements
    ]
    for each, other in zip(plain.statements, windows.statements, strict=True):
        assert [finding.line for finding in each.findings] == [finding.line for finding in other.findings]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_goes_out_is_imported_as_it_is(path: Path) -> None:
    """Tables that were written anew, imported once more, are unchanged."""
    for translated in report_of(path).statements:
        if translated.statement is None or not isinstance(parse(translated.statement), CreateTable):
            continue
        (again,) = translate_script(
            translated.statement, ForeignSystem.CLICKHOUSE if translated.settings else None
        ).statements
        assert again.verdict is StatementVerdict.UNCHANGED, (translated.statement, shown(again))
        assert again.statement == translated.statement
