// TODO
import { html } from "../vendor/preact-htm.js"
export default () => html`<p class="empty">TODO</p>`
