// Questions about several columns at once. They take many passes of the networks, and are
// generators: each pauses after a pass, so that the page stays quick, and returns its answer.

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const isKnown = (x) => !Number.isNaN(x);

/** The walker of an order. */
const walkerOf = (model, r) => model.walkers[r % model.walkers.length];

/**
 * Log density of values along each order of the columns, given others that come first; the
 * average over orders is the density (`rnade.nn.questions.log_densities`).
 */
function* logDensities(model, values, given = []) {
  const along = [], none = new Float64Array(model.nColumns).fill(NaN);
  const first = given.length ? given : none;
  for (let r = 0; r < model.orders.length; r++) {
    const walk = new Walk(model, walkerOf(model, r), first);
    let total = 0;
    for (const d of model.orders[r]) {
      if (!isKnown(values[d]) || isKnown(first[d])) continue;
      total += walk.density(d).logProb(values[d]);
      walk.tell(d, values[d]);
      yield;
    }
    along.push(total);
  }
  return along;
}

function logAverage(along) {
  return logSumExp(along) - Math.log(along.length);
}

/** Draw what is not known of a row, along an order drawn for it: the row, and its log density. */
function* drawRow(model, values, random) {
  const r = Math.floor(random() * model.orders.length);
  const walk = new Walk(model, walkerOf(model, r), values), row = Float64Array.from(values);
  let total = 0;
  for (const d of model.orders[r]) {
    if (isKnown(row[d])) continue;
    const indicator = model.indicatorOf[d];
    if (indicator >= 0 && row[indicator] === 1) continue; // the cell is missing
    const density = walk.density(d);
    row[d] = density.sample(random);
    total += density.logProb(row[d]);
    walk.tell(d, row[d]);
    yield;
  }
  return { row, logDensity: total };
}

/**
 * Among rows drawn from the model, the share that are at most as likely as these values in the
 * same columns, both judged along one order. `told` hears of each draw.
 */
function* pValue(model, values, n, random, told) {
  const order = model.orders[0].filter((d) => isKnown(values[d]));
  const none = new Float64Array(model.nColumns).fill(NaN);
  const start = () => new Walk(model, walkerOf(model, 0), none);
  const own = start();
  let limit = 0, below = 0;
  for (const d of order) {
    limit += own.density(d).logProb(values[d]);
    own.tell(d, values[d]);
  }
  yield;
  for (let i = 1; i <= n; i++) {
    const walk = start();
    let total = 0;
    for (const d of order) {
      const density = walk.density(d), x = density.sample(random);
      total += density.logProb(x);
      walk.tell(d, x);
      yield;
    }
    below += total <= limit + 1e-9 * Math.max(1, Math.abs(limit)) ? 1 : 0;
    told((1 + below) / (1 + i), i);
  }
  return (1 + below) / (1 + n);
}

/**
 * Probabilities of pairs of slots (see slots.js) of two columns given what else is known: each
 * order goes from one column to the other, the first at the middle of its slot.
 */
function* jointMasses(model, [a, b], [slotsA, slotsB], values) {
  const joint = slotsA.map(() => new Float64Array(slotsB.length));
  const given = Float64Array.from(values);
  for (const d of [a, b])
    for (const e of [d, model.indicatorOf[d]]) if (e >= 0) given[e] = NaN;
  const shares = new Map(); // of each walker and direction, among the orders
  model.orders.forEach((order, r) => {
    const key = `${r % model.walkers.length} ${order.indexOf(a) < order.indexOf(b)}`;
    shares.set(key, (shares.get(key) ?? 0) + 1 / model.orders.length);
  });
  for (const [key, share] of shares) {
    const [m, forward] = key.split(" "), networks = model.walkers[m];
    const [first, second] = forward === "true" ? [a, b] : [b, a];
    const [from, to] = forward === "true" ? [slotsA, slotsB] : [slotsB, slotsA];
    const walk = new Walk(model, networks, given);
    const alone = massesOf(walk.density(first), from);
    for (let i = 0; i < from.length; i++) {
      walk.tell(first, from[i].middle);
      const rest = massesOf(walk.density(second), to);
      walk.forget(first);
      for (let j = 0; j < to.length; j++) {
        const mass = share * alone[i] * rest[j];
        if (forward === "true") joint[i][j] += mass;
        else joint[j][i] += mass;
      }
      yield;
    }
  }
  return joint;
}
