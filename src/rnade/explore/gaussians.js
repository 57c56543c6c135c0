// Gaussians beside the networks of a table of numbers: their components of one column given any
// others (`rnade.nn.gaussians`).

const LEAST_VARIANCE = Math.exp(2 * SMALLEST_LOG_SCALE);
const LOG_LOGISTIC_SCALE = Math.log(Math.sqrt(3) / Math.PI);

class Gaussians {
  /** Arrays log_alpha (K), mu (K x D), covariance (K x D x D), and share (D) of each column. */
  constructor(arrays) {
    Object.assign(this, arrays);
    this.K = arrays.log_alpha.length;
    this.D = arrays.share.length;
  }

  /** Log weight, mean and log scale of each component of column d, given positions (NaN: none). */
  of(d, positions) {
    const known = [], found = [];
    positions.forEach((t, e) => {
      if (e !== d && !Number.isNaN(t)) known.push(e);
    });
    for (let k = 0; k < this.K; k++) found.push(this.#component(k, d, known, positions));
    const logAll = logSumExp(found.map(({ logWeight }) => logWeight));
    return found.map((part) => ({ ...part, logWeight: part.logWeight - logAll }));
  }

  /** One component: the known columns are told one after the other. */
  #component(k, d, known, positions) {
    // Only these columns matter; d comes last.
    const columns = [...known, d], n = columns.length, { D } = this;
    const mean = columns.map((e) => this.mu[k * D + e]);
    const C = columns.map((e) => columns.map((f) => this.covariance[(k * D + e) * D + f]));
    let logWeight = this.log_alpha[k];
    for (let i = 0; i < known.length; i++) {
      const t = Math.min(Math.max(positions[columns[i]], -FARTHEST), FARTHEST);
      const apart = t - mean[i], variance = Math.max(C[i][i], LEAST_VARIANCE);
      logWeight -= 0.5 * ((apart * apart) / variance + Math.log(variance));
      for (let j = i + 1; j < n; j++) {
        const gain = C[j][i] / variance;
        mean[j] += gain * apart;
        for (let l = i + 1; l < n; l++) C[j][l] -= gain * C[i][l];
      }
    }
    const last = n - 1, variance = Math.max(C[last][last], LEAST_VARIANCE);
    return { logWeight, mu: mean[last], logScale: 0.5 * Math.log(variance) + LOG_LOGISTIC_SCALE };
  }
}
