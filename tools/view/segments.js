"use strict";
/* segments: what lies where at one instant: a bar per segment, all on one scale, packed into rows. */

class Segments {
  static FONT = "12px system-ui, sans-serif";
  static TALLEST = 32767; /* pixels of a canvas; where it has more, or a larger area, some browsers draw nothing */
  static AREA = 2 ** 24;
  static widest = 1; /* bytes of the largest segment met in any track: what a whole row stands for */

  constructor(track, view, canvas) {
    this.track = track;
    this.view = view;
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.shapes = [];
    for (const bytes of track.segments.bytes) Segments.widest = Math.max(Segments.widest, bytes);
  }

  /* For all tracks before any is drawn, since mapped pieces make segments larger than each of them. */
  prepare() {
    this.moment = this.view.moment(this.track);
    this.segments = this.live(this.moment);
    for (const s of this.segments) Segments.widest = Math.max(Segments.widest, s.bytes);
  }

  /* Live segments by lane, large ones first; pieces mapped side by side are one. */
  live(moment) {
    const { segments } = this.track, { shown } = this.view.sums(this.track);
    const found = [];
    for (let i = 0; i < segments.count && segments.from[i] <= moment; i++)
      if (moment < segments.until[i] && shown[segments.lane[i]])
        found.push({ lane: segments.lane[i], address: segments.address[i], bytes: segments.bytes[i], mapped: segments.mapped[i], blocks: [] });
    found.sort((a, b) => this.device(a) - this.device(b) || a.address - b.address);
    const joined = [];
    for (const piece of found) {
      const last = joined[joined.length - 1];
      const one = last && last.mapped && piece.mapped && last.lane === piece.lane && last.address + last.bytes === piece.address;
      if (one) last.bytes += piece.bytes;
      else joined.push(piece);
    }
    this.fill(joined, moment);
    return joined.sort((a, b) => a.lane - b.lane || b.bytes - a.bytes || a.address - b.address);
  }

  device(piece) { return this.track.about.lanes[piece.lane].device; }

