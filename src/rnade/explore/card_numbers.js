// A column of numbers or dates: a histogram, a slider below it, and a field to type in.

const SLIDER = 500; // steps

class NumberCard extends Card {
  pictures() {
    this.bins = this.slots.filter((slot) => "low" in slot);
    this.atoms = this.slots.filter((slot) => "value" in slot);
    const [low, high] = this.bins.length ? [this.bins[0].low, this.bins.at(-1).high] : this.range;
    this.places = this.bins.length
      ? [low, ...this.bins.map((bin) => bin.high)].map((x) => (x - low) / (high - low)) : [];
    const half = this.column.cells.measure === INTEGER ? 0.5 : 0; // bins end half a unit later
    this.share = (x) => (x - half - low) / (high - low);
    this.atomPlaces = this.atoms.map(({ value }) => this.share(value));
    this.aloneHeights = this.#heights(this.alone);
    const kinds = ["fill-real", "fill-atom", "line-quiet", "points-model", "line-model"];
    const { svg, paths } = picture(kinds, `Distribution of ${this.column.name}`);
    this.paths = paths;
    const words = (x) => valueWords(this.column, x, this.span);
    return [element("div", { class: "mini" }, svg), element("div", { class: "ends" },
      element("span", {}, words(this.range[0])), element("span", {}, words(this.range[1])))];
  }

  #heights(masses) {
    return Array.from(masses.subarray(this.atoms.length));
  }

  paint(masses, value, drawn) {
    const heights = this.#heights(masses), [now, atoms, before, draws, at] = this.paths;
    const most = Math.max(...heights, ...this.aloneHeights, 1e-12) * 1.05;
    if (this.places.length) {
      now.setAttribute("d", stepsPath(this.places, heights.map((h) => h / most)));
      before.setAttribute("d", stepsPath(this.places, this.aloneHeights.map((h) => h / most)));
    }
    // Single values are on a scale of their own, on which the whole height is certainty.
    atoms.setAttribute("d", barsPath(this.atomPlaces, masses.subarray(0, this.atoms.length), 0.02));
    const seen = drawn.filter(isKnown);
    const spread = seen.map((_, i) => 0.08 + 0.5 * ((i * 0.618) % 1)); // so that few hide others
    draws.setAttribute("d", dotsPath(seen.map(this.share), spread));
    const place = Math.min(Math.max(this.share(value), 0), 1);
    at.setAttribute("d", isKnown(value) ? linesPath([place]) : "");
  }

  expected(density, masses) {
    const words = (x) => valueWords(this.column, x, this.fine);
    const [low, median, high] = quantilesOf(density, this.slots, masses, [0.05, 0.5, 0.95])
      .map(words);
    const atoms = this.atoms.map(({ value }, i) =>
      `; exactly ${words(value)} ${percentWords(masses[i])}`);
    return `median ${median}, 90 % from ${low} to ${high}${atoms.join("")}`;
  }

  controls() {
    const { name, unit, cells } = this.column, told = { "aria-describedby": this.said.id };
    this.step = stepOf(this.column, this.span);
    const range = { type: "range", min: 0, max: SLIDER, step: 1 };
    this.slider = element("input", { ...told, ...range, "aria-label": `${name}, slider` });
    this.slider.addEventListener("input", () => this.change(this.#slid()));
    const type = unit === "day" ? "date" : unit ? "datetime-local" : "number";
    const step = unit || cells.measure === INTEGER ? this.column.step ?? 1 : "any";
    const field = { type, step, placeholder: "unknown" };
    this.entry = element("input", { ...told, ...field, "aria-labelledby": this.id });
    if (!unit)
      cells.bounds.forEach((bound, i) => {
        if (Number.isFinite(bound)) this.entry.setAttribute(i ? "max" : "min", bound);
      });
    this.entry.addEventListener("input", () => this.#typed());
    return [this.slider, element("div", { class: "entry" }, this.entry, this.forget)];
  }

  /** The value under the slider, rounded as finely as its steps are. */
  #slid() {
    const x = this.range[0] + (this.span * this.slider.value) / SLIDER;
    const value = Number((Math.round(x / this.step) * this.step).toPrecision(12));
    return Math.min(Math.max(value, this.column.cells.bounds[0]), this.column.cells.bounds[1]);
  }

  #typed() {
    const text = this.entry.value, x = readValue(this.column, text);
    const wrong = !isKnown(x) && (text !== "" || this.entry.validity.badInput);
    this.entry.setAttribute("aria-invalid", wrong);
    this.entry.setCustomValidity(wrong ? "This column cannot hold such a value." : "");
    if (wrong) this.entry.reportValidity();
    else this.change(x);
  }

  enter(value) {
    this.slider.disabled = this.entry.disabled;
    // What is being typed stays as it is.
    if (!Object.is(readValue(this.column, this.entry.value), value))
      this.entry.value = isKnown(value) ? writeValue(this.column, value) : "";
    const middle = isKnown(value) ? value : (this.range[0] + this.range[1]) / 2;
    const at = ((middle - this.range[0]) / this.span) * SLIDER;
    if (document.activeElement !== this.slider || !isKnown(value)) this.slider.value = at;
    this.slider.setAttribute("aria-valuetext", valueWords(this.column, value, this.fine));
  }
}

/** To what a slider rounds: a power of ten about as fine as its steps, or a whole unit. */
function stepOf({ cells, unit, step }, span) {
  if (unit) return unit === "day" ? 1 : step ?? 1;
  const fine = 10 ** Math.floor(Math.log10(span / SLIDER));
  return cells.measure === INTEGER ? Math.max(1, fine) : fine;
}
