// Choices of the maintenance manager: rules that decide, and their tones.

export const RULES = {
  read_gain: "the largest gain for readers",
  free_log: "it frees log, and costs little",
  memory_pressure: "memory is scarce",
  replay_size: "too much log would have to be replayed",
  free_data: "it frees the store",
  nothing_to_gain: "nothing to gain",
  no_free_worker: "no thread is free",
  refused: "refused",
}

export const ruleTone = (rule) => ({ refused: "warn", nothing_to_gain: "", no_free_worker: "" })[rule] ?? "good"
