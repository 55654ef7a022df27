"use strict";
/* data: what the file holds, decoded into typed arrays. A track is one trace, or one trace under one policy. */

const Data = (() => {
  const NEVER = 0xffffffff;

  async function inflate(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* Columns follow each other; each is `count` variable-length integers, 7 bits per byte, the low ones first. */
  class Reader {
    constructor(bytes, columns) {
      this.bytes = bytes;
      this.at = 0;
      this.columns = columns;
    }

    number() {
      let value = 0, unit = 1, byte;
      do {
        byte = this.bytes[this.at++];
        value += (byte & 127) * unit;
        unit *= 128;
      } while (byte > 127);
      return value;
    }

    column(name, Kind, decode) {
      const about = this.columns.shift();
      if (!about || about.name !== name) throw new Error(`column ${name} is missing`);
      const out = new Kind(about.count);
      let last = 0;
      for (let i = 0; i < about.count; i++) out[i] = last = decode(this.number(), last);
      return out;
    }

    plain(name, Kind = Uint32Array) { return this.column(name, Kind, (value) => value); }

    rising(name, Kind = Uint32Array) { return this.column(name, Kind, (value, last) => last + value); }

    /* Differences of either sign: even ones up, odd ones down. */
    walking(name, Kind = Float64Array) {
      return this.column(name, Kind, (value, last) => last + (value % 2 ? -(value + 1) / 2 : value / 2));
    }

    /* An end, as what comes after the start and one; 0 is never. */
    ends(name, starts) {
      const out = this.plain(name);
      for (let i = 0; i < out.length; i++) out[i] = out[i] ? starts[i] + out[i] - 1 : NEVER;
      return out;
    }
  }

  function readBlocks(reader) {
    const blocks = { from: reader.rising("block.from") };
    blocks.freed = reader.ends("block.freed", blocks.from);
    blocks.until = reader.ends("block.until", blocks.freed);
    blocks.bytes = reader.plain("block.bytes", Float64Array);
    blocks.address = reader.walking("block.address");
    blocks.lane = reader.plain("block.lane");
    blocks.stack = reader.plain("block.stack");
    blocks.thread = reader.plain("block.thread");
    blocks.count = blocks.from.length;
    return blocks;
  }

  function readSegments(reader) {
    const segments = { from: reader.rising("segment.from") };
    segments.until = reader.ends("segment.until", segments.from);
    segments.bytes = reader.plain("segment.bytes", Float64Array);
    segments.address = reader.walking("segment.address");
    segments.lane = reader.plain("segment.lane");
    segments.mapped = reader.plain("segment.mapped", Uint8Array);
    segments.count = segments.from.length;
    return segments;
  }

  function readFailures(reader) {
    const failures = { moment: reader.rising("oom.moment") };
    failures.bytes = reader.plain("oom.bytes", Float64Array);
    failures.free = reader.plain("oom.free", Float64Array);
    failures.lane = reader.plain("oom.lane");
    failures.stack = reader.plain("oom.stack");
    failures.count = failures.moment.length;
    return failures;
  }

  /* Bytes at each moment, of the lanes that are shown. */
  function sum(moments, rows, until, shown) {
    const values = new Float64Array(moments);
    for (let i = 0; i < rows.count; i++) {
      if (rows.from[i] >= moments || !shown[rows.lane[i]]) continue;
      values[rows.from[i]] += rows.bytes[i];
      if (until[i] < moments) values[until[i]] -= rows.bytes[i];
    }
    for (let m = 1; m < moments; m++) values[m] += values[m - 1];
    return values;
  }

  function peak(values) {
    let at = 0;
    for (let m = 1; m < values.length; m++) if (values[m] > values[at]) at = m;
    return at;
  }

  async function readTrack(about, text) {
    const reader = new Reader(await inflate(text), about.columns);
    const track = { about, time: reader.rising("time", Float64Array) }; /* microseconds */
    track.blocks = readBlocks(reader);
    track.segments = readSegments(reader);
    track.failures = readFailures(reader);
    track.moments = track.time.length;

    track.sums = new Map();
    const all = sums(track, null);
    for (const what of ["requested", "active", "reserved"]) /* sums above 2^53 are rounded */
      if (Math.abs(all[what][all.peak[what]] - about.peaks[what]) > about.peaks[what] / 2 ** 46) throw new Error(`${about.title}: peak ${what} is not what was recorded`);
    return track;
  }

  /* What a device holds, or all of them with null: values by moment, where they are highest, and whose lanes they are. */
  function sums(track, device) {
    if (!track.sums.has(device)) {
      const { blocks, segments, moments, about } = track;
      const shown = about.lanes.map((lane) => device === null || lane.device === device);
      const requested = sum(moments, blocks, blocks.freed, shown);
      const active = sum(moments, blocks, blocks.until, shown);
      const reserved = sum(moments, segments, segments.until, shown);
      track.sums.set(device, {
        requested, active, reserved, shown,
        peak: { requested: peak(requested), active: peak(active), reserved: peak(reserved) },
        waits: active.some((value, m) => value !== requested[m]),
      });
    }
    return track.sums.get(device);
  }

  async function read() {
    const about = JSON.parse(document.getElementById("about").textContent);
    return Promise.all(about.tracks.map((track, i) =>
      readTrack(track, document.getElementById(`data-${i}`).textContent.trim())));
  }

  /* The frames of a stack, innermost first. */
  function frames(track, stack) {
    const { stacks, frames: texts } = track.about;
    return (stacks[stack] || []).map((frame) => texts[frame]);
  }

  /* Those of them that say who asked, as weir stat has it; a few. */
  function callers(track, stack) {
    const { callers: numbers, frames: texts } = track.about;
    return (numbers[stack] || []).map((frame) => texts[frame]);
  }

  return { NEVER, read, sums, frames, callers };
})();

/* Words for people. */
const Text = (() => {
  const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

  function size(bytes) {
    if (bytes < 1024) return `${bytes} B`;
    let value = bytes / 1024, unit = 0;
    for (; value >= 1023.95 && unit + 1 < UNITS.length; unit++) value /= 1024;
    return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${UNITS[unit]}`;
  }

  /* `apart`: the distance to the next one of a scale, which must read differently. */
  function time(microseconds, apart) {
    if (microseconds < 1000) return `${Math.round(microseconds)} µs`;
    const [unit, name] = microseconds < 1e6 ? [1000, "ms"] : [1e6, "s"];
    if (apart) return `${(microseconds / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / apart))))} ${name}`;
    return `${unit === 1000 ? (microseconds / unit).toPrecision(4) : (microseconds / unit).toFixed(3)} ${name}`;
  }

  const count = (number) => number.toLocaleString("en");

  function address(track, offset) {
    return `0x${(BigInt(track.about.base) + BigInt(offset)).toString(16)}`;
  }

  function lane(track, index, parts = ["device", "pool", "stream"]) {
    const { device, pool, stream } = track.about.lanes[index];
    const words = {
      device: `device ${device}`,
      pool: pool === "0,0" ? "default pool" : `pool ${pool}`,
      stream: stream === "0x0" ? "default stream" : `stream ${stream}`,
    };
    return parts.map((part) => words[part]).join(" · ");
  }

  return { size, time, count, address, lane };
})();
