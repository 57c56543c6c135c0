// What is set, and which two columns are looked at; both are kept in the address of the page.

/** Text that can stand in an address between = & and ~. */
const escaped = (text) => encodeURIComponent(text).replace(/~/g, "%7E");

const isPair = ([a, b]) => a >= 0 && b >= 0 && a !== b;

class State {
  constructor(model) {
    this.model = model;
    this.values = new Float64Array(model.nColumns).fill(NaN);
    this.pair = [-1, -1];
  }

  /** Set a column, or forget it with NaN. What tells whether it is missing follows. */
  set(d, x) {
    const { columns, indicatorOf } = this.model;
    this.values[d] = x;
    // That a cell is missing and what it holds cannot both be set.
    if (isKnown(x) && indicatorOf[d] >= 0) this.values[indicatorOf[d]] = NaN;
    const told = columns.findIndex(({ name }) => name === columns[d].indicates);
    if (isKnown(x) && told >= 0) this.values[told] = NaN;
  }

  /** Set a whole row; cells that are missing in it become unknown. */
  setRow(row) {
    this.values = Float64Array.from(row, (x) => x ?? NaN);
    this.model.indicatorOf.forEach((indicator, d) => {
      if (indicator >= 0 && isKnown(this.values[d])) this.values[indicator] = NaN;
    });
  }

  /** What is known: all that is set, and that cells with a value are not missing. */
  known() {
    const known = Float64Array.from(this.values);
    this.model.indicatorOf.forEach((indicator, d) => {
      if (indicator >= 0 && isKnown(known[d])) known[indicator] = 0;
    });
    return known;
  }

  /** As the part of an address after #. */
  toAddress() {
    const { columns } = this.model, parts = [];
    this.values.forEach((x, d) => {
      if (!isKnown(x)) return;
      parts.push(`${escaped(columns[d].name)}=${escaped(writeValue(columns[d], x))}`);
    });
    if (isPair(this.pair))
      parts.push(`~=${this.pair.map((d) => escaped(columns[d].name)).join("~")}`);
    return parts.join("&");
  }

  /** Read an address. Gives names and values in it that the model does not have. */
  readAddress(address) {
    const { columns } = this.model, wrong = [];
    this.values.fill(NaN);
    this.pair = [-1, -1];
    for (const part of address.split("&").filter(Boolean)) {
      const [key, value = ""] = part.split("=", 2);
      try {
        if (key === "~") {
          const pair = value.split("~").map((name) =>
            columns.findIndex((column) => column.name === decodeURIComponent(name)));
          if (pair.length === 2 && isPair(pair)) this.pair = pair;
          else wrong.push(decodeURIComponent(value));
          continue;
        }
        const name = decodeURIComponent(key);
        const column = columns.find((one) => one.name === name);
        const x = column ? readValue(column, decodeURIComponent(value)) : NaN;
        if (isKnown(x)) this.set(column.d, x);
        else wrong.push(`${name} = ${decodeURIComponent(value)}`);
      } catch {
        wrong.push(part); // no text that an address can hold
      }
    }
    return wrong;
  }
}

/** A value as text that `readValue` reads. */
function writeValue(column, x) {
  if (column.levels) return column.levels[x];
  return column.unit ? isoDate(x, column) : String(x);
}

/** Text as a value of a column; NaN if it cannot hold that. */
function readValue(column, text) {
  if (column.levels) {
    const at = column.levels.indexOf(text);
    return at < 0 ? NaN : at;
  }
  if (text.trim() === "") return NaN;
  const x = column.unit ? readDate(text, column) : Number(text), { cells } = column;
  const whole = cells.measure !== INTEGER || Number.isInteger(x);
  return Number.isFinite(x) && whole && x >= cells.bounds[0] && x <= cells.bounds[1] ? x : NaN;
}
