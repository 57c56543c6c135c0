// A column cut into cells, as `rnade.columns.partition` has it: what a value is to the networks.

const LEVEL = 0, INTEGER = 1;
const TAIL = 0.5; // how fast densities fall outside the range of the table, on the smooth scale

/** How many entries of an ascending array are at most x, or below it. */
function countUpTo(values, x, strictly = false) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (strictly ? values[middle] < x : values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Cells {
  /** `arrays` are those of `ColumnCells.arrays`, by name. */
  constructor(arrays) {
    Object.assign(this, arrays);
    this.measure = arrays.measure[0];
    this.nIntervals = Math.max(0, this.edges.length - 1);
    this.nCells = this.shares.length;
    this.hasSmooth = this.nIntervals > 0;
    this.inside = -Math.expm1(this.outside[0]);
    this.edgePositions = Float64Array.from(this.edges, (x) => this.position(x));
    this.ends = this.hasSmooth
      ? [this.edgePositions[0], this.edgePositions[this.nIntervals]] : [0, 1];
    const values = [...this.edges, ...this.atoms];
    this.reach = [Math.min(...values), Math.max(...values)];
    if (this.measure === INTEGER) this.#countWithin();
  }

  /** Of whole numbers: where the points of each cell begin, and what they hold beyond others. */
  #countWithin() {
    const n = this.points.length;
    this.even = this.log_even.map(Math.exp);
    this.firstPoint = new Int32Array(this.nCells + 1).fill(n);
    this.extra = new Float64Array(n + 1); // summed up
    for (let i = n - 1; i >= 0; i--) this.firstPoint[this.cell_of_point[i]] = i;
    for (let c = this.nCells - 1; c >= 0; c--)
      this.firstPoint[c] = Math.min(this.firstPoint[c], this.firstPoint[c + 1]);
    for (let i = 0; i < n; i++) {
      const more = Math.exp(this.log_share[i]) - this.even[this.cell_of_point[i]];
      this.extra[i + 1] = this.extra[i] + Math.max(more, 0);
    }
  }

  /** Where a number is on the smooth scale. */
  position(x) {
    const [centre, spread, location, scale] = this.scale;
    return (Math.asinh((x - centre) / spread) - location) / scale;
  }

  /** The number at a place of the smooth scale. */
  atPosition(t) {
    const [centre, spread, location, scale] = this.scale;
    return centre + spread * Math.sinh(location + scale * t);
  }

  #logSlope(x) {
    const [centre, spread, , scale] = this.scale, away = (x - centre) / spread;
    return -Math.log(scale * spread) - 0.5 * Math.log1p(away * away);
  }

  cellOf(x) {
    return Math.min(Math.max(countUpTo(this.edges, x) - 1, 0), this.nIntervals - 1);
  }

  /**
   * What the networks are told of a value: its cell (-1 for none), the logarithm of its share of
   * the cell or, without one, of its density; its place and log width on the smooth scale.
   */
  encode(x) {
    if (this.measure === LEVEL) {
      const known = x >= 0 && x < this.points.length;
      return {
        code: known ? this.cell_of_point[x] : -1,
        within: known ? this.log_share[x] : this.outside[0],
        position: 0,
        logWidth: -Infinity,
      };
    }
    const found = { code: -1, within: 0, position: this.position(x), logWidth: -Infinity };
    if (this.hasSmooth) this.#encodeSmooth(x, found);
    const atom = this.atoms.indexOf(x);
    if (atom >= 0)
      Object.assign(found, { code: this.nIntervals + atom, within: 0, logWidth: -Infinity });
    if (found.code < 0) found.within = this.#logOutside(x);
    return found;
  }

  #encodeSmooth(x, found) {
    const inside = x >= this.edges[0] && x <= this.edges[this.nIntervals];
    const cell = this.cellOf(x);
    let within, logWidth;
    if (this.measure === INTEGER) {
      const low = this.position(x - 0.5), high = this.position(x + 0.5);
      found.position = (low + high) / 2;
      logWidth = Math.log(high - low);
      const at = countUpTo(this.points, x, true);
      within = this.points[at] === x ? this.log_share[at] : this.log_even[cell];
    } else {
      logWidth = this.#logSlope(x);
      within = logWidth - Math.log(this.edgePositions[cell + 1] - this.edgePositions[cell]);
    }
    if (inside) Object.assign(found, { code: cell, within, logWidth });
  }

  /** Log density or probability of a number outside the range of the table. */
  #logOutside(x) {
    const above = x > this.reach[0] ? 1 : 0;
    const edge = this.position(this.reach[above]);
    const room = Math.abs(this.position(this.bounds[above]) - edge);
    if (x < this.bounds[0] || x > this.bounds[1]) return -Infinity;
    let found;
    if (this.measure === INTEGER) {
      const away = above ? 0.5 : -0.5;
      const near = Math.abs(this.position(x - away) - edge);
      const width = Math.abs(this.position(x + away) - edge) - near;
      // Far out a unit is too narrow for a difference, and even.
      found = -near / TAIL + (width < 1e-9
        ? this.#logSlope(x) - Math.log(TAIL) : Math.log(-Math.expm1(-width / TAIL)));
    } else {
      found = -Math.abs(this.position(x) - edge) / TAIL - Math.log(TAIL) + this.#logSlope(x);
    }
    if (room > 0) found -= Math.log(-Math.expm1(-room / TAIL));
    return this.outside[0] + this.outside[1 + above] + found;
  }

  /** Share of the numbers on one side of the range that lie beyond x, away from the range. */
  tailBeyond(x, above) {
    const edge = this.position(this.reach[above]);
    const room = Math.abs(this.position(this.bounds[above]) - edge);
    const t = Math.min(Math.abs(this.position(x) - edge), room);
    if (!(room > 0)) return 0;
    return (Math.exp(-t / TAIL) - Math.exp(-room / TAIL)) / -Math.expm1(-room / TAIL);
  }

  /** Share of a cell of whole numbers that is at most x. */
  shareUpTo(cell, x) {
    const first = this.firstPoint[cell];
    const last = Math.max(first, Math.min(countUpTo(this.points, x), this.firstPoint[cell + 1]));
    const low = this.edges[cell], high = this.edges[cell + 1];
    const numbers = Math.floor(Math.min(Math.max(x + 0.5, low), high) - low);
    return this.extra[last] - this.extra[first] + this.even[cell] * numbers;
  }

  /** The value of a cell at a share u of it, from 0 to 1. */
  valueWithin(cell, u) {
    if (this.measure === LEVEL) return this.#levelWithin(cell, u);
    if (cell >= this.nIntervals) return this.atoms[cell - this.nIntervals];
    if (this.measure === INTEGER) return this.#numberWithin(cell, u);
    const low = this.edgePositions[cell], high = this.edgePositions[cell + 1];
    const x = this.atPosition(low + u * (high - low));
    return Math.min(Math.max(x, this.edges[cell]), this.edges[cell + 1]);
  }

  #levelWithin(cell, u) {
    let left = u, last = 0;
    for (let i = 0; i < this.points.length && left >= 0; i++) {
      if (this.cell_of_point[i] !== cell) continue;
      left -= Math.exp(this.log_share[i]);
      last = i;
    }
    return last;
  }

  /** First the share that all whole numbers of the cell have alike, then the rest. */
  #numberWithin(cell, u) {
    const low = this.edges[cell], width = this.edges[cell + 1] - low, even = this.even[cell];
    const first = this.firstPoint[cell], end = this.firstPoint[cell + 1];
    const mass = u * (even * width + this.extra[end] - this.extra[first]);
    if (mass < even * width || end === first)
      return low + 0.5 + Math.min(Math.floor(mass / even), width - 1);
    const at = countUpTo(this.extra, mass - even * width + this.extra[first]) - 1;
    return this.points[Math.min(at, end - 1)];
  }

  /** A number from the smooth scale: whole where it must be, inside the range. */
  clipped(x) {
    const half = this.measure === INTEGER ? 0.5 : 0;
    const whole = half ? Math.round(x) : x;
    return Math.min(Math.max(whole, this.edges[0] + half), this.edges[this.nIntervals] - half);
  }
}
