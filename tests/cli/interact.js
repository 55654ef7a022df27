"use strict";
/* Hands on a report: browser.sh puts this at the end of a page. What went wrong becomes the page's failure. */
(async () => {
  const { view } = Report;
  const check = (good, what) => { if (!good) throw new Error(`interact: ${what}`); };
  const ready = () => document.body.dataset.state !== "loading";
  if (!ready())
    await new Promise((done) => new MutationObserver(() => ready() && done()).observe(document.body, { attributes: true }));

  const canvas = document.querySelector(".track canvas");
  const box = canvas.getBoundingClientRect();
  const at = (x, y, more) => ({ bubbles: true, cancelable: true, clientX: box.left + x, clientY: box.top + y, pointerId: 1, ...more });
  const send = (event, to = canvas) => {
    to.dispatchEvent(event);
    Report.redraw(); /* what the next frame would do */
  };
  const press = (key) => send(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const span = () => view.x1 - view.x0;
  canvas.setPointerCapture = () => {}; /* no real pointer, nothing to capture */

  const whole = span(), tall = view.y1 - view.y0;
  send(new WheelEvent("wheel", at(400, 150, { deltaY: -240 })));
  check(span() < whole, "the wheel does not zoom");
  const under = view.x0 + ((400 - 66) / (box.width - 76)) * span();
  send(new WheelEvent("wheel", at(400, 150, { deltaY: -120 })));
  check(Math.abs(view.x0 + ((400 - 66) / (box.width - 76)) * span() - under) < span() / 100, "zooming moves what is under the pointer");
  send(new WheelEvent("wheel", at(400, 150, { deltaY: -120, shiftKey: true })));
  check(view.y1 - view.y0 < tall, "the wheel with Shift does not zoom bytes");

  const left = view.x0, kept = span();
  send(new PointerEvent("pointerdown", at(400, 150)));
  send(new PointerEvent("pointermove", at(300, 150)));
  send(new PointerEvent("pointerup", at(300, 150)));
  check(view.x0 > left && Math.abs(span() - kept) < 1e-6 * kept, "dragging does not move");

  for (const key of ["+", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "]", "["]) {
    const before = JSON.stringify([view.x0, view.x1, view.y0, view.y1]);
    press(key);
    check(before !== JSON.stringify([view.x0, view.x1, view.y0, view.y1]), `key ${key} does nothing`);
  }
  press("0");
  check(view.x0 === 0 && span() === whole && view.y1 - view.y0 === tall, "0 does not show everything");
  press("p");
  const peak = view.instant;
  check(view.sums(view.base).requested[peak] === view.base.about.peaks.requested, "p does not go to the peak");
  press(".");
  check(view.instant === peak + 1, ". does not go on");

  /* The lowest band at the peak. */
  press("p");
  const x = 66 + ((peak + 0.5) / whole) * (box.width - 76), y = box.height - 24;
  send(new PointerEvent("pointermove", at(x, y)));
  const tip = document.getElementById("tip");
  check(!tip.hidden && /^\d[\d.]* [KMG]iB/.test(tip.textContent) && tip.textContent.includes("Address: 0x"), `tip: ${tip.textContent}`);
  send(new PointerEvent("pointerdown", at(x, y)));
  send(new PointerEvent("pointerup", at(x, y)));
  check(view.picked && document.getElementById("detail").textContent.includes("bytes)"), "a click keeps nothing");

  const query = document.getElementById("query");
  for (const [text, most] of [[">1GiB", 0], [Text.address(view.picked.track, view.picked.track.blocks.address[view.picked.block]), Infinity]]) {
    query.value = text;
    send(new InputEvent("input", { bubbles: true }), query);
    const count = parseInt(document.getElementById("found").textContent.replace(/,/g, ""), 10);
    check(most === 0 ? count === 0 : count > 0, `search for ${text}: ${count}`);
  }
  send(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }), query);
  check(view.results === null, "Escape does not end the search");

  const theme = document.documentElement.dataset.theme;
  press("t");
  check(document.documentElement.dataset.theme !== theme, "t does not change the theme");
  check(document.documentElement.scrollWidth <= innerWidth, "the page is wider than the window");

  location.hash = "from=10&to=20&at=15&axis=operations";
  await new Promise((done) => setTimeout(done, 50));
  check(view.x0 === 10 && view.x1 === 20 && view.instant === 15, "a link to another view does nothing in an open page");
  document.body.dataset.interact = "passed";
})();
