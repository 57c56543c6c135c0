// One column: its picture, what is expected of it in words, and the controls that set it.

const BINS = 72;
const TAILS = 0.001; // left out of a picture on either side, where they are long

class Card {
  /**
   * `alone` is the distribution with nothing set; `change` is called with a value, or NaN to
   * forget the column.
   */
  constructor(column, alone, change) {
    Object.assign(this, { column, change });
    this.id = `column-${column.d}`;
    this.range = rangeOf(column, alone);
    this.span = this.range[1] - this.range[0];
    this.fine = column.unit ? this.span : this.span / 10; // as which values are written
    this.slots = slotsOf(column, this.range, BINS);
    this.alone = massesOf(alone, this.slots);
    this.said = element("p", { class: "said", id: `${this.id}-said` });
    this.odd = element("p", { class: "surprise" });
    this.forget = element("button", { type: "button", class: "forget" }, "forget");
    this.forget.setAttribute("aria-label", `Forget ${column.name}`);
    this.forget.addEventListener("click", () => change(NaN));
  }

  /** Its element, made of the pictures and controls that its kind has. */
  build() {
    const name = element("h4", { id: this.id, title: this.column.name }, this.column.name);
    this.node = element("div", { class: "column", role: "group", "aria-labelledby": this.id },
      name, ...this.pictures(), this.said, ...this.controls(), this.odd);
    this.node.addEventListener("keydown", ({ key }) => key === "Escape" && this.change(NaN));
    return this;
  }

  /** Show a distribution, with the value that is set (or NaN) and values drawn. */
  draw(density, value, drawn) {
    const masses = massesOf(density, this.slots);
    this.paint(masses, value, drawn);
    const words = this.expected(density, masses);
    if (this.said.textContent !== words) this.said.textContent = words;
  }

  /** Show what is set in the controls. `implied` says that it follows from another column. */
  show(value, implied) {
    this.node.classList.toggle("set", isKnown(value));
    this.forget.disabled = !isKnown(value) || implied;
    this.entry.disabled = implied;
    this.enter(value);
    if (!isKnown(value)) this.odd.textContent = "";
  }

  /** Say how surprising the value is: nats by which it is less likely than is typical. */
  showSurprise(nats, most) {
    const far = nats >= 1;
    const which = most ? ": the most surprising" : "";
    this.odd.textContent = far
      ? `${numberWords(nats, 2)} nats less likely than is typical there${which}`
      : "as likely as is typical there";
    this.odd.classList.toggle("off", far);
  }
}

/** The range of a picture: all of the table's, but for long tails. */
function rangeOf({ cells }, density) {
  if (cells.measure === LEVEL) return [0, 1];
  const [first, last] = cells.measure === INTEGER
    ? [Math.ceil(cells.reach[0]), Math.floor(cells.reach[1])] : cells.reach;
  if (!(last > first)) return [first - 0.5, last + 0.5];
  const [low, high] = [density.quantile(TAILS), density.quantile(1 - TAILS)];
  const room = Math.max((high - low) / 4, 1e-9 * (last - first));
  return [first < low - room ? low : first, last > high + room ? high : last];
}
