"""Settings of the server that would be started, read leniently: what is wrong is a finding, and the rest counts.

Covers: flags, environment and config file, one by one. Does not cover: their order (base/sources.py).

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilth.base.errors import InvalidInputError
from tilth.base.settings import Setting, SettingGroup
from tilth.base.sources import PREFIX, gather, gather_valid
from tilth.doctor.checkup import PAGE, failed, ok
from tilth.model.diagnosis import Diagnosis

_PAGE = f"{PAGE}#settings"
CHECK = "settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSetup:
    """Settings of a set-up that could be read, and findings about them all."""

    #: Texts of settings by canonical name.
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Findings about the settings, at least one.
    findings: Sequence[Diagnosis] = ()


def read_setup(
    serve_settings: Sequence[Setting[object]],
    *,
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    file: Path | None,
) -> GivenSetup:
    """Read the settings of `tilth serve` and of the node; those that cannot be read are left out and reported."""
    from tilth.begin import NODE_SETTINGS

    group = SettingGroup((*serve_settings, *NODE_SETTINGS.all))
    texts: dict[str, str] = {}
    findings: list[Diagnosis] = []

    def add(of_flags: Mapping[str, str], of_environment: Mapping[str, str]) -> None:
        try:
            texts.update(gather(group, flags=of_flags, environment=of_environment, file=None).texts)
        except InvalidInputError as error:
            findings.append(failed(CHECK, error, _PAGE))

    if file is not None:
        of_file, errors = gather_valid(group, file)
        texts.update(of_file)
        findings += [failed(CHECK, each, _PAGE) for each in errors]
    for name, text in environment.items():
        if name.startswith(PREFIX):
            add({}, {name: text})
    for name, text in flags.items():
        add({name: text}, {})
    if not findings:
        findings.append(ok(CHECK, f"{len(texts)} settings are given, all of them known and allowed"))
    return GivenSetup(texts=texts, findings=findings)
