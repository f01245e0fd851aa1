"""Settings of a node about the locations of its files."""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.hosts import HOSTS
from tilth.base.settings import SettingCheck, SettingGroup, node_setting, settings_of
from tilth.model.storage import DEFAULT_STORAGE
from tilth.storage.store.root import parse_root


def _locations(text: str) -> tuple[str, ...]:
    """Read addresses with commas between. Raises ValueError and BadStoreError."""
    roots = [parse_root(each.strip()) for each in text.split(",") if each.strip()]
    if any(each.replicas for each in roots):
        raise ValueError("a location of files has no replicas")
    return tuple(each.text for each in roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStorageSettings:
    """Location of the files of a node."""

    root: str = node_setting(
        "storage.root",
        "",
        SettingCheck(lambda text: parse_root(text).text if text.strip() else "", "a folder or a URI"),
        "Where the files of all tables are: a folder, or the URI of a location in a store, with references to secrets. "
        "Empty: `tables` in the data folder. Chosen at the first start: files are not moved.",
    )
    default: str = node_setting(
        "storage.default",
        DEFAULT_STORAGE,
        SettingCheck(str, "the name of a storage"),
        "The storage of a new table whose statement has no `storage_policy`, and of new tables of dead letters. With "
        "that of a storage with replicas each new table has them. Tables that are there stay where they are.",
    )
    local_folder: str = node_setting(
        "storage.local-folder",
        "",
        SettingCheck(lambda text: parse_root(text).uri if text.strip() else "", "a folder"),
        "CREATE STORAGE may use folders of this machine below this one, and no others. Empty: none.",
    )
    secrets_folder: str = node_setting(
        "storage.secrets-folder",
        "",
        SettingCheck(lambda text: parse_root(text).uri if text.strip() else "", "a folder"),
        "The address of a CREATE STORAGE may refer to files with secrets below this folder, and to no others. Empty: "
        "to none, and only to variables of the environment whose names begin with TILTH_STORAGE_.",
    )
    hosts: tuple[str, ...] = node_setting(
        "storage.hosts",
        (),
        HOSTS,
        "Hosts that the address of a CREATE STORAGE may name as its endpoint, as in `*.example.com, 10.0.0.0/8`; the "
        "operator's own `storage.root` may be anywhere. Empty: all but link-local addresses and those of the metadata "
        "services of clouds.",
    )
    file_locations: tuple[str, ...] = node_setting(
        "storage.file-locations",
        (),
        SettingCheck(_locations, "folders and URIs of locations, with commas between", separator=","),
        "Locations of files that COPY INTO may read and EXPORT may write, with the options that reach them, as in "
        "`/data/in, s3://landing/events?endpoint=..&key=env:NAME&secret=env:NAME`: everything below them, and nothing "
        "else but the folder `files` of each storage. Empty: that folder alone.",
    )


NODE_SETTINGS = SettingGroup(settings_of(NodeStorageSettings))
