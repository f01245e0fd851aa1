// Backups of the catalog.

import { html, useState } from "../../vendor/preact-htm.js"
import { literal, objects, serverNow, useRead } from "../../core/api.js"
import { AuditLines, auditLines } from "../../core/audit.js"
import { StatementDialog } from "../../core/dialog.js"
import { bytes, exactly } from "../../core/format.js"
import { Badge, Card, Time } from "../../core/ui.js"

export const backupStatements = () => ({ backups: auditLines("BACKUP CATALOG") })

const BACKUP_FOLDER = "SELECT value FROM system.settings WHERE name = 'catalog.backup-folder'"

/** A name that no other backup has. */
const freshName = () => `catalog-${new Date(serverNow()).toISOString().slice(0, 19).replaceAll(":", "-")}Z`

export function Backup({ found }) {
  const [isAsked, setAsked] = useState(false)
  const [files, setFiles] = useState([])
  const folder = useRead(BACKUP_FOLDER).rows[0]?.value
  return html`
    <${Card} title="Backup of the catalog" wide actions=${html`<button type="button" class="main" onClick=${() => setAsked(true)}>Back up …</button>`}
      about="One file with all that the catalog knows at one moment: definitions, parts, offsets, switches, secrets.">
      <p class="about">It is written below <code>${folder || "backups in the data folder"}</code>
        (<a href="#/settings?search=catalog.backup-folder">catalog.backup-folder</a>). Files of tables are copied beside it;
        <code>tilth catalog restore</code> makes a catalog of it again.</p>
      ${files.map((row) => html`<p key=${row.file} role="status"><${Badge} tone="good">written<//> <code>${row.file}</code>:
        ${bytes(row.bytes)}, ${exactly(row.records)} records as of <${Time} at=${row.created} /></p>`)}
    <//>
    <${Card} title="Past backups" wide>
      <${AuditLines} answer=${found.backups} label="past backups" empty="The audit log has none." />
    <//>
    ${isAsked &&
    html`<${StatementDialog} title="Back up the catalog" action="Back up" onClose=${() => setAsked(false)}
      onDone=${(answer) => setFiles((old) => [...objects(answer), ...old])}
      about="Everything goes on meanwhile; no file is ever replaced."
      fields=${[{ name: "name", label: "Name of the file", value: freshName() }]}
      statement=${({ name }) => `BACKUP CATALOG TO ${literal(name)}`} />`}`
}
