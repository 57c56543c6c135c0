// The page: what is set, what follows from it, and the buttons.

const DRAWS = 100, P_DRAWS = 300;
const AT_ONCE = 5; // milliseconds that set columns may take before the next frame

class Page {
  constructor(facts, tensors) {
    this.facts = facts;
    this.model = new Model(facts, tensors);
    this.ask = answersOf(this.model);
    this.rows = tensors["rows"] ?? new Float64Array(0);
    this.state = new State(this.model);
    this.schedule = new Schedule();
    this.drawn = [];
    this.random = randomNumbers(Date.now());
    const alone = new Conditionals(this.model, this.state.values);
    this.cards = this.model.columns.map((column, d) => {
      const Kind = column.levels ? LevelCard : NumberCard;
      return new Kind(column, alone.of(d), (x) => this.set(d, x)).build();
    });
    document.querySelector(".columns").append(...this.cards.map(({ node }) => node));
    this.pair = new PairPicture(this.cards, document.getElementById("pair"), (pair) => {
      this.state.pair = pair;
      this.changed(true);
    });
    this.glance = Object.fromEntries([...document.querySelectorAll("[data-glance]")]
      .map((node) => [node.dataset.glance, node]));
    this.#listen();
    this.read();
  }

  #listen() {
    const on = (name, action) =>
      document.querySelector(`[data-do=${name}]`).addEventListener("click", action);
    on("typical", () => this.setRanked(this.facts.typical, 0.5));
    on("oddest", () => this.setRanked(this.facts.oddest, 0));
    on("draw", () => this.drawRow());
    on("draws", () => this.drawRows());
    on("forget", () => this.setRow(this.model.columns.map(() => NaN)));
    document.querySelector("#row")?.addEventListener("change", ({ target }) => {
      if (target.reportValidity() && target.value !== "") this.setRow(this.rowAt(target.value - 1));
    });
    window.addEventListener("hashchange", () => this.read());
  }

  /** Take what is set from the address. */
  read() {
    const wrong = this.state.readAddress(location.hash.slice(1));
    const notice = document.getElementById("notice");
    notice.hidden = wrong.length === 0;
    notice.textContent = `The link sets what this model does not have: ${wrong.join("; ")}.`;
    this.drawn = [];
    this.update();
  }

  set(d, x) {
    this.state.set(d, x);
    this.changed(false);
  }

  setRow(row) {
    this.state.setRow(row);
    this.changed(true);
  }

  /** A row of the table that the page was given. */
  rowAt(i) {
    return this.rows.subarray(i * this.model.nColumns, (i + 1) * this.model.nColumns);
  }

  /** Set the row of the table at a place, or without a table a drawn one by its log density. */
  setRanked(at, share) {
    if (at !== null) return this.setRow(this.rowAt(at));
    const nothing = new Float64Array(this.model.nColumns).fill(NaN);
    this.#draw(share ? "typical" : "oddest", nothing, randomNumbers(2), (drawn) => {
      drawn.sort((one, other) => one.logDensity - other.logDensity);
      this.setRow(drawn[Math.floor(share * DRAWS)].row);
    });
  }

  /** Draw again soon, and keep what is set in the address; `step` makes "back" return to before. */
  changed(step) {
    this.drawn = [];
    this.step ||= step;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.update();
      try {
        const address = `#${this.state.toAddress()}`;
        if (this.step) history.pushState(null, "", address);
        else history.replaceState(null, "", address);
      } catch {
        // A page without an address of its own, as in a notebook.
      }
      this.step = false;
    });
  }

  /** Redraw all columns at once, those that are set while there is time; the rest in slices. */
  update() {
    const known = this.state.known(), conditionals = new Conditionals(this.model, known);
    this.cards.forEach((card, d) => {
      card.show(known[d], !isKnown(this.state.values[d]) && isKnown(known[d]));
      if (!isKnown(known[d])) card.draw(conditionals.of(d), NaN, this.#drawnOf(d));
    });
    this.pair.show(this.state.pair);
    const set = this.cards.filter((_, d) => isKnown(known[d]));
    const rest = set.length ? "the rest follows" : "all as in any row";
    this.#say("set", `${set.length} of ${this.cards.length}`, rest);
    const own = this.#setColumns(conditionals, set, known), end = performance.now() + AT_ONCE;
    while (performance.now() < end) if (own.next().done) break;
    this.schedule.begin([
      own,
      this.#joint(known, set.length),
      this.pair.work(this.model, this.state.pair, known, this.drawn),
      this.#rarity(known, set.length),
    ]);
  }

  #drawnOf(d) {
    return this.drawn.map((row) => row[d]);
  }

  #say(name, big, small = "") {
    const [number, words] = this.glance[name].querySelectorAll("dd");
    number.textContent = big;
    words.textContent = small;
  }

  /** Show each set column as the others predict it, and which value is the most surprising. */
  *#setColumns(conditionals, set, known) {
    const surprises = [];
    for (const card of set) {
      const { d } = card.column, density = conditionals.of(d);
      card.draw(density, known[d], []);
      surprises.push(typicalLogDensity(density, card.slots) - density.logProb(known[d]));
      yield;
    }
    const most = Math.max(...surprises);
    set.forEach((card, i) => card.showSurprise(surprises[i], surprises[i] === most));
    const at = set[surprises.indexOf(most)];
    if (!at || most < 1) {
      this.#say("surprise", "none", at ? "all as likely as is typical" : "nothing is set");
      return;
    }
    const value = valueWords(at.column, known[at.column.d], at.fine);
    const less = `${numberWords(most, 2)} nats less likely than is typical`;
    this.#say("surprise", at.column.name, `${value}: ${less}`);
  }

  /** The log density of what is set, and how much it depends on the order of the columns. */
  *#joint(known, n) {
    if (!n) return this.#say("density", "0", "nothing is set");
    this.#say("density", "…");
    const along = yield* logDensities(this.model, known);
    this.logDensity = logAverage(along);
    const mean = along.reduce((sum, x) => sum + x, 0) / along.length;
    const spread = Math.sqrt(along.reduce((sum, x) => sum + (x - mean) ** 2, 0) / along.length);
    const orders = n > 1 ? `, ± ${numberWords(spread, 2)} over ${along.length} orders` : "";
    const finite = Number.isFinite(this.logDensity);
    const words = finite ? fixedWords(this.logDensity, 2) : numberWords(this.logDensity);
    this.#say("density", words, `nats${orders}`);
  }

  /** The p-value of what is set, with those of fewer draws meanwhile; then all of it as words. */
  *#rarity(known, n) {
    if (!n) return this.#say("p", "1", "nothing is set");
    this.#say("p", "…");
    const random = randomNumbers(1); // the same values always have the same p-value
    const p = yield* pValue(this.model, known, P_DRAWS, random, (p, i) => {
      if (i % 20 === 0) this.#say("p", numberWords(p, 2), `so far, by ${i} rows drawn`);
    });
    this.#say("p", numberWords(p, 2), `by ${P_DRAWS} rows drawn from the model`);
    const [log, odd] = ["density", "surprise"].map((name) =>
      this.glance[name].querySelector("dd").textContent);
    document.getElementById("told").textContent =
      `Log density ${log}, p-value ${numberWords(p, 2)}, most surprising: ${odd}.`;
  }

  /** Set what is unknown to values drawn given the rest. */
  drawRow() {
    this.#draw("draw", this.state.known(), this.random, ([{ row }]) => this.setRow(row), 1);
  }

  /** Show rows drawn given what is set, as points. */
  drawRows() {
    this.#draw("draws", this.state.known(), this.random, (drawn) => {
      this.drawn = drawn.map(({ row }) => row);
      this.update();
    });
  }

  /** Draw rows given values, telling on a button how many there are, and hand them on. */
  #draw(name, known, random, then, n = DRAWS) {
    const button = document.querySelector(`[data-do=${name}]`), words = button.textContent;
    const { model } = this;
    if (button.disabled) return;
    this.schedule.first((function* () {
      const drawn = [];
      button.disabled = true;
      try {
        while (drawn.length < n) {
          drawn.push(yield* drawRow(model, known, random));
          if (drawn.length % 10 === 0) button.textContent = `${drawn.length} drawn`;
        }
      } finally {
        button.textContent = words;
        button.disabled = false;
      }
      then(drawn);
    })());
  }
}
