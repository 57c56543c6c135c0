// The distribution of one column given others, averaged over networks: `rnade.nn.column_density`.

const SMALLEST_LOG_SCALE = -7, LARGEST_LOG_SCALE = 4;
const TINY = 1e-6; // masses of components below this are computed by their logarithms

function logSigmoid(u) {
  return u > 0 ? -Math.log1p(Math.exp(-u)) : u - Math.log1p(Math.exp(u));
}

/** Log of the standard logistic mass between two places, exact far out in both tails. */
function logMass(low, high) {
  return logSigmoid(high) + logSigmoid(-low) + Math.log(-Math.expm1(Math.min(low - high, -1e-30)));
}

/** Log of the standard logistic density. */
function logLogistic(u) {
  const away = Math.abs(u);
  return -away - 2 * Math.log1p(Math.exp(-away));
}

function logSumExp(values) {
  let most = -Infinity, sum = 0;
  for (const v of values) if (v > most) most = v;
  if (most === -Infinity) return most;
  for (const v of values) sum += Math.exp(v - most);
  return most + Math.log(sum);
}

class ColumnDensity {
  /**
   * `outputs` has those of each network; `linked` what each link says: {cells} with shares of the
   * cells, {value} that the column has, or null where it says nothing; `beside` are components
   * of Gaussians, which have a share of the whole.
   */
  constructor(cells, nComponents, outputs, linked, beside = [], share = 0) {
    const C = cells.nCells, K = cells.hasSmooth ? nComponents : 0, M = outputs.length;
    this.column = cells;
    this.cells = new Float64Array(C);
    this.exact = [];
    this.components = [];
    for (const z of outputs) {
      const gates = linked.map((link, r) => (link ? z[C + 3 * K + r] : -Infinity));
      const logAll = logSumExp([0, ...gates]);
      const heads = z.subarray(0, C + K), logHeads = logSumExp(heads) + logAll + Math.log(M);
      for (let c = 0; c < C; c++) this.cells[c] += Math.exp(z[c] - logHeads);
      for (let k = C; k < C + K; k++)
        this.#add(Math.exp(z[k] - logHeads), z[K + k], z[2 * K + k]);
      linked.forEach((link, r) => {
        if (!link) return;
        const share = Math.exp(gates[r] - logAll) / M;
        if (link.cells) for (let c = 0; c < C; c++) this.cells[c] += share * link.cells[c];
        else this.exact.push({ share, value: link.value });
      });
    }
    if (share) {
      for (let c = 0; c < C; c++) this.cells[c] *= 1 - share;
      for (const part of [...this.exact, ...this.components]) part.share *= 1 - share;
      for (const { logWeight, mu, logScale } of beside)
        this.#add(share * Math.exp(logWeight), mu, logScale);
    }
    this.summed = new Float64Array(C + 1);
    for (let c = 0; c < C; c++) this.summed[c + 1] = this.summed[c] + this.cells[c];
  }

