// The networks: what is given enters the first layer, residual layers follow, and one head for each
// column gives what its distribution is made of (`rnade.nn.any_order`). Sums in double precision.

const FARTHEST = 4; // positions further out tell a network no more

/** out[j] += sum over i of x[i] * W[at + i * stride + j], four rows of W at a time. */
function addProduct(out, x, W, at, stride) {
  const n = x.length, width = out.length;
  let i = 0;
  for (; i + 3 < n; i += 4) {
    const a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
    const one = at + i * stride, two = one + stride, three = two + stride, four = three + stride;
    for (let j = 0; j < width; j++)
      out[j] += a * W[one + j] + b * W[two + j] + c * W[three + j] + d * W[four + j];
  }
  for (; i < n; i++) for (let j = 0; j < width; j++) out[j] += x[i] * W[at + i * stride + j];
}

/** x / (1 + exp(-x)) of all entries. */
function silu(x) {
  const found = new Float64Array(x.length);
  for (let i = 0; i < x.length; i++) found[i] = x[i] / (1 + Math.exp(-x[i]));
  return found;
}

/** One network; it predicts all columns, or one of them. */
class Network {
  /**
   * `weights` are W (inputs x H), c, U and Q (layers x H x H), u, V (H x P), b, and G and g of the
   * shares of links; `heads` says for each column that it predicts [first output, outputs, first
   * share, shares].
   */
  constructor(weights, heads, inputs) {
    Object.assign(this, weights);
    this.heads = heads;
    this.inputs = inputs;
    this.H = weights.c.length;
    this.nLayers = weights.u.length / this.H;
    this.P = weights.b.length;
    this.R = weights.g ? weights.g.length : 0;
  }

  /** Add what a given cell adds to what enters the layers, or take it back (sign -1). */
  tell(s, d, cell, sign) {
    const { H, W } = this, { firstCell, number, seen } = this.inputs[d];
    const code = cell.code >= 0 ? (firstCell + cell.code) * H : -1;
    const t = Math.min(Math.max(cell.position, -FARTHEST), FARTHEST) * sign;
    for (let j = 0, k = seen * H; j < H; j++, k++) s[j] += sign * W[k];
    if (code >= 0) for (let j = 0; j < H; j++) s[j] += sign * W[code + j];
    if (number >= 0) for (let j = 0, k = number * H; j < H; j++, k++) s[j] += t * W[k];
  }

  /** Hidden units after the residual layers, from what entered them. */
  hidden(s) {
    const { H } = this, x = Float64Array.from(s);
    for (let l = 0; l < this.nLayers; l++) {
      const inner = this.u.slice(l * H, (l + 1) * H);
      addProduct(inner, silu(x), this.U, l * H * H, H);
      addProduct(x, silu(inner), this.Q, l * H * H, H);
    }
    return silu(x);
  }

  /** Outputs for a column from the hidden units, then logits of the shares of its links. */
  head(h, d) {
    const [first, n, firstShare, nShares] = this.heads[d];
    const z = this.b.slice(first, first + n);
    addProduct(z, h, this.V, first, this.P);
    if (!nShares) return z;
    const gates = this.g.slice(firstShare, firstShare + nShares);
    addProduct(gates, h, this.G, firstShare, this.R);
    const both = new Float64Array(n + nShares);
    both.set(z);
    both.set(gates, n);
    return both;
  }
}
