// Mutations and deltas of one table; its files: what GC keeps and why, readers, the trash.

import { html, useState } from "../../vendor/preact-htm.js"
import { named } from "../../core/api.js"
import { Kept } from "../../core/explain.js"
import { fitting, isOf } from "../../core/filters.js"
import { bytes, count, sum } from "../../core/format.js"
import { Mutations, mutationsStatement } from "../../core/mutations.js"
import { Readers, readersStatement } from "../../core/readers.js"
import { Table, ageColumn, numberColumn, textColumn } from "../../core/table.js"
import { Answer, Card, Search } from "../../core/ui.js"

const ROWS_MAX = 500

// --- mutations and deltas --------------------------------------------------------------------------------------------

export const changesStatements = (database, table) => ({
  mutations: mutationsStatement(isOf(database, table)),
  deltas: `SELECT "partition", kind, bytes, deleted_rows, updated_rows, parts, changed, active, file FROM system.deltas
    WHERE ${isOf(database, table)} ORDER BY changed DESC LIMIT ${ROWS_MAX}`,
})

const DELTAS = [
  { key: "partition", title: "partition" },
  { key: "kind", title: "kind" },
  numberColumn("deleted_rows", "deletes"),
  numberColumn("updated_rows", "updates"),
  numberColumn("parts", "of parts"),
  numberColumn("bytes", "size", bytes),
  ageColumn("changed", "changed"),
  { key: "active", title: "seen", show: (row) => (row.active ? "yes" : html`<small>replaced</small>`) },
]

export const Changes = ({ found }) => html`
  <${Card} title="Mutations">
    <${Answer} answer=${found.mutations}><${Mutations} rows=${found.mutations?.rows} /><//>
  <//>
  <${Card} title="Deltas" about="changes of rows that lie beside the parts until they are compacted">
    <${Answer} answer=${found.deltas}>
      <${Table} label="deltas" rows=${found.deltas?.rows} columns=${DELTAS} keyOf=${(row) => row.file} empty="No delta." />
    <//>
  <//>`

// --- files that are kept ---------------------------------------------------------------------------------------------

export const filesStatements = (database, table) => ({
  kept: `EXPLAIN GC ${named(database, table)}`,
  readers: readersStatement(isOf(database, table)),
  trash: `SELECT part, file, rows, bytes, moved, removable_at, reason FROM system.trash
    WHERE ${isOf(database, table)} ORDER BY removable_at LIMIT ${ROWS_MAX}`,
})

const TRASH = [
  { key: "part", title: "part", kind: "mono" },
  numberColumn("rows", "rows"),
  numberColumn("bytes", "size", bytes),
  ageColumn("moved", "moved"),
  ageColumn("removable_at", "goes"),
  textColumn("reason", "reason"),
]

const sizeOf = (rows) => bytes(sum(rows.map((row) => row.bytes)))

export function Files({ found }) {
  const [text, setText] = useState("")
  const hasWords = fitting(text)
  const kept = (found.kept?.rows ?? []).filter((row) => hasWords(Object.values(row).join(" ")))
  return html`
    <${Card} title="What GC keeps, and why" about=${`${count(kept.length)} entries, ${sizeOf(kept)}`}
      actions=${html`<${Search} label="Filter" value=${text} onChange=${setText} />`}>
      <${Answer} answer=${found.kept}><${Kept} rows=${kept} /><//>
    <//>
    <${Card} title="Readers that hold files">
      <${Answer} answer=${found.readers}><${Readers} rows=${found.readers?.rows} /><//>
    <//>
    <${Card} title="Trash" about=${found.trash && sizeOf(found.trash.rows)}>
      <${Answer} answer=${found.trash}>
        <${Table} label="trash" rows=${found.trash?.rows} columns=${TRASH} keyOf=${(row) => row.file} empty="Empty." />
      <//>
    <//>`
}
