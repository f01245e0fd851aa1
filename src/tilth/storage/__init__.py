"""Bytes of tables: files of parts and of changes of their rows, written once, merged, read, removed.

Covers: names of files, Arrow types, partition transforms; writing, reading, merging, checking and cleaning files.
`tilth.storage.read.spark` is the second door, for those who hold a Spark session: a snapshot as a DataFrame.
Does not cover: which files make up a table (tilth.catalog), when to merge or remove (tilth.maintenance).
Always holds: a file is complete, on the disk and never changed again before its name is published; names follow from
the transaction, so what did not land is removed without listing a folder.
See also: docs/glossary.md (part, partition), tilth.model.part.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.model.table import OP_COLUMN, OP_DELETE, OP_UPSERT
    from tilth.storage.deltas.changes import PartChanges, load_changes
    from tilth.storage.deltas.deletes import RowIndexes
    from tilth.storage.deltas.deltas import (
        CHANGE_DELETE,
        CHANGE_SCHEMA_BASE,
        CHANGE_UPDATE,
        DeltaWriter,
        FoundChanges,
        presence_name,
        read_changes,
        read_deletes,
        read_unrecorded,
        value_name,
    )
    from tilth.storage.deltas.rebase import PartRebaser
    from tilth.storage.deltas.sources import iter_source, read_source, sources_of
    from tilth.storage.errors import (
        BadColumnError,
        BadPartitionError,
        DeltaFileCorruptError,
        DeltaFileNotFoundError,
        FilesLeftError,
        PartFileCorruptError,
        PartFileNotFoundError,
        PartShapeUnknownError,
        QuorumError,
        StoreAwayError,
        StoreBusyError,
        StoreRefusedError,
        UniqueKeyNullError,
        UnmappedTypeError,
    )
    from tilth.storage.merge.compact import compact_changes, compact_major, compact_minor
    from tilth.storage.merge.flush import FlushResult, flush_segments
    from tilth.storage.merge.key_ranges import Cut, CutPlan, KeyRange, plan_ranges, ranges_of
    from tilth.storage.merge.merge import Expiry, MergeResult, merge_parts
    from tilth.storage.merge.rewrite import RewriteTarget, ordered_source, rewrite_part, rewrite_target
    from tilth.storage.parts.key_filter import write_filter
    from tilth.storage.parts.notes import PartNote, read_note
    from tilth.storage.parts.part_files import (
        NewPart,
        PartWriter,
        check_file,
        footer_rows,
        ranged_columns,
        read_part,
        write_parts,
    )
    from tilth.storage.parts.rowmap import MAP_ROW_BYTES, remove_row_map
    from tilth.storage.parts.segments import (
        read_segment,
        shape_rows,
        write_segments,
    )
    from tilth.storage.settings import (
        REPLICAS_MAX,
        TABLE_SETTINGS,
        StorageSettings,
        insert_quorum,
        parse_quorum,
        storage_settings,
    )
    from tilth.storage.store.backends.local import sync_local_folder
    from tilth.storage.store.backends.marker import LOCATION_FILE, StoreLocationError
    from tilth.storage.store.files.copying import CopyCheck, make_copy, missing_copies, read_copies, remove_copies
    from tilth.storage.store.files.files import (
        are_there,
        check_size,
        list_files,
        make_folder,
        new_stream,
        new_whole_file,
        open_file,
        open_sized,
        put,
        read_file,
        remove_files,
        remove_listed,
        stamp_of,
    )
    from tilth.storage.store.files.removal import (
        clean_transaction,
        count_left,
        drop_table_folder,
        remove_data,
        remove_folder,
    )
    from tilth.storage.store.files.scratch import ScratchWriter, read_scratch, remove_scratch, scratch_name
    from tilth.storage.store.files.whole import read_whole, whole_checksum
    from tilth.storage.store.locations.location import (
        chosen_root,
        location_text,
        location_trouble,
        reserve_location,
        tables_root,
    )
    from tilth.storage.store.locations.probe import RootNotSharedError, check_probe, write_probe
    from tilth.storage.store.locations.storages import (
        NamedRoots,
        check_from_sql,
        defined_root,
        named_host,
        quorum_trouble,
    )
    from tilth.storage.store.locations.user_files import (
        BadLocationError,
        UserFile,
        UserFolder,
        changed_files,
        check_folder,
        check_pattern,
        find_folder,
        is_like_pattern,
        list_folder,
    )
    from tilth.storage.store.memory_release import release_unused
    from tilth.storage.store.paths import (
        EXTENSIONS,
        FILTER_EXTENSION,
        MAP_EXTENSION,
        PART_EXTENSION,
        SEGMENT_EXTENSION,
        SIDECAR_EXTENSIONS,
        TableLayout,
        data_folder,
        file_name,
        layout_of,
        output_of,
        part_of_sidecar,
        sidecar_name,
        table_folder,
        table_of,
    )
    from tilth.storage.store.protocol import StoredFile
    from tilth.storage.store.replicas.health import health_of, note_unanswered
    from tilth.storage.store.replicas.replica import (
        Replica,
        call_replica,
        replicas_of,
        replicas_with_marker,
        reserve_replica,
    )
    from tilth.storage.store.replicas.replicated import away_reason, begin_table
    from tilth.storage.store.replicas.witnesses import may_list_late
    from tilth.storage.store.root import (
        BadStoreError,
        Folder,
        Roots,
        StoreRoot,
        TableRoots,
        local_folder,
        local_root,
        parse_root,
        replicated_root,
    )
    from tilth.storage.store.settings import NODE_SETTINGS, NodeStorageSettings
    from tilth.storage.store.stores import store_of
    from tilth.storage.upsert.key_lookup import live_hashes, repeated_keys
    from tilth.storage.upsert.new_rows import BUFFER_BYTES, stretches, write_many, write_rows
    from tilth.storage.upsert.scopes import (
        UPSERT_HERE_BYTES_MAX,
        UPSERT_TRIES_MAX,
        UpsertLookup,
        key_scope,
        resolve_all,
        upsert_lookup,
    )
    from tilth.storage.upsert.upsert import UpsertRequest, candidates, fresh_sources, resolve_upserts
    from tilth.storage.values.arrow import (
        array_of,
        arrow_schema,
        arrow_type,
        conform,
        conform_column,
        exact_cast,
        nullable,
        schema_from_arrow,
        type_from_arrow,
        valid_texts,
    )
    from tilth.storage.values.bounds import bound_of
    from tilth.storage.values.checks import Misfit, misfits
    from tilth.storage.values.partition import (
        Partitioned,
        check_partition_by,
        column_of,
        partition_id,
        partition_ids,
        result_type,
        transform_array,
    )
    from tilth.storage.values.scan_options import can_filter
    from tilth.storage.values.shapes import expressions
else:
    __getattr__ = door(__name__)
