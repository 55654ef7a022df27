"use strict";
/* chart: memory over time of one track, on a canvas. What it shows is in `view`, which all charts share: x0 and x1 in
 * positions of the axis, y0 and y1 in bytes, the instant, the search. */

class Chart {
  constructor(track, view, section) {
    this.track = track;
    this.view = view;
    this.canvas = section.querySelector("canvas");
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.bands = [];
    this.margin = { left: 66, right: 10, top: 16, bottom: 22 };
  }

  /* Sizes are read before anything is drawn, so that several charts cost one layout. */
  measure() {
    this.width = Math.max(200, this.canvas.clientWidth);
    this.height = Math.max(120, this.canvas.clientHeight);
    this.plotWidth = Math.floor(this.width - this.margin.left - this.margin.right);
    this.plotHeight = this.height - this.margin.top - this.margin.bottom;
  }

  y(bytes) {
    const { y0, y1 } = this.view;
    return this.margin.top + this.plotHeight * (1 - (bytes - y0) / (y1 - y0));
  }

  bytesAt(y) {
    const { y0, y1 } = this.view;
    return y0 + (1 - (y - this.margin.top) / this.plotHeight) * (y1 - y0);
  }

  draw() {
    const { context: c, view, width, height, margin } = this;
    const ratio = Math.min(3, devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = Colours.get("paper");
    c.fillRect(0, 0, width, height);

    this.axis = new Bands.Axis(view.positions(this.track), view.x0, view.x1, this.plotWidth);
    const sums = view.sums(this.track), perByte = this.plotHeight / (view.y1 - view.y0);
    const chosen = Bands.choose(this.track.blocks, this.axis, perByte, sums.shown, view.marks(this.track));
    this.bands = Bands.stack(this.track.blocks, chosen, this.axis);

    c.save();
    c.beginPath();
    c.rect(margin.left, 0, this.plotWidth, margin.top + this.plotHeight);
    c.clip();
    c.translate(margin.left, 0);
    this.drawTotal(sums.active);
    this.drawBands();
    this.drawLine(sums.requested, Colours.get("requested"), []);
    if (sums.waits) this.drawLine(sums.active, Colours.get("active"), [5, 3]);
    if (this.track.about.has_segments) this.drawLine(sums.reserved, Colours.get("reserved"), []);
    this.drawFailures(sums.shown);
    this.drawInstant();
    c.restore();
    this.drawScales();
  }

  /* The largest value in each column of pixels, up to the end of the track: others may be longer. */
  columns(values) {
    const { axis, plotWidth } = this;
    const { positions } = axis;
    const count = Math.max(0, Math.min(plotWidth, Math.ceil((axis.last - axis.x0) * axis.scale)));
    const out = new Float64Array(count);
    let moment = axis.moment(axis.x0);
    for (let x = 0; x < count; x++) {
      const end = axis.x0 + (x + 1) / axis.scale;
      let most = values[moment];
      while (moment + 1 < positions.length && positions[moment + 1] < end) {
        moment++;
        if (values[moment] > most) most = values[moment];
      }
      out[x] = most;
    }
    return out;
  }

  drawTotal(values) {
    const c = this.context;
    const tops = this.columns(values);
    const floor = this.y(0);
    c.fillStyle = Colours.get("small");
    c.beginPath();
    c.moveTo(0, floor);
    for (let x = 0; x < tops.length; x++) {
      const y = this.y(tops[x]);
      c.lineTo(x, y);
      c.lineTo(x + 1, y);
    }
    c.lineTo(tops.length, floor);
    c.fill();
  }

  drawLine(values, colour, dash) {
    const c = this.context;
    const tops = this.columns(values);
    c.strokeStyle = colour;
    c.lineWidth = 1.5;
    c.setLineDash(dash);
    c.beginPath();
    for (let x = 0; x < tops.length; x++) {
      const y = this.y(tops[x]);
      c.lineTo(x, y);
      c.lineTo(x + 1, y);
    }
    c.stroke();
    c.setLineDash([]);
  }

  /* The outline of a band: its lower edge there, its upper edge back. */
  outline(band) {
    const c = this.context;
    const tall = this.track.blocks.bytes[band.block];
    const { xs, ys, x1 } = band;
    c.beginPath();
    c.moveTo(xs[0], this.y(ys[0]));
    for (let k = 1; k < xs.length; k++) {
      c.lineTo(xs[k], this.y(ys[k - 1]));
      c.lineTo(xs[k], this.y(ys[k]));
    }
    c.lineTo(x1, this.y(ys[ys.length - 1]));
    for (let k = xs.length - 1; k > 0; k--) {
      c.lineTo(k === xs.length - 1 ? x1 : xs[k + 1], this.y(ys[k] + tall));
      c.lineTo(xs[k], this.y(ys[k] + tall));
    }
    c.lineTo(xs.length > 1 ? xs[1] : x1, this.y(ys[0] + tall));
    c.lineTo(xs[0], this.y(ys[0] + tall));
    c.closePath();
  }

  drawBands() {
    const { context: c, track, view } = this;
    const colour = view.painter(track);
    const marks = view.marks(track);
    const hatch = Colours.hatch(c);
    const scale = this.plotHeight / (view.y1 - view.y0);
    c.lineWidth = 0.6;
    for (const band of this.bands) {
      if (!band.xs.length) continue;
      const { block } = band;
      this.outline(band);
      c.globalAlpha = marks && !marks[block] ? 0.18 : 1;
      c.fillStyle = colour(block);
      c.fill();
      if (track.blocks.bytes[block] * scale > 3) {
        c.strokeStyle = Colours.get("paper");
        c.stroke();
      }
      if (track.blocks.until[block] !== track.blocks.freed[block]) this.drawWaiting(band, hatch);
    }
    c.globalAlpha = 1;
    if (view.picked && view.picked.track === track) this.drawPicked();
  }

  drawWaiting(band, hatch) {
    const c = this.context;
    const from = this.axis.pixel(this.track.blocks.freed[band.block]);
    c.save();
    c.clip();
    c.fillStyle = hatch;
    c.fillRect(from, 0, band.x1 - from, this.height);
    c.restore();
  }

  drawPicked() {
    const c = this.context;
    const band = this.bands.find((b) => b.block === this.view.picked.block);
    if (!band || !band.xs.length) return;
    this.outline(band);
    c.strokeStyle = Colours.get("ink");
    c.lineWidth = 2;
    c.stroke();
  }

  drawFailures(shown) {
    const { context: c, axis, margin } = this;
    const { failures } = this.track;
    c.fillStyle = c.strokeStyle = Colours.get("oom");
    c.lineWidth = 1;
    let last = -Infinity; /* marks that crowd would hide all else */
    for (let i = 0; i < failures.count; i++) {
      const x = axis.pixel(failures.moment[i]);
      if (x < -6 || x > this.plotWidth + 6 || x - last < 7 || !shown[failures.lane[i]]) continue;
      last = x;
      c.beginPath();
      c.moveTo(x - 6, 2);
      c.lineTo(x + 6, 2);
      c.lineTo(x, 12);
      c.fill();
      c.setLineDash([3, 3]);
      c.beginPath();
      c.moveTo(x, 12);
      c.lineTo(x, margin.top + this.plotHeight);
      c.stroke();
      c.setLineDash([]);
    }
  }

  drawInstant() {
    const { context: c, axis, view } = this;
    const moment = view.moment(this.track);
    const from = axis.pixel(moment), wide = axis.pixel(moment + 1) - from;
    /* Operations are wide when few are shown: its middle. Times are points. */
    const x = view.time ? (view.base.time[view.instant] - axis.x0) * axis.scale : wide > 2 ? from + wide / 2 : from;
    c.strokeStyle = Colours.get("accent");
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(x, this.margin.top - 6);
    c.lineTo(x, this.margin.top + this.plotHeight);
    c.stroke();
  }

  drawScales() {
    const { context: c, margin, view } = this;
    c.fillStyle = Colours.get("quiet");
    c.strokeStyle = Colours.get("rule");
    c.lineWidth = 1;
    c.font = "12px system-ui, sans-serif";
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.beginPath();
    for (const bytes of Chart.byteTicks(view.y0, view.y1, this.plotHeight / 34)) {
      const y = Math.round(this.y(bytes)) + 0.5;
      c.moveTo(margin.left - 4, y);
      c.lineTo(margin.left, y);
      c.fillText(Text.size(bytes), margin.left - 7, y);
    }
    const floor = Math.round(margin.top + this.plotHeight) + 0.5;
    c.textBaseline = "top";
    c.textAlign = "center";
    const ticks = Chart.ticks(view.x0, view.x1, this.plotWidth / 110);
    for (const tick of ticks) {
      const x = Math.round(margin.left + (tick - view.x0) * this.axis.scale) + 0.5;
      c.moveTo(x, floor);
      c.lineTo(x, floor + 4);
      const text = view.time ? Text.time(tick, ticks[1] - ticks[0]) : Text.count(Math.round(tick));
      const half = c.measureText(text).width / 2;
      c.fillText(text, Math.min(x, this.width - half - 2), floor + 6);
    }
    c.moveTo(margin.left - 0.5, margin.top);
    c.lineTo(margin.left - 0.5, floor);
    c.lineTo(this.width - margin.right, floor);
    c.stroke();
  }

  static ticks(from, to, wanted) {
    const rough = (to - from) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max([1, 2, 5, 10].find((n) => n * power >= rough) * power, 1);
    const out = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
    return out;
  }

  /* By powers of two. */
  static byteTicks(from, to, wanted) {
    const step = 2 ** Math.max(0, Math.ceil(Math.log2((to - from) / Math.max(1, wanted))));
    const out = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
    return out;
  }

  /* What is at a point of the canvas. */
  hit(x, y) {
    const px = x - this.margin.left;
    if (!this.axis || px < 0 || px > this.plotWidth) return null;
    const position = this.axis.x0 + px / this.axis.scale;
    if (position > this.axis.last) return null;
    const moment = this.axis.moment(position);
    const bytes = this.bytesAt(y);
    const { failures, blocks } = this.track;
    const sums = this.view.sums(this.track);
    for (let i = 0; i < failures.count; i++)
      if (sums.shown[failures.lane[i]] && y < this.margin.top + 8 && Math.abs(this.axis.pixel(failures.moment[i]) - px) < 7) return { moment, failure: i };
    for (const band of this.bands) {
      if (px < band.x0 || px > band.x1 || !band.xs.length) continue;
      const low = Bands.edge(band, px);
      if (bytes >= low && bytes < low + blocks.bytes[band.block]) return { moment, block: band.block };
    }
    return { moment, small: bytes >= 0 && bytes < sums.active[moment] };
  }
}
