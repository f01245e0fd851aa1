// Parts of one table: drawn, merged, and by partition.

import { html } from "../../vendor/preact-htm.js"
import { named } from "../../core/api.js"
import { chosenOf } from "../../core/address.js"
import { MERGE, Merges } from "../../core/explain.js"
import { isOf } from "../../core/filters.js"
import { bytes, count, seconds } from "../../core/format.js"
import { Table, ageColumn, numberColumn, someColumn, textColumn } from "../../core/table.js"
import { Answer, Badge, Card, Failure, Percent, Select, Waiting } from "../../core/ui.js"
import { LAYOUTS, PartMap } from "./map.js"

const PARTS_MAX = 20_000
const PARTITIONS_MAX = 5000
const LAYOUT_OPTIONS = Object.entries(LAYOUTS).map(([name, [title]]) => [name, title])

const layoutOf = (parameters) => chosenOf(Object.keys(LAYOUTS), parameters.get("layout"))

export const partsStatements = (database, table, parameters) => {
  const where = isOf(database, table)
  return {
    parts: `SELECT name, "partition", level, rows, deleted_rows, deltas, bytes, min_block, max_block, first_insert, last_insert,
      cut, ${layoutOf(parameters) === "keys" ? "ranges, " : ""}damaged FROM system.parts WHERE ${where} AND active
      ORDER BY "partition", min_block LIMIT ${PARTS_MAX}`,
    partitions: `SELECT "partition", parts, segments, rows, deleted_rows, bytes, max_level, last_insert, insert_pressure
      FROM system.partitions WHERE ${where} ORDER BY "partition" LIMIT ${PARTITIONS_MAX}`,
    merges: `EXPLAIN MERGE ${named(database, table)}`,
    running: `SELECT task, state, progress, elapsed, input_bytes, reason FROM system.merges WHERE ${where}`,
  }
}

const PARTITIONS = [
  { key: "partition", title: "partition" },
  numberColumn("parts", "parts"),
  numberColumn("segments", "segments"),
  numberColumn("rows", "rows"),
  someColumn("deleted_rows", "deleted"),
  numberColumn("bytes", "size", bytes),
  numberColumn("max_level", "level"),
  ageColumn("last_insert", "last insert"),
  textColumn("insert_pressure", "INSERTs", {
    show: (row) => row.insert_pressure && html`<${Badge} tone="warn">${row.insert_pressure}<//>`,
  }),
]

const RUNNING = [
  { key: "state", title: "state" },
  { key: "progress", title: "progress", show: (row) => html`<${Percent} part=${row.progress} />` },
  numberColumn("elapsed", "for", seconds),
  numberColumn("input_bytes", "input", bytes),
  textColumn("reason", "reason"),
]

const CANDIDATES = [
  MERGE.partition,
  {
    key: "allowed",
    title: "merge",
    show: (row) => html`<${Badge} tone=${row.allowed ? "good" : "warn"}>${row.allowed ? "would be done" : "no"}<//>`,
  },
  ...["state", "reason", "back_off", "score", "parts", "rows", "bytes", "next_attempt"].map((key) => MERGE[key]),
]

export function Parts({ found, info, parameters, change }) {
  const layout = layoutOf(parameters)
  const parts = found.parts?.rows
  const candidates = found.merges?.rows ?? []
  if (!parts) return html`<${Waiting} />`
  return html`
    <${Card} title="Parts" about=${parts.length === PARTS_MAX ? `the first ${count(PARTS_MAX)}` : LAYOUTS[layout][1]}
      actions=${html`<${Select} label="What the width is" value=${layout} options=${LAYOUT_OPTIONS}
        onChange=${(value) => change({ layout: value })} />`}>
      <${Failure} error=${found.parts.error} />
      <${PartMap} parts=${parts} candidates=${candidates} layout=${layout} column=${info.sort_key?.[0]}
        chosenName=${parameters.get("part")} onChoose=${(name) => change({ part: name })} />
    <//>
    ${found.running?.rows.length > 0 &&
    html`<${Card} title="Merges under way">
      <${Table} label="merges" rows=${found.running.rows} columns=${RUNNING} keyOf=${(row) => row.task} />
    <//>`}
    <${Card} title="What would be merged, and why not">
      <${Answer} answer=${found.merges}><${Merges} label="merge candidates" rows=${candidates} columns=${CANDIDATES} /><//>
    <//>
    <${Card} title="Partitions">
      <${Answer} answer=${found.partitions}>
        <${Table} label="partitions" rows=${found.partitions?.rows} columns=${PARTITIONS} keyOf=${(row) => row.partition}
          empty="No partition has rows." />
      <//>
    <//>`
}
