// Rows of an answer, counted while it arrives. Pure.

const ROWS_MAX = 10_000
/** Rows end sooner where they are large. */
const CHARACTERS_MAX = 64_000_000

const [QUOTE, BACKSLASH] = ['"', "\\"].map((letter) => letter.charCodeAt(0))
const [LIST, LIST_END, OBJECT, OBJECT_END] = [..."[]{}"].map((letter) => letter.charCodeAt(0))

/**
 * Counts the rows of an answer `{"columns": [..], "rows": [[..], ..], "summary": {..}}` piece by piece, and finds where
 * the last row ends that is shown.
 */
export class Counter {
  rows = 0
  /** Position behind the last row. */
  end = 0
  characters = 0
  /** True if there are more rows than a page shows. */
  isCut = false
  #depth = 0
  #listsDone = 0
  #isText = false
  #isEscaped = false

  add(piece) {
    for (let at = 0; at < piece.length && !this.isCut; at++) this.#see(piece.charCodeAt(at), this.characters + at)
    this.characters += piece.length
  }

  #see(code, position) {
    if (this.#isEscaped) this.#isEscaped = false
    else if (this.#isText) {
      if (code === BACKSLASH) this.#isEscaped = true
      else if (code === QUOTE) this.#isText = false
    } else if (code === QUOTE) this.#isText = true
    else if (code === LIST || code === OBJECT) {
      const isRow = code === LIST && this.#depth === 2 && this.#listsDone === 1
      if (isRow && (this.rows === ROWS_MAX || position > CHARACTERS_MAX)) this.isCut = true
      this.#depth += 1
    } else if (code === LIST_END || code === OBJECT_END) {
      this.#depth -= 1
      if (code === OBJECT_END) return
      if (this.#depth === 1) this.#listsDone += 1
      else if (this.#depth === 2 && this.#listsDone === 1) {
        this.rows += 1
        this.end = position + 1
      }
    }
  }
}
