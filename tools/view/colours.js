"use strict";
/* colours: of blocks, by what the reader chose, and of lines, from the style sheet. */

const Colours = (() => {
  const HUES = [211, 28, 150, 330, 262, 48, 188, 8, 95, 300, 230, 168];
  let shades = {}, dark = false;

  function refresh() {
    const style = getComputedStyle(document.documentElement);
    shades = {};
    for (const name of ["paper", "raised", "ink", "quiet", "rule", "accent", "small", "reserved", "active", "requested", "oom", "hatch"])
      shades[name] = style.getPropertyValue(`--${name}`).trim();
    dark = document.documentElement.dataset.theme === "dark" ||
      (document.documentElement.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  }

  function shade(hue, tone) {
    const light = dark ? 46 + tone * 7 : 52 + tone * 8;
    return `hsl(${hue} ${dark ? 48 : 58}% ${light}%)`;
  }

  /* Neighbouring numbers differ. */
  function numbered(number) {
    return shade(HUES[number % HUES.length], Math.floor(number / HUES.length) % 3);
  }

  const scramble = (number) => Math.imul(number ^ (number >>> 15), 0x2c1b3c6d) >>> 8;

  /* Cold is small, warm is large. */
  function ramp(bytes) {
    const at = Math.min(1, Math.max(0, (Math.log2(bytes + 1) - 9) / 22));
    return shade(240 - at * 235, 1);
  }

  /* The function from a block to its colour. Streams and pools have the same in every track. */
  function painter(track, lanes, mode) {
    const { blocks } = track;
    if (mode === "size") return (block) => ramp(blocks.bytes[block]);
    if (mode === "stack") return (block) => (blocks.stack[block] ? numbered(scramble(blocks.stack[block])) : shades.small);
    if (mode === "stream" || mode === "pool") {
      const own = track.about.lanes.map((lane) => numbered(lanes.indexOf(laneKey(lane, mode))));
      return (block) => own[blocks.lane[block]];
    }
    return (block) => numbered(scramble(block));
  }

  function laneKey(lane, mode) {
    return mode === "pool" ? `${lane.device} ${lane.pool}` : `${lane.device} ${lane.stream}`;
  }

  function hatch(context) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const c = tile.getContext("2d");
    c.strokeStyle = shades.hatch;
    c.globalAlpha = 0.55;
    c.lineWidth = 1.6;
    c.beginPath();
    for (const x of [-8, 0, 8]) {
      c.moveTo(x, 8);
      c.lineTo(x + 8, 0);
    }
    c.stroke();
    return context.createPattern(tile, "repeat");
  }

  return { refresh, painter, laneKey, numbered, hatch, ramp, get: (name) => shades[name] };
})();
