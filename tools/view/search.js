"use strict";
/* search: which blocks a query means. A size ("64MiB", ">1GiB", "1MiB..4MiB"), an address ("0x7f..."), or a part of a frame. */

const Search = (() => {
  const SIZE = /^(\d+(?:\.\d+)?)\s*([kmgtpe]?)(?:i?b)?$/i;

  function bytesOf(text) {
    const match = SIZE.exec(text.trim());
    return match ? Number(match[1]) * 1024 ** " kmgtpe".indexOf(match[2].toLowerCase() || " ") : null;
  }

  /* Whether a number of bytes is meant; null: the query is not of sizes. A size with a unit means all that are shown so. */
  function sizes(query) {
    const [from, to, ...more] = query.split("..").map(bytesOf);
    if (more.length === 0 && typeof from === "number" && typeof to === "number") return (size) => from <= size && size <= to;
    const match = /^(<=|>=|<|>|=)?(.+)$/.exec(query.trim());
    const bytes = match ? bytesOf(match[2]) : null;
    if (bytes === null) return null;
    switch (match[1]) {
      case "<": return (size) => size < bytes;
      case "<=": return (size) => size <= bytes;
      case ">": return (size) => size > bytes;
      case ">=": return (size) => size >= bytes;
      case "=": return (size) => size === bytes;
    }
    if (!/[kmgtpe]/i.test(match[2])) return (size) => size === bytes;
    const shown = Text.size(bytes);
    return (size) => size >= bytes * 0.99 && size <= bytes * 1.01 && Text.size(size) === shown;
  }

  function tester(track, query) {
    const { blocks, about } = track;
    if (/^0x[0-9a-f]+$/i.test(query)) {
      const offset = Number(BigInt(query) - BigInt(about.base));
      return (i) => blocks.address[i] <= offset && offset < blocks.address[i] + Math.max(1, blocks.bytes[i]);
    }
    const meant = sizes(query);
    if (meant) return (i) => meant(blocks.bytes[i]);

    const wanted = query.toLowerCase();
    const frames = new Set(about.frames.flatMap((text, i) => (text.toLowerCase().includes(wanted) ? [i] : [])));
    const stacks = about.stacks.map((stack) => stack.some((frame) => frames.has(frame)));
    return (i) => stacks[blocks.stack[i]] === true;
  }

  /* Marks, and the matches in the order of their start, of the lanes that are shown. */
  function run(track, query, shown) {
    const matches = [];
    const marks = new Uint8Array(track.blocks.count);
    const test = tester(track, query.trim());
    let bytes = 0;
    for (let i = 0; i < track.blocks.count; i++) {
      if (!shown[track.blocks.lane[i]] || !test(i)) continue;
      marks[i] = 1;
      matches.push(i);
      bytes += track.blocks.bytes[i];
    }
    return { marks, matches, bytes };
  }

  return { run };
})();
