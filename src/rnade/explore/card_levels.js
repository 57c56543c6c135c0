// A column of levels: a bar for each, and a list to choose from.

const SHOWN_LEVELS = 8;

class LevelCard extends Card {
  pictures() {
    // Ordered levels stay in their order; of many, the likeliest are shown.
    const byShare = this.column.levels.map((_, i) => i);
    byShare.sort((i, j) => this.alone[j] - this.alone[i]);
    const shown = byShare.slice(0, SHOWN_LEVELS);
    if (this.column.kind === "ordered category") shown.sort((i, j) => i - j);
    this.rest = byShare.slice(SHOWN_LEVELS);
    this.rows = shown.map((level) => this.#row(level, this.column.levels[level]));
    if (this.rest.length) this.rows.push(this.#row(-1, `${this.rest.length} others`));
    return [element("div", { class: "levels" }, ...this.rows.flatMap(({ nodes }) => nodes))];
  }

  #row(level, words) {
    const { svg, paths } = picture(["fill-real", "line-quiet", "line-model"], words);
    const share = element("span", { class: "share" });
    const name = element("span", { class: "name", title: words }, words);
    const bar = element("span", { class: "bar" }, svg);
    return { level, paths, name, share, nodes: [name, bar, share] };
  }

  paint(masses, value, drawn) {
    const sumOfRest = (of) => this.rest.reduce((total, i) => total + of[i], 0);
    const counts = new Float64Array(masses.length);
    drawn.forEach((x) => isKnown(x) && (counts[x] += 1 / drawn.length));
    for (const { level, paths, name, share } of this.rows) {
      const [now, before, draws] = [masses, this.alone, counts]
        .map((of) => (level < 0 ? sumOfRest(of) : of[level]));
      paths[0].setAttribute("d", barPath(now));
      paths[1].setAttribute("d", linesPath([before]));
      paths[2].setAttribute("d", drawn.length ? linesPath([draws]) : "");
      share.textContent = percentWords(now);
      name.classList.toggle("chosen", level === value);
    }
  }

  expected(density, masses) {
    const best = masses.indexOf(Math.max(...masses));
    return `most likely ${this.column.levels[best]}, ${percentWords(masses[best])}`;
  }

  controls() {
    const unknown = element("option", { value: "" }, "unknown");
    const levels = this.column.levels.map((level, i) => element("option", { value: i }, level));
    this.entry = element("select", { "aria-labelledby": this.id, "aria-describedby": this.said.id },
      unknown, ...levels);
    this.entry.addEventListener("change", () =>
      this.change(this.entry.value === "" ? NaN : Number(this.entry.value)));
    return [element("div", { class: "entry" }, this.entry, this.forget)];
  }

  enter(value) {
    this.entry.value = isKnown(value) ? String(value) : "";
  }
}
