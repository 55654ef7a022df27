"use strict";
/* bands: which allocations are worth drawing in a window, and where each lies on top of the older ones. What is left out
 * stays part of the grey total behind the bands, so nothing is lost, only not told apart. */

const Bands = (() => {
  const MOST = 5000; /* bands per picture */
  const WIDE = 0.7, TALL = 0.15, AREA = 0.8; /* pixels: less is not seen */

  /* The window: from pixel 0 at position x0, `scale` pixels per unit, `width` pixels. positions[m] is where moment m
   * begins. */
  class Axis {
    constructor(positions, x0, x1, width) {
      this.positions = positions;
      this.x0 = x0;
      this.width = width;
      this.scale = width / (x1 - x0);
      this.last = positions[positions.length - 1] + 1;
      this.x1 = x1;
    }

    position(moment) { return moment < this.positions.length ? this.positions[moment] : this.last; }

    pixel(moment) { return (this.position(moment) - this.x0) * this.scale; }

    /* The moment at a position: the last that begins there or before. */
    moment(position) {
      const p = this.positions;
      let low = 0, high = p.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (p[middle] <= position) low = middle + 1;
        else high = middle;
      }
      return Math.max(0, low - 1);
    }
  }

  /* Blocks by how much of the picture they fill; at most MOST of them, in the order of their start. */
  function choose(blocks, axis, perByte, shown, marked) {
    const first = axis.moment(axis.x0), last = axis.moment(axis.x1);
    const areas = new Float32Array(64);
    const candidates = [];
    for (let i = 0; i < blocks.count && blocks.from[i] <= last; i++) {
      if (blocks.until[i] <= first || !shown[blocks.lane[i]]) continue;
      const tall = blocks.bytes[i] * perByte;
      const wanted = marked !== null && marked[i] === 1;
      if (tall < TALL && !wanted) continue;
      const wide = Math.min(axis.pixel(blocks.until[i]), axis.width) - Math.max(axis.pixel(blocks.from[i]), 0);
      if ((wide < WIDE || wide * tall < AREA) && !wanted) continue;
      const area = Math.min(63, Math.max(0, 2 * Math.log2(tall * wide + 1) + (wanted ? 20 : 0))) | 0;
      areas[area]++;
      candidates.push(i, area);
    }
    let least = 63;
    for (let sum = areas[63]; least > 0 && sum + areas[least - 1] <= MOST; ) sum += areas[--least];
    const chosen = [];
    for (let i = 0; i < candidates.length; i += 2) if (candidates[i + 1] >= least) chosen.push(candidates[i]);
    return chosen;
  }

  /* The column of the picture in which a moment begins. */
  function columnOf(axis, moment) {
    return Math.min(axis.width, Math.max(0, Math.floor(axis.pixel(moment))));
  }

  /* Steps of each band's lower edge: xs in pixels, ys in bytes. Bands only move in columns where one begins or ends. */
  function stack(blocks, chosen, axis) {
    const bands = chosen.map((block) => ({
      block, xs: [], ys: [], x0: Math.max(0, axis.pixel(blocks.from[block])), x1: Math.min(axis.width, axis.pixel(blocks.until[block])),
      begins: columnOf(axis, blocks.from[block]), ends: columnOf(axis, blocks.until[block]),
    }));
    const changes = new Uint8Array(axis.width + 2);
    for (const band of bands) {
      band.ends = Math.max(band.ends, band.begins + 1); /* of less than a column: still seen in its own */
      changes[band.begins] = changes[band.ends] = 1;
    }
    let live = [], begun = 0;
    for (let column = 0; column < axis.width; column++) {
      if (!changes[column]) continue;
      live = live.filter((band) => band.ends > column);
      while (begun < bands.length && bands[begun].begins <= column) live.push(bands[begun++]);
      settle(live, blocks, column);
    }
    return bands;
  }

  /* Notes where the bands lie from this column on. */
  function settle(live, blocks, column) {
    let y = 0;
    for (const band of live) {
      if (!band.ys.length || band.ys[band.ys.length - 1] !== y) {
        band.xs.push(band.xs.length ? column : band.x0);
        band.ys.push(y);
      }
      y += blocks.bytes[band.block];
    }
  }

  /* The lower edge of a band at a pixel. */
  function edge(band, x) {
    let low = 0, high = band.xs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (band.xs[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return band.ys[Math.max(0, low - 1)];
  }

  return { Axis, choose, stack, edge };
})();
