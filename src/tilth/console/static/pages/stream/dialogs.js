// Dialogs for one Kafka table: it is switched, set to other offsets, verified.

import { html } from "../../vendor/preact-htm.js"
import { literal, objects, serverNow } from "../../core/api.js"
import { StatementDialog } from "../../core/dialog.js"
import { SwitchDialog } from "../../core/services.js"

const RESETS = {
  BEGIN: "the first message that the topics hold",
  END: "the end: only messages that come from now on",
  STORED: "the stored offsets, gaps or not",
  INVALID: "what kafka_auto_offset_reset says",
  TIMESTAMP: "the first messages at or after a time",
  OFFSETS: "the offsets below, for the partitions that they name",
}

/** Offsets behind the open gaps, in the form of the statement; the stored ones where there is no gap. */
const offsetsText = (partitions) => {
  const gaps = partitions.filter((each) => each.gap)
  return (gaps.length ? gaps : partitions)
    .map((each) => `(${literal(each.topic)}, ${each.partition}, ${each.gap?.end ?? each.gap?.start ?? each.offset ?? 0})`)
    .join(", ")
}

function ResetDialog({ name, partitions, onClose }) {
  const target = ({ where, at, offsets }) => {
    if (where === "TIMESTAMP") return `TIMESTAMP ${Number.isFinite(Date.parse(at)) ? Date.parse(at) : "…"}`
    return where === "OFFSETS" ? `OFFSETS ${offsets}` : where
  }
  const first = partitions.some((each) => each.gap) ? "OFFSETS" : "BEGIN"
  return html`<${StatementDialog} title="Go on from other offsets" danger action="Reset" onClose=${onClose}
    about="The consumers stop, the offsets move, the consumers go on. Messages in between are left out, or read once more."
    fields=${[
      { name: "where", label: "Go on at", value: first, options: Object.entries(RESETS) },
      { name: "at", label: "Time, for the first messages at or after it", type: "datetime-local" },
      { name: "offsets", label: "Offsets: topic, partition, next offset", value: offsetsText(partitions) },
    ]}
    statement=${(values) => `SYSTEM RESET CONSUME OFFSET ${name} TO ${target(values)}`} />`
}

const VERIFY_ABOUT = "Checks that every offset of the ledger is in the tables exactly once. It reads them, and changes nothing."

/** `asked`: RESET, VERIFY, or the verb of a switch. */
export function Dialogs({ asked, name, partitions, onClose, onVerified }) {
  if (asked === "RESET") return html`<${ResetDialog} name=${name} partitions=${partitions} onClose=${onClose} />`
  if (asked === "VERIFY") {
    const show = (answer) => onVerified({ at: new Date(serverNow()).toISOString(), rows: objects(answer) })
    return html`<${StatementDialog} title="Verify" action="Verify" about=${VERIFY_ABOUT} onClose=${onClose} onDone=${show}
      statement=${() => `SYSTEM VERIFY ${name}`} />`
  }
  return html`<${SwitchDialog} verb=${asked} service="consume" name=${name} onClose=${onClose} />`
}
