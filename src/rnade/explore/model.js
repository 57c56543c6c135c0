// A fitted table: its columns, networks, orders and links, put together from what the page carries.

class Model {
  /** `facts` is the page's JSON, `tensors` are its arrays by name. */
  constructor(facts, tensors) {
    this.columns = facts.columns.map((column, d) => ({
      ...column, d, cells: new Cells(arraysOf(tensors, `column ${d} `)),
    }));
    this.nComponents = facts.n_components;
    this.orders = facts.orders;
    const links = facts.links.map((link, i) => ({ ...link, ...arraysOf(tensors, `link ${i} `) }));
    this.links = facts.columns.map((_, d) => links.filter(({ target }) => target === d));
    this.gaussians = facts.gaussians ? new Gaussians(arraysOf(tensors, "gaussians ")) : null;
    // For columns whose missing cells are modelled, the column that tells them.
    this.indicatorOf = this.columns.map(({ name }) =>
      this.columns.findIndex((other) => other.indicates === name));
    const inputs = this.#inputs(), nLinks = Math.max(...this.links.map((own) => own.length));
    const networks = facts.predicts.map((own, m) =>
      new Network(arraysOf(tensors, `network ${m} `), this.#heads(own, nLinks), inputs));
    // Either each network predicts all columns, or all of them together do.
    this.walkers = facts.apart ? [networks] : networks.map((network) => [network]);
    this.apart = facts.apart;
  }

  get nColumns() {
    return this.columns.length;
  }

  /** Rows of the first layer's weights: of the first cell of a column, its number, being seen. */
  #inputs() {
    const numbers = this.columns.filter(({ cells }) => cells.hasSmooth);
    const nCells = this.columns.reduce((sum, { cells }) => sum + cells.nCells, 0);
    let first = 0;
    return this.columns.map((column, d) => {
      const place = numbers.indexOf(column), firstCell = first;
      first += column.cells.nCells;
      const number = place < 0 ? -1 : nCells + place;
      return { firstCell, number, seen: nCells + numbers.length + d };
    });
  }

  /** Where a network has its outputs for the columns that it predicts. */
  #heads(predicted, nLinks) {
    const heads = {};
    let first = 0;
    predicted.forEach((d, place) => {
      const { nCells, hasSmooth } = this.columns[d].cells;
      const n = nCells + (hasSmooth ? 3 * this.nComponents : 0);
      heads[d] = [first, n, place * nLinks, nLinks];
      first += n;
    });
    return heads;
  }

  /** What the links of column d say, given values (NaN where not known); null for nothing. */
  linked(d, values) {
    const { cells } = this.columns[d];
    return this.links[d].map((link) => {
      const known = Array.from(link.sources, (source) => values[source]);
      if (known.some(Number.isNaN)) return null;
      if (link.counts.length) return this.#table(link, cells, known[0]);
      return exactValue(link, cells, known);
    });
  }

  #table({ sources, counts, prior }, cells, value) {
    const C = cells.nCells, code = this.columns[sources[0]].cells.encode(value).code;
    const found = new Float64Array(C);
    let total = prior[0];
    for (let c = 0; c < C; c++) {
      const count = code < 0 ? 0 : counts[code * C + c];
      found[c] = count + prior[0] * cells.shares[c];
      total += count;
    }
    return { cells: found.map((share) => share / total) };
  }

  /** The distribution of column d from the outputs of networks. */
  density(d, outputs, values) {
    const { cells } = this.columns[d], linked = this.linked(d, values), { gaussians } = this;
    if (!gaussians?.share[d]) return new ColumnDensity(cells, this.nComponents, outputs, linked);
    const positions = Array.from(values, (x, e) =>
      Number.isNaN(x) ? NaN : this.columns[e].cells.encode(x).position);
    const beside = gaussians.of(d, positions), share = gaussians.share[d];
    return new ColumnDensity(cells, this.nComponents, outputs, linked, beside, share);
  }
}

function exactValue({ sources, signs }, cells, known) {
  const value = known.reduce((sum, x, i) => sum + signs[i] * x, 0);
  const inside = value > cells.reach[0] && value < cells.reach[1];
  return inside && Number.isInteger(value) ? { value } : null;
}

/** Those arrays whose names begin so, by the rest of their names. */
function arraysOf(tensors, start) {
  const own = Object.entries(tensors).filter(([name]) => name.startsWith(start));
  return Object.fromEntries(own.map(([name, array]) => [name.slice(start.length), array]));
}
