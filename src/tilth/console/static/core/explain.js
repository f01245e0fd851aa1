// Answers of EXPLAIN MERGE and EXPLAIN GC: why parts are merged or not, why files are kept.

import { bytes, count, score } from "./format.js"
import { Table, ageColumn, numberColumn, stateColumn, textColumn } from "./table.js"
import { html } from "../vendor/preact-htm.js"

const MERGE_TONES = { damaged: "bad", failed: "bad", running: "busy", summary: "", replayed: "" }

const mergeTone = (state, row) => MERGE_TONES[state] ?? (row.allowed ? "good" : "warn")

/** A range of parts that a merge could take; two of one range are at different times, in a history. */
const mergeKey = (row) => `${row.partition}/${row.first_part}/${row.last_part}/${row.next_attempt}`

const MERGES = [
  { key: "partition", title: "partition", kind: "mono tight" },
  stateColumn(mergeTone, { title: "decision" }),
  textColumn("reason", "why"),
  numberColumn("parts", "parts", count),
  numberColumn("rows", "rows", count),
  numberColumn("bytes", "size", bytes),
  numberColumn("score", "score", score),
  { key: "first_part", title: "from part", kind: "mono" },
  { key: "last_part", title: "to part", kind: "mono" },
  textColumn("back_off", "waits because"),
  ageColumn("next_attempt", "next attempt"),
]

/** Columns of EXPLAIN MERGE by their keys, for tables with a part of them. */
export const MERGE = Object.fromEntries(MERGES.map((column) => [column.key, column]))

export const Merges = ({ rows, label = "EXPLAIN MERGE", columns = MERGES, height = 320, empty = "Nothing to merge." }) =>
  html`<${Table} label=${label} rows=${rows} columns=${columns} keyOf=${mergeKey} height=${height} empty=${empty} />`

const gcTone = (state) => ({ removable: "good", visible: "" })[state] ?? "warn"

const KEPT = [
  { key: "partition", title: "partition", kind: "mono" },
  { key: "entry", title: "entry", kind: "mono" },
  { key: "kind", title: "kind" },
  stateColumn(gcTone),
  { key: "held_by", title: "kept by", kind: "text", show: (row) => row.held_by ?? "–" },
  ageColumn("until", "until"),
  numberColumn("bytes", "size", bytes),
  textColumn("reason", "why"),
]

export const Kept = ({ rows, height = 420, empty = "Nothing is kept." }) =>
  html`<${Table} label="EXPLAIN GC" rows=${rows} columns=${KEPT} height=${height} empty=${empty}
    keyOf=${(row) => `${row.kind}/${row.partition}/${row.entry}`} />`