  /* Puts the blocks into their segments, which are sorted by address. */
  fill(segments, moment) {
    const { blocks, about } = this.track;
    for (let i = 0; i < blocks.count && blocks.from[i] <= moment; i++) {
      if (blocks.until[i] <= moment) continue;
      const device = about.lanes[blocks.lane[i]].device;
      let low = 0, high = segments.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        const s = segments[middle];
        const before = this.device(s) === device ? s.address + s.bytes <= blocks.address[i] : this.device(s) < device;
        if (before) low = middle + 1;
        else high = middle;
      }
      const s = segments[low];
      if (s && this.device(s) === device && s.address <= blocks.address[i]) s.blocks.push(i);
    }
    for (const s of segments) s.blocks.sort((a, b) => blocks.address[a] - blocks.address[b]);
  }

  /* Rows first, so that the canvas has its height; then the picture. Each segment goes to the first row with room. */
  draw() {
    const width = Math.max(180, this.canvas.clientWidth);
    const { segments } = this;
    const scale = (width - 2) / Segments.widest;
    this.shapes = [];
    this.titles = [];
    const most = Math.min(Segments.TALLEST, Segments.AREA / width) - 80; /* room for one more of all */
    let top = 0, rows = [];
    for (let i = 0; i < segments.length; i++) {
      const s = segments[i];
      if (top + rows.length * 20 > most) {
        top += rows.length * 20 + 8;
        this.titles.push({ y: top, text: `${Text.count(segments.length - i)} more segments are not shown.` });
        rows = [];
        top += 20;
        break;
      }
      if (i === 0 || s.lane !== segments[i - 1].lane) {
        top += rows.length * 20 + (i ? 8 : 0);
        const lines = this.title(segments, s.lane, width);
        lines.forEach((text, k) => this.titles.push({ y: top + 17 * k, text }));
        top += 3 + 17 * lines.length;
        rows = [];
      }
      const wide = Math.max(4, s.bytes * scale);
      let row = rows.findIndex((used) => used + wide <= width);
      if (row < 0) row = rows.push(0) - 1;
      this.shapes.push({ segment: s, x: rows[row], y: top + row * 20, wide, scale: wide / s.bytes });
      rows[row] += wide + 3;
    }
    this.paint(width, segments.length ? top + rows.length * 20 + 4 : 24);
  }

  /* In two lines where one is too long. */
  title(segments, lane, width) {
    const own = segments.filter((s) => s.lane === lane);
    const reserved = own.reduce((sum, s) => sum + s.bytes, 0);
    const held = own.reduce((sum, s) => sum + s.blocks.reduce((bytes, b) => bytes + this.track.blocks.bytes[b], 0), 0);
    const lines = [`${Text.lane(this.track, lane)}:`,
      `${Text.size(reserved)} in ${own.length} segment${own.length === 1 ? "" : "s"}, ${Text.size(Math.max(0, reserved - held))} free`];
    this.context.font = Segments.FONT;
    return this.context.measureText(lines.join(" ")).width < width ? [lines.join(" ")] : lines;
  }

  paint(width, height) {
    const c = this.context;
    const ratio = Math.min(3, devicePixelRatio || 1, Segments.TALLEST / height, Math.sqrt(Segments.AREA / (width * height)));
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = Colours.get("paper");
    c.fillRect(0, 0, width, height);
    c.fillStyle = Colours.get("quiet");
    c.font = Segments.FONT;
    c.textBaseline = "top";
    const empty = this.track.about.has_segments ? "No segment at this moment." : "The trace tells of no segments; replay it with --policy to see some.";
    if (!this.shapes.length) c.fillText(empty, 0, 4);
    for (const t of this.titles) c.fillText(t.text, 0, t.y + 3);

    const colour = this.view.painter(this.track), marks = this.view.marks(this.track), hatch = Colours.hatch(c);
    for (const shape of this.shapes) this.paintSegment(shape, colour, marks, hatch);
  }

  paintSegment({ segment, x, y, wide, scale }, colour, marks, hatch) {
    const { context: c, track, view } = this;
    const { blocks } = track;
    c.fillStyle = Colours.get("raised");
    c.fillRect(x, y, wide, 17);
    for (const block of segment.blocks) {
      const left = x + (blocks.address[block] - segment.address) * scale;
      const across = Math.max(0.5, blocks.bytes[block] * scale);
      c.globalAlpha = marks && !marks[block] ? 0.2 : 1;
      c.fillStyle = colour(block);
      c.fillRect(left, y, across > 3 ? across - 0.6 : across, 17);
      if (blocks.freed[block] <= this.moment) {
        c.fillStyle = hatch;
        c.fillRect(left, y, across, 17);
      }
      if (view.picked && view.picked.track === track && view.picked.block === block) {
        c.strokeStyle = Colours.get("ink");
        c.lineWidth = 2;
        c.strokeRect(left, y + 1, Math.max(2, across - 1), 15);
      }
    }
    c.globalAlpha = 1;
    c.strokeStyle = Colours.get("quiet");
    c.lineWidth = 1;
    c.strokeRect(x + 0.5, y + 0.5, wide - 1, 16);
  }

  /* A block or a hole at a point; null: nothing. */
  hit(x, y) {
    const shape = this.shapes.find((s) => x >= s.x && x < s.x + s.wide && y >= s.y && y < s.y + 17);
    if (!shape) return null;
    const { segment } = shape;
    const { blocks } = this.track;
    const at = segment.address + (x - shape.x) / shape.scale;
    let from = segment.address;
    for (const block of segment.blocks) {
      if (at < blocks.address[block]) return { segment, hole: blocks.address[block] - from, address: from };
      from = blocks.address[block] + blocks.bytes[block];
      if (at < from) return { segment, block };
    }
    return { segment, hole: segment.address + segment.bytes - from, address: from };
  }
}
