"""Settings of a node about its places of files."""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.settings import SettingCheck, SettingGroup, node_setting, settings_of
from tilth.storage.store.root import parse_root


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStorageSettings:
    """Place of the files of a node."""

    root: str = node_setting(
        "storage.root",
        "",
        SettingCheck(lambda text: parse_root(text).text if text.strip() else "", "a folder or a URI"),
        "Where the files of all tables are: a folder, or the URI of a place in a store, with references to secrets. "
        "Empty: `tables` in the data folder. Chosen at the first start: files are not moved.",
    )


NODE_SETTINGS = SettingGroup(settings_of(NodeStorageSettings))
