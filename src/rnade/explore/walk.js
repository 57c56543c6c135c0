// What is known of one row, and what networks that are told of it predict of the rest.

class Walk {
  /** With some values known (NaN elsewhere), by one of the model's walkers. */
  constructor(model, networks, values) {
    this.model = model;
    this.networks = networks;
    this.values = new Float64Array(model.nColumns).fill(NaN);
    this.entered = networks.map(({ c }) => Float64Array.from(c));
    this.hidden = networks.map(() => null);
    values.forEach((x, d) => {
      if (!Number.isNaN(x)) this.tell(d, x);
    });
  }

  /** Say what a column holds. */
  tell(d, x) {
    this.change(d, x, 1);
    this.values[d] = x;
  }

  /** Take back what was said of a column. */
  forget(d) {
    if (Number.isNaN(this.values[d])) return;
    this.change(d, this.values[d], -1);
    this.values[d] = NaN;
  }

  /** The same walk without what was said of some columns. */
  without(columns) {
    const other = Object.assign(Object.create(Walk.prototype), this);
    other.values = this.values.slice();
    other.entered = this.entered.map((s) => s.slice());
    other.hidden = [...this.hidden];
    for (const d of columns) other.forget(d);
    return other;
  }

  change(d, x, sign) {
    const cell = this.model.columns[d].cells.encode(x);
    this.networks.forEach((network, m) => {
      network.tell(this.entered[m], d, cell, sign);
      this.hidden[m] = null;
    });
  }

  /** Outputs for a column. Layers are gone through once for all columns that a network predicts. */
  outputs(d) {
    const m = this.model.apart ? d : 0;
    this.hidden[m] ??= this.networks[m].hidden(this.entered[m]);
    return this.networks[m].head(this.hidden[m], d);
  }

  /** The distribution of a column by these networks alone. */
  density(d) {
    return this.model.density(d, [this.outputs(d)], this.values);
  }
}

/** Distributions of columns given values, averaged over the networks, in one pass. */
class Conditionals {
  constructor(model, values) {
    this.model = model;
    this.walks = model.walkers.map((networks) => new Walk(model, networks, values));
  }

  /** Of one column given all other known values. */
  of(d) {
    const { model } = this;
    // What tells whether a cell is missing is not given for the cell.
    const known = (e) => e >= 0 && !Number.isNaN(this.walks[0].values[e]);
    const own = [d, model.indicatorOf[d]].filter(known);
    const walks = own.length ? this.walks.map((walk) => walk.without(own)) : this.walks;
    return model.density(d, walks.map((walk) => walk.outputs(d)), walks[0].values);
  }
}
