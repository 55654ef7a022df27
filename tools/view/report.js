"use strict";
/* report: the page: what the reader does, and what is drawn again for it. */

const Report = (() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, text = "") => Object.assign(document.createElement(tag), { textContent: text });

  let tracks = [], charts = [], bars = [], notes = [], lanes = [];
  let found = [], at = -1, scheduled = false;
  let barsShow = []; /* what the segments were drawn for: zooming does not touch them */

  const view = {
    x0: 0, x1: 1, y0: 0, y1: 1, time: false, device: null, instant: 0, base: null, picked: null, mode: "allocation", results: null,
    sums(track) { return Data.sums(track, this.device); },
    positions(track) {
      if (this.time) return track.time;
      if (!track.order) track.order = Float64Array.from(track.time, (unused, m) => m);
      return track.order;
    },
    /* The instant is a moment of one track, `base`; in others it is the same operation, or the same time. */
    moment(track) {
      const last = track.moments - 1;
      if (!this.time || track === this.base) return Math.min(this.instant, last);
      return new Bands.Axis(track.time, 0, 1, 1).moment(this.base.time[this.instant]);
    },
    painter(track) { return Colours.painter(track, lanes, this.mode); },
    marks(track) { return this.results ? this.results.get(track).marks : null; },
  };

  /* ---- drawing ---- */

  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      redraw();
    });
  }

  function redraw() {
    for (const chart of charts) chart.measure();
    for (const chart of charts) chart.draw();
    const standing = [view.device, view.instant, view.base, view.time, view.picked, view.mode, view.results, document.documentElement.dataset.theme, innerWidth];
    if (standing.some((value, i) => value !== barsShow[i])) {
      for (const bar of bars) bar.prepare();
      for (const bar of bars) bar.draw();
    }
    barsShow = standing;
    showStatus();
  }

  function extent() {
    const ends = tracks.map((track) => view.positions(track)[track.moments - 1] + 1);
    return Math.max(...ends);
  }

  function tallest() {
    const heights = tracks.map((track) => view.sums(track)).flatMap((s) => [s.reserved[s.peak.reserved], s.active[s.peak.active]]);
    return Math.max(1, ...heights) * 1.03;
  }

  function showAll() {
    Object.assign(view, { x0: 0, x1: extent(), y0: 0, y1: tallest() });
    schedule();
  }

  function zoomX(factor, around = (view.x0 + view.x1) / 2) {
    const least = view.time ? 1 : 4, most = extent();
    const span = Math.min(most, Math.max(Math.min(least, most), (view.x1 - view.x0) * factor));
    const share = (around - view.x0) / (view.x1 - view.x0);
    moveTo(around - span * share, span);
  }

  function moveTo(x0, span) {
    const most = extent();
    view.x0 = Math.min(Math.max(0, x0), Math.max(0, most - span));
    view.x1 = view.x0 + span;
    schedule();
  }

  function zoomY(factor, around = view.y0) {
    const span = Math.min(tallest(), Math.max(4096, (view.y1 - view.y0) * factor));
    const share = (around - view.y0) / (view.y1 - view.y0);
    moveY(around - span * share, span);
  }

  function moveY(y0, span) {
    view.y0 = Math.min(Math.max(0, y0), tallest() - span);
    view.y1 = view.y0 + span;
    schedule();
  }

  function setInstant(moment, base = view.base) {
    view.base = base;
    view.instant = Math.min(base.moments - 1, Math.max(0, moment));
    const where = view.positions(base)[view.instant];
    if (where < view.x0 || where >= view.x1) moveTo(where - (view.x1 - view.x0) / 2, view.x1 - view.x0);
    schedule();
  }

  /* ---- words ---- */

  const WHAT = ["requested", "active", "reserved"];
  const known = (track) => (track.about.has_segments ? WHAT : WHAT.slice(0, 2));
  const values = (track, m) => known(track).map((what) => `${what} ${Text.size(view.sums(track)[what][m])}`).join(", ");

  /* Several tracks have their values in their titles: a line of its own for each keeps its place. */
  function showStatus() {
    const { base, instant } = view;
    const where = `Operation ${Text.count(instant)}, ${Text.time(base.time[instant])}`;
    byId("status").textContent = tracks.length === 1 ? `${where}: ${values(base, instant)}` : where;
    notes.forEach((note, i) => { note.textContent = values(tracks[i], view.moment(tracks[i])); });
  }

  function blockRows(track, block) {
    const { blocks } = track;
    const [from, freed, until] = [blocks.from[block], blocks.freed[block], blocks.until[block]];
    const rows = [
      ["Size", `${Text.size(blocks.bytes[block])} (${Text.count(blocks.bytes[block])} bytes)`],
      ["Address", Text.address(track, blocks.address[block])],
      ["Where", Text.lane(track, blocks.lane[block])],
      ["Allocated", from ? `operation ${Text.count(from)}, ${Text.time(track.time[from])}` : "before the first event"],
    ];
    const end = Math.min(freed, track.moments - 1);
    if (freed === Data.NEVER) rows.push(["Freed", "never"]);
    else rows.push(["Freed", `operation ${Text.count(freed)}, after ${Text.time(track.time[end] - track.time[from])}`]);
    if (until !== freed) rows.push(["Waited", until === Data.NEVER ? "for another stream, to the end" : `for another stream until operation ${Text.count(until)}`]);
    if (blocks.thread[block]) rows.push(["Thread", String(blocks.thread[block])]);
    return rows;
  }

  function fillList(list, rows) {
    for (const [name, value] of rows) list.append(make("dt", name), make("dd", value));
    return list;
  }

  function showDetail() {
    const { track, block } = view.picked;
    const box = byId("detail");
    const rows = blockRows(track, block), frames = Data.frames(track, track.blocks.stack[block]);
    if (frames.length) rows.push(["Caller", Data.callers(track, track.blocks.stack[block])[0]]);
    box.replaceChildren(fillList(make("dl"), rows));
    if (!frames.length) return;
    const list = make("ol");
    list.className = "stack";
    list.append(...frames.map((frame) => make("li", frame)));
    box.append(list);
  }

  function pick(track, block) {
    view.picked = { track, block };
    showDetail();
  }

  /* ---- the tip ---- */

  function tipLines(track, hit) {
    if (hit.block !== undefined) {
      const rows = blockRows(track, hit.block).slice(1).map(([name, value]) => `${name}: ${value}`);
      return [Text.size(track.blocks.bytes[hit.block]), ...rows, ...Data.callers(track, track.blocks.stack[hit.block])];
    }
    if (hit.failure !== undefined) {
      const { failures } = track;
      const free = failures.free[hit.failure] ? `, ${Text.size(failures.free[hit.failure])} free on the device` : "";
      return [`Out of memory: ${Text.size(failures.bytes[hit.failure])}`, `${Text.lane(track, failures.lane[hit.failure])}${free}`,
        ...Data.callers(track, failures.stack[hit.failure])];
    }
    if (hit.hole !== undefined)
      return [`${Text.size(hit.hole)} free`, `at ${Text.address(track, hit.address)}`, `in a segment of ${Text.size(hit.segment.bytes)}`,
        Text.lane(track, hit.segment.lane)];
    const lines = [values(track, hit.moment), `operation ${Text.count(hit.moment)}, ${Text.time(track.time[hit.moment])}`];
    return hit.small ? ["Allocations too small to show", ...lines] : lines;
  }

  function showTip(track, hit, event) {
    const tip = byId("tip");
    const [first, ...rest] = tipLines(track, hit);
    tip.replaceChildren(make("b", first), ...rest.map((line) => make("div", line)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const top = event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16;
    tip.style.left = `${Math.max(6, left)}px`;
    tip.style.top = `${Math.max(6, top)}px`;
  }

  const hideTip = () => { byId("tip").hidden = true; };

  /* ---- search ---- */

  function search() {
    const query = byId("query").value.trim();
    found = [];
    at = -1;
    view.results = query ? new Map(tracks.map((track) => [track, Search.run(track, query, view.sums(track).shown)])) : null;
    let bytes = 0;
    for (const track of query ? tracks : []) {
      bytes += view.results.get(track).bytes;
      for (const block of view.results.get(track).matches) found.push({ track, block });
    }
    const words = found.length === 1 ? "1 allocation" : `${Text.count(found.length)} allocations`;
    byId("found").textContent = query ? `${words}, ${Text.size(bytes)} in all` : "";
    schedule();
  }

  function step(by) {
    if (!found.length || !by) return;
    const before = at < 0 && by > 0 ? -1 : Math.max(at, 0); /* the first is one step ahead, and the last one back */
    at = (((before + by) % found.length) + found.length) % found.length;
    const { track, block } = found[at];
    pick(track, block);
    const from = view.positions(track)[Math.min(track.blocks.from[block], track.moments - 1)];
    const span = view.x1 - view.x0;
    if (from < view.x0 || from > view.x1) moveTo(from - span / 4, span);
    setInstant(track.blocks.from[block], track);
    const words = byId("found").textContent.replace(/ \(number .*\)$/, "");
    byId("found").textContent = `${words} (number ${Text.count(at + 1)})`;
  }

  /* ---- hands ---- */

  function position(chart, event) {
    const box = chart.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  const axisAt = (chart, x) => view.x0 + (x - chart.margin.left) / chart.axis.scale;

  /* One pointer moves, two zoom. */
  function followPointers(chart) {
    const { canvas } = chart;
    const down = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      down.set(event.pointerId, position(chart, event));
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = position(chart, event), last = down.get(event.pointerId);
      if (!last) {
        const hit = chart.hit(now.x, now.y);
        return hit ? showTip(chart.track, hit, event) : hideTip();
      }
      moved += Math.abs(now.x - last.x) + Math.abs(now.y - last.y);
      if (moved < 4) return undefined;
      hideTip();
      if (down.size === 2) {
        const other = [...down].find(([id]) => id !== event.pointerId)[1];
        const ratio = Math.max(10, Math.abs(last.x - other.x)) / Math.max(10, Math.abs(now.x - other.x));
        zoomX(ratio, axisAt(chart, (now.x + other.x) / 2));
      } else {
        moveTo(view.x0 - (now.x - last.x) / chart.axis.scale, view.x1 - view.x0);
        moveY(view.y0 + ((now.y - last.y) / chart.plotHeight) * (view.y1 - view.y0), view.y1 - view.y0);
      }
      down.set(event.pointerId, now);
      return undefined;
    });
    const up = (event) => {
      const known = down.delete(event.pointerId);
      if (!known || moved >= 4 || event.type !== "pointerup") return;
      const where = position(chart, event), hit = chart.hit(where.x, where.y);
      if (!hit) return;
      if (hit.block !== undefined) pick(chart.track, hit.block);
      setInstant(hit.moment, chart.track);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const where = position(chart, event);
      const delta = event.deltaY || event.deltaX;
      const factor = Math.exp(Math.max(-120, Math.min(120, delta)) * 0.003);
      if (event.shiftKey) zoomY(factor, chart.bytesAt(where.y));
      else zoomX(factor, axisAt(chart, where.x));
    }, { passive: false });
  }

  function followBars(bar) {
    const where = (event) => {
      const box = bar.canvas.getBoundingClientRect();
      return bar.hit(event.clientX - box.left, event.clientY - box.top);
    };
    bar.canvas.addEventListener("pointermove", (event) => {
      const hit = where(event);
      if (hit) showTip(bar.track, hit, event);
      else hideTip();
    });
    bar.canvas.addEventListener("pointerleave", hideTip);
    bar.canvas.addEventListener("click", (event) => {
      const hit = where(event);
      if (!hit || hit.block === undefined) return;
      pick(bar.track, hit.block);
      schedule();
    });
  }

  const span = () => view.x1 - view.x0;
  const tall = () => view.y1 - view.y0;

  const keys = {
    "+": () => zoomX(0.6, instantPosition()), "=": () => zoomX(0.6, instantPosition()),
    "-": () => zoomX(1 / 0.6, instantPosition()),
    "]": () => zoomY(0.7), "[": () => zoomY(1 / 0.7),
    "0": showAll,
    "ArrowLeft": () => moveTo(view.x0 - span() * 0.15, span()), "ArrowRight": () => moveTo(view.x0 + span() * 0.15, span()),
    "ArrowUp": () => moveY(view.y0 + tall() * 0.15, tall()), "ArrowDown": () => moveY(view.y0 - tall() * 0.15, tall()),
    ",": () => setInstant(view.instant - 1), ".": () => setInstant(view.instant + 1),
    "p": toPeak, "t": switchTheme,
    "/": () => byId("query").focus(),
  };

  /* What zooming by key keeps in place: the instant where it can be seen. */
  function instantPosition() {
    const where = view.positions(view.base)[view.instant];
    return where >= view.x0 && where <= view.x1 ? where : (view.x0 + view.x1) / 2;
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest("input, select");
    if (typing || (event.target.id === "segments" && event.key.startsWith("Arrow"))) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  function toPeak() {
    const height = (track) => view.sums(track).requested[view.sums(track).peak.requested];
    const highest = tracks.reduce((a, b) => (height(b) > height(a) ? b : a));
    setInstant(view.sums(highest).peak.requested, highest);
  }

  function switchTheme() {
    const root = document.documentElement;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme || (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    refreshColours();
  }

  function refreshColours() {
    Colours.refresh();
    barsShow = [];
    showLegend();
    schedule();
  }

  /* ---- the page ---- */

  function showSummary() {
    const body = byId("summary").tBodies[0];
    for (const track of tracks) {
      const row = make("tr");
      const all = Data.sums(track, null);
      const [requested, active, reserved] = WHAT.map((what) => all[what][all.peak[what]]);
      Object.assign(row.dataset, { requested, active, reserved, operations: track.moments - 2, allocations: track.blocks.count });
      const ratio = reserved && requested ? (reserved / requested).toFixed(3) : "–";
      const words = [Text.size(requested), Text.size(active), track.about.has_segments ? Text.size(reserved) : "not recorded", ratio,
        Text.count(track.moments - 2), Text.count(track.failures.count)];
      const title = make("th", track.about.title);
      title.scope = "row";
      title.style.fontWeight = "600";
      row.append(title, ...words.map((word) => make("td", word)));
      body.append(row);
    }
  }

  function legendItem(colour, text, line = false) {
    const item = make("span"), sample = make("i");
    if (line) {
      sample.className = "stroke";
      sample.style.borderColor = colour;
    } else {
      sample.style.background = colour;
    }
    item.append(sample, text);
    return item;
  }

  function showLegend() {
    const items = [];
    if (tracks.some((t) => t.about.has_segments)) items.push(legendItem(Colours.get("reserved"), "reserved", true));
    if (tracks.some((track) => view.sums(track).waits)) items.push(legendItem(Colours.get("active"), "active", true));
    items.push(legendItem(Colours.get("requested"), "requested", true), legendItem(Colours.get("small"), "small allocations"));
    if (view.mode === "size")
      for (const bytes of [512, 65536, 1 << 20, 1 << 25, 2 ** 30]) items.push(legendItem(Colours.ramp(bytes), Text.size(bytes)));
    if (view.mode === "stream" || view.mode === "pool") {
      const names = new Map();
      for (const track of tracks)
        track.about.lanes.forEach((lane, i) => names.set(Colours.laneKey(lane, view.mode), Text.lane(track, i, ["device", view.mode])));
      const shown = (key) => view.device === null || key.startsWith(`${view.device} `);
      lanes.forEach((key, i) => shown(key) && items.push(legendItem(Colours.numbered(i), names.get(key))));
    }
    byId("legend").replaceChildren(...items);
  }

  function setMode(mode) {
    view.mode = mode;
    const all = tracks.flatMap((track) => track.about.lanes.map((lane) => Colours.laneKey(lane, mode)));
    lanes = [...new Set(all)];
    byId("colour").value = mode;
    showLegend();
    schedule();
  }

  /* Only traces of several devices have a choice. */
  function offerDevices() {
    const numbers = [...new Set(tracks.flatMap((track) => track.about.lanes.map((lane) => lane.device)))].sort((a, b) => a - b);
    const choice = byId("device");
    choice.append(...numbers.map((number) => Object.assign(make("option", String(number)), { value: String(number) })));
    choice.parentElement.hidden = numbers.length < 2;
  }

  function setDevice(text) {
    view.device = text === "" ? null : Number(text);
    byId("device").value = text;
    Object.assign(view, { y0: 0, y1: tallest() });
    showLegend();
    search();
  }

  function setAxis(time) {
    const at0 = tracks[0], old = view.positions(at0);
    const axis = new Bands.Axis(old, view.x0, view.x1, 1);
    const [from, to] = [axis.moment(view.x0), axis.moment(view.x1)];
    const whole = view.x0 <= 0 && view.x1 >= extent();
    view.time = time;
    if (whole) return showAll();
    const fresh = view.positions(at0);
    return moveTo(fresh[from], Math.max(1, fresh[to] - fresh[from]));
  }

  function build() {
    const many = tracks.length > 1;
    byId("tracks").classList.toggle("many", many);
    for (const track of tracks) {
      const section = make("div");
      section.className = "track";
      const canvas = make("canvas");
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "img");
      const { peaks } = track.about;
      const words = known(track).map((what) => `peak ${what} ${Text.size(peaks[what])}`).join(", ");
      canvas.setAttribute("aria-label", `Memory of ${track.about.title} over time: ${words}`);
      if (many) {
        const title = make("h2", `${track.about.title} `);
        notes.push(title.appendChild(make("small")));
        section.append(title);
      }
      section.append(canvas);
      byId("tracks").append(section);
      const chart = new Chart(track, view, section);
      followPointers(chart);
      charts.push(chart);

      if (many) byId("segments").append(make("h2", track.about.title));
      const bar = new Segments(track, view, byId("segments").appendChild(make("canvas")));
      followBars(bar);
      bars.push(bar);
    }
  }

  function listen() {
    byId("device").addEventListener("change", (event) => setDevice(event.target.value));
    byId("axis").addEventListener("change", (event) => setAxis(event.target.value === "time"));
    byId("colour").addEventListener("change", (event) => setMode(event.target.value));
    byId("zoom-in").addEventListener("click", keys["+"]);
    byId("zoom-out").addEventListener("click", keys["-"]);
    byId("zoom-reset").addEventListener("click", showAll);
    byId("to-peak").addEventListener("click", toPeak);
    byId("theme").addEventListener("click", switchTheme);
    byId("query").addEventListener("input", search);
    byId("previous").addEventListener("click", () => step(-1));
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      step(1);
    });
    byId("query").addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.target.value = "";
        search();
        event.target.blur();
      } else if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        step(-1);
      }
    });
    document.addEventListener("keydown", onKey);
    addEventListener("resize", schedule);
    addEventListener("hashchange", () => { /* a link to another view, followed in an open page */
      obeyAddress();
      schedule();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refreshColours);
  }

  /* "#search=64MiB&step=1&theme=dark&from=10&to=20": so that a view can be linked to. */
  function obeyAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (wanted.get("theme")) document.documentElement.dataset.theme = wanted.get("theme") === "dark" ? "dark" : "light";
    if (wanted.get("colour")) byId("colour").value = wanted.get("colour");
    refreshColours();
    setMode(byId("colour").value || "allocation");
    if (wanted.get("device")) setDevice(wanted.get("device"));
    if (wanted.get("axis")) {
      byId("axis").value = wanted.get("axis") === "time" ? "time" : "operations";
      setAxis(wanted.get("axis") === "time");
    }
    const [from, to] = [Number(wanted.get("from")), Number(wanted.get("to"))];
    if (to > from && from >= 0) moveTo(from, Math.min(to - from, extent()));
    if (wanted.get("at")) setInstant(Number(wanted.get("at")) | 0);
    if (wanted.get("search")) {
      byId("query").value = wanted.get("search");
      search();
      step(Number(wanted.get("step")) | 0);
    }
  }

  async function start() {
    tracks = await Data.read();
    if (!tracks.some((track) => track.about.stacks.length > 1)) byId("colour").querySelector("[value=stack]").remove();
    Colours.refresh();
    view.base = tracks[0];
    build();
    offerDevices();
    showSummary();
    listen();
    Object.assign(view, { x0: 0, x1: extent(), y0: 0, y1: tallest() });
    toPeak();
    obeyAddress();
    redraw();
    document.body.dataset.state = "ready";
  }

  function fail(error) {
    document.body.dataset.state = "failed";
    byId("failure").hidden = false;
    byId("failure").textContent = `This report cannot be shown: ${error.message || error}`;
  }

  addEventListener("error", (event) => fail(event.error || event.message));
  addEventListener("unhandledrejection", (event) => fail(event.reason));
  start().catch(fail);
  return { view, redraw };
})();