  #add(share, mu, logScale) {
    const clamped = Math.min(Math.max(logScale, SMALLEST_LOG_SCALE), LARGEST_LOG_SCALE);
    const scale = Math.exp(clamped), [first, last] = this.column.ends;
    const low = (first - mu) / scale, high = (last - mu) / scale;
    const logWhole = logMass(low, high), below = 1 / (1 + Math.exp(-low));
    this.components.push({ share, mu, scale, logScale: clamped, low, high, logWhole, below });
  }

  /** Log density, or log probability, of a value. */
  logProb(x) {
    const cell = this.column.encode(x);
    if (cell.code < 0) return cell.within;
    const parts = [Math.log(this.cells[cell.code]) + cell.within];
    if (cell.logWidth > -Infinity)
      for (const part of this.components) parts.push(Math.log(part.share) + this.#log(part, cell));
    for (const { share, value } of this.exact) if (value === x) parts.push(Math.log(share));
    return logSumExp(parts) + Math.log(this.column.inside);
  }

  #log({ mu, scale, logScale, logWhole }, { position, logWidth }) {
    const u = (position - mu) / scale;
    if (this.column.measure !== INTEGER) return logLogistic(u) - logScale + logWidth - logWhole;
    const half = (0.5 * Math.exp(logWidth)) / scale;
    return logMass(u - half, u + half) - logWhole;
  }

  /** Probability of each level. */
  probabilities() {
    const { column } = this;
    return column.points.map((_, i) =>
      column.inside * this.cells[column.cell_of_point[i]] * Math.exp(column.log_share[i]));
  }

  /** Probability of a number of at most x; of levels by their order. */
  cdf(x) {
    const { column } = this;
    if (column.measure === LEVEL) {
      if (x >= column.points.length) return 1;
      return this.probabilities().subarray(0, x + 1).reduce((sum, p) => sum + p, 0);
    }
    let total = this.smoothCdf(x);
    column.atoms.forEach((atom, i) => {
      if (atom <= x) total += this.cells[column.nIntervals + i];
    });
    return column.inside * total + this.#outsideUpTo(x);
  }

  /** The same within the range of the table, without its atoms. */
  smoothCdf(x) {
    const { column } = this, whole = column.measure === INTEGER;
    let total = 0;
    if (column.hasSmooth) {
      const edge = whole ? x + 0.5 : x, cell = column.cellOf(edge);
      const t = column.position(edge);
      if (edge >= column.edges[0]) {
        const low = column.edgePositions[cell], high = column.edgePositions[cell + 1];
        const share = whole ? column.shareUpTo(cell, x) : (t - low) / (high - low);
        total = this.summed[cell] + this.cells[cell] * Math.min(Math.max(share, 0), 1);
      }
      for (const part of this.components) total += part.share * this.#upTo(part, t);
    }
    for (const { share, value } of this.exact) if (value <= x) total += share;
    return total;
  }

  /** Distribution function of a component, cut off at the ends of the range. */
  #upTo({ mu, scale, low, high, logWhole, below }, t) {
    const at = (t - mu) / scale;
    if (at <= low) return 0;
    if (at >= high) return 1;
    const whole = Math.exp(logWhole), up = 1 / (1 + Math.exp(-at));
    if (whole > TINY && up - below > TINY) return Math.min((up - below) / whole, 1);
    return Math.min(Math.exp(logMass(low, at) - logWhole), 1);
  }

  #outsideUpTo(x) {
    const { column } = this, edge = column.measure === INTEGER ? x + 0.5 : x;
    const [first, last] = column.reach, [all, below, above] = column.outside.map(Math.exp);
    const under = edge < first ? column.tailBeyond(edge, 0) : 1;
    const over = edge > last ? 1 - column.tailBeyond(edge, 1) : 0;
    return all * (below * under + above * over);
  }

  /** Smallest value in the range of the table with a distribution function of at least q. */
  quantile(q, steps = 60) {
    const { column } = this;
    if (column.measure === LEVEL) {
      let sum = 0;
      const at = this.probabilities().findIndex((p) => (sum += p) >= q);
      return at < 0 ? column.points.length - 1 : at;
    }
    const whole = column.measure === INTEGER;
    let [low, high] = column.reach;
    if (whole) [low, high] = [Math.ceil(low), Math.floor(high)];
    for (let i = 0; i < steps && low < high; i++) {
      const middle = whole ? Math.floor((low + high) / 2) : (low + high) / 2;
      if (this.cdf(middle) < q) low = whole ? Math.min(middle + 1, high) : middle;
      else high = middle;
    }
    // Halving comes near an atom, never to it.
    const near = 1e-9 * (column.reach[1] - column.reach[0]);
    return column.atoms.find((atom) => Math.abs(atom - high) <= near) ?? high;
  }

  /** One value, drawn with two numbers from 0 to 1. */
  sample(random) {
    const { column } = this, C = column.nCells;
    let total = this.summed[C];
    for (const part of this.components) total += part.share;
    for (const part of this.exact) total += part.share;
    let left = random() * total;
    const u = random();
    if (left < this.summed[C])
      return column.valueWithin(Math.min(countUpTo(this.summed, left) - 1, C - 1), u);
    left -= this.summed[C];
    for (const part of this.components) {
      if (left < part.share) {
        const t = placeOf(part, column.ends, u);
        return column.clipped(column.atPosition(t));
      }
      left -= part.share;
    }
    for (const part of this.exact) {
      if (left < part.share) return part.value;
      left -= part.share;
    }
    return column.valueWithin(C - 1, u);
  }
}

/** The place at a share of a component that is cut off at the ends of the range. */
function placeOf({ mu, scale, low, high }, [first, last], share) {
  // Seen from the side on which the component is a left tail, and in logarithms, so that it holds
  // for components far outside the ends.
  const turned = low + high > 0, a = turned ? -high : low, b = turned ? -low : high;
  const v = turned ? 1 - share : share;
  const log = logSumExp([logSigmoid(a) + Math.log1p(-v), logSigmoid(b) + Math.log(v)]);
  const u = Math.min(Math.max(log - Math.log(-Math.expm1(Math.min(log, 0))), a), b);
  return Math.min(Math.max(mu + scale * (turned ? -u : u), first), last);
}
