// Rates and lag of one Kafka table since the page was opened, as plots.

import { html, useMemo, useRef } from "../../vendor/preact-htm.js"
import { perSecond, sum } from "../../core/format.js"
import { Plot } from "../../core/plot.js"
import { partitionsOf } from "../../core/streams.js"
import { Card, Empty } from "../../core/ui.js"

/** Samples of the plots; at one in two seconds they reach an hour back. */
const SAMPLES_MAX = 1800
/** Rates are means over this time, so that rounds do not show as peaks. */
const RATE_SECONDS = 15

/** Samples of the positions, ends and lag of all partitions together, one for each answer. */
export function useHistory(answer) {
  const seen = useRef([])
  if (answer && !answer.error && answer.rows.length && seen.current.at(-1)?.at !== answer.at) {
    const partitions = answer.rows.flatMap(partitionsOf)
    const isKnown = partitions.length > 0 && partitions.every((each) => each.lag !== null)
    const sample = {
      at: answer.at,
      read: isKnown ? sum(partitions.map((each) => each.offset)) : null,
      end: isKnown ? sum(partitions.map((each) => each.end)) : null,
      lag: isKnown ? sum(partitions.map((each) => each.lag)) : null,
    }
    seen.current = [...seen.current, sample].slice(-SAMPLES_MAX)
  }
  return seen.current
}

/** Mean growth in a second of one number over the last seconds before each sample; null where it fell or is not known. */
export function ratesOf(samples, name) {
  let first = 0
  return samples.map((sample, index) => {
    while (first < index - 1 && sample.at - samples[first].at > RATE_SECONDS * 1000) first += 1
    const [before, now] = [samples[first][name], sample[name]]
    const isKnown = first < index && before !== null && now !== null && now >= before
    return isKnown ? ((now - before) * 1000) / (sample.at - samples[first].at) : null
  })
}

const RATE_LINES = [
  { label: "arrives", color: "--busy", dash: [5, 4] },
  { label: "is read", color: "--accent" },
]
const LAG_LINES = [{ label: "lag", color: "--warn" }]
const showRate = (value) => perSecond(value)

export function Plots({ samples }) {
  const last = samples.at(-1)?.at
  const [rates, lag] = useMemo(() => {
    const times = samples.map((sample) => sample.at / 1000)
    return [[times, ratesOf(samples, "end"), ratesOf(samples, "read")], [times, samples.map((sample) => sample.lag)]]
  }, [last])
  return html`<${Card} title="While this page is open" about=${`messages; rates are means over ${RATE_SECONDS} s`}>
    ${samples.length < 3
      ? html`<${Empty}>The plots begin with the next answers.<//>`
      : html`<div class="plots">
          <${Plot} label="messages per second" series=${RATE_LINES} data=${rates} show=${showRate} />
          <${Plot} label="messages not read yet" series=${LAG_LINES} data=${lag} />
        </div>`}
  <//>`
}
