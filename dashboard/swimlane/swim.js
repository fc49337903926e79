
// The swim-lane in the page: its parts, what is selected and shown, pointer and keys. Texts reach textContent only.

const DIGEST = 16; // characters in front of the drawing that name it
const MAX_PX = 560, REACH_PX = 5, FOLLOW_MS = 250, SETTLE_MS = 600, ZOOM = 1.6;
const KEYS = [
  ["← →", "previous, next event of the lane; at the lane's name: fold, unfold"],
  ["↑ ↓", "nearest event of the lane above, below"], ["Home End", "first, last event of the lane"],
  ["n p", "next, previous event of the same kind"], ["Enter", "open the event"], ["+ −", "zoom in, out; also Ctrl + wheel"],
  ["0", "show the whole run"], ["Esc", "select nothing, go to the lane's name"], ["Shift + wheel", "move along; also drag"],
];
const views = new Map(); // digest of a drawing -> its view
const cursors = new Map(); // digest -> what the page last said is selected and shown; it may come before the drawing

export default function (component) {
  return component.data instanceof Uint8Array ? showDrawing(component) : followPage(component.data);
}

function followPage(cursor) {
  cursors.set(cursor.of, cursor);
  views.get(cursor.of)?.follow(cursor);
  return () => { if (cursors.get(cursor.of) === cursor) cursors.delete(cursor.of); };
}

function showDrawing({ data, parentElement, setTriggerValue }) {
  const digest = new TextDecoder().decode(data.subarray(0, DIGEST));
  let view = views.get(digest);
  if (view?.root.parentNode !== parentElement) {
    view = openView(JSON.parse(new TextDecoder().decode(data.subarray(DIGEST))), parentElement);
    view.leave = () => {
      view.watch.disconnect();
      for (const timer of Object.values(view.timers)) clearTimeout(timer);
      view.root.remove();
      if (views.get(digest) === view) views.delete(digest);
    };
    views.set(digest, view);
    if (cursors.has(digest)) view.follow(cursors.get(digest));
  }
  view.send = setTriggerValue;
  drawSoon(view); // the page ran again; its theme may be another one
  return view.leave;
}

// Parts and state.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function openView(data, parentElement) {
  const scene = readScene(data), n = scene.n.toLocaleString("en");
  const label = `${scene.title}: ${n} events in lanes. Arrow keys walk them; the Events view is a table of them.`;
  const view = {
    scene, selected: -1, related: null, marked: new Set(), lane: scene.roots[0] ?? -1, isPathShown: true, hidden: new Set(),
    buttons: [],
    folded: new Set(scene.lanes.is_folded.flatMap((isFolded, lane) => (isFolded ? [lane] : []))),
    timers: {}, frame: 0, heard: null,
    canvas: element("canvas", {
      class: "chart", tabindex: 0, role: "application", "aria-roledescription": "swim-lane", "aria-label": label,
    }),
    spacer: element("div"), tip: element("div", { class: "tip" }), map: element("canvas", { class: "map", "aria-hidden": true }),
    note: element("p", { class: "note" }), live: element("div", { class: "live", "aria-live": "polite" }),
  };
  view.scroll = element("div", { class: "scroll" }, view.canvas, view.spacer);
  view.root = element("div", { class: "swim" },
    element("div", { class: "bar" }, legendOf(view), toolsOf(view)), element("div", { class: "stage" }, view.scroll, view.tip),
    view.map, view.note, keysOf(), view.live);
  view.follow = (cursor) => follow(view, cursor);
  parentElement.append(view.root);
  putOnAxis(view, "time");
  listen(view);
  view.watch = new ResizeObserver(() => drawSoon(view));
  view.watch.observe(view.root);
  return view;
}

function legendOf(view) {
  const legend = element("div", { class: "legend", role: "group", "aria-label": "What is drawn" });
  const add = (title, text, paintSwatch, isShown, change) => {
    const swatch = element("canvas", { width: 28, height: 28, "aria-hidden": true }), g = swatch.getContext("2d");
    g.scale(2, 2);
    const button = element("button", { type: "button", title }, swatch, text);
    button.addEventListener("click", () => { change(); arrange(view); });
    view.buttons.push(() => { button.setAttribute("aria-pressed", isShown()); paintSwatch(g); });
    legend.append(button);
  };
  for (const { kind, name, text } of kindsOf(view.scene)) {
    add(`Show or hide ${name}`, text, (g) => paintGlyph(g, view.scene.kinds[kind], 7, 7, 5),
      () => !view.hidden.has(kind), () => toggle(view.hidden, kind));
  }
  for (const [color, text] of view.scene.swatches) {
    const swatch = element("canvas", { width: 14, height: 14, "aria-hidden": true }), g = swatch.getContext("2d");
    view.buttons.push(() => { g.fillStyle = color ?? view.theme.line; g.clearRect(0, 0, 14, 14); g.fillRect(1, 1, 12, 12); });
    legend.append(element("span", { class: "swatch" }, swatch, text));
  }
  const paintStroke = (g) => { g.fillStyle = view.theme.text; g.fillRect(0, 8, 14, 3); };
  const flip = () => { view.isPathShown = !view.isPathShown; };
  if (view.scene.critical.length) {
    add("The events that decided how long the run took", "critical path", paintStroke, () => view.isPathShown, flip);
  }
  return legend;
}

function toolsOf(view) {
  const tools = element("div", { class: "tools", role: "group", "aria-label": "Zoom and export" });
  for (const [text, title, act] of [
    ["−", "Zoom out", () => zoom(view, ZOOM)], ["+", "Zoom in", () => zoom(view, 1 / ZOOM)],
    ["Fit", "Show the whole run", () => fit(view)], ["PNG", "Save as a picture", () => savePicture(view)],
  ]) {
    const button = element("button", { type: "button", title, "aria-label": title }, text);
    button.addEventListener("click", act);
    tools.append(button);
  }
  return tools;
}

function keysOf() {
  const rows = KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]);
  return element("details", {}, element("summary", {}, "Keys"), element("dl", {}, ...rows));
}

function savePicture(view) {
  pictureOf(view).toBlob((blob) => {
    const link = element("a", { href: URL.createObjectURL(blob), download: view.scene.file });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}

function toggle(set, member) {
  if (!set.delete(member)) set.add(member);
}

/** Show what the page says, unless something newer is on its way to the page. */
function follow(view, { selected, axis, range, marked = [] }) {
  const isFirst = view.heard === null, isOther = axisOf(view.scene, axis) !== view.place.axis;
  if (isOther) putOnAxis(view, axis);
  if (`${marked}` !== `${[...view.marked]}`) {
    view.marked = new Set(marked);
    drawSoon(view);
  }
  if (isOther && !isFirst) {
    view.heard = `${range}`;
    if (range) tell(view, "range", null); // seconds are no event numbers
  } else if (view.timers.range === undefined && view.heard !== `${range}`) {
    view.heard = `${range}`; // only what was followed counts as heard
    if (range) setRange(view, ...range, null); else fit(view, null);
  }
  if (view.timers.picked === undefined && (selected ?? -1) !== view.selected) select(view, selected ?? -1, null);
}

/** Tell the page, `wait` ms after the last change; null: it knows. */
function tell(view, name, value, wait = 0) {
  if (wait === null) return;
  clearTimeout(view.timers[name]);
  view.timers[name] = setTimeout(() => {
    delete view.timers[name];
    view.send(name, value);
  }, wait);
}

function axisOf(scene, wanted) {
  return scene.start.some((start) => start !== null) ? wanted : "order";
}

function putOnAxis(view, axis) {
  view.place = placeEvents(view.scene, axisOf(view.scene, axis));
  [view.x0, view.x1] = [view.place.low, view.place.high];
  arrange(view);
}

/** Lay the lanes out anew: after folding, hiding, another axis. */
function arrange(view) {
  view.layout = layOut(view.scene, view.place, view.folded, (i) => view.hidden.has(view.scene.kind[i]));
  if (view.lane >= 0) view.lane = view.layout.lanes[view.layout.shownAs[view.lane]].lane;
  drawSoon(view);
}

/** Select an event, or none (-1). */
function select(view, event, wait = 0) {
  const { scene } = view;
  view.selected = event;
  view.related = event < 0 ? null : relatedTo(scene, event, MAX_TIES);
  view.live.textContent = event < 0 ? "No event is selected." : aboutEvent(view, event).slice(0, -1).join(", ");
  if (event >= 0) {
    view.lane = scene.lane[event];
    view.hidden.delete(scene.kind[event]);
    arrange(view);
    reveal(view, event);
  }
  drawSoon(view);
  tell(view, "picked", event, wait);
}

function fold(view, lane) {
  view.lane = lane;
  if (view.scene.children[lane].length) toggle(view.folded, lane);
  arrange(view);
}

/** Show a part of the axis, as far as there is one. */
function setRange(view, x0, x1, wait = SETTLE_MS) {
  const { low, high, axis } = view.place, full = high - low;
  const span = Math.min(full, Math.max(x1 - x0, axis === "time" ? full * 1e-6 : Math.min(full, 4)));
  view.x0 = Math.min(Math.max((x0 + x1 - span) / 2, low), high - span);
  view.x1 = view.x0 + span;
  const isAll = span > full * (1 - 1e-9);
  tell(view, "range", isAll ? null : [+view.x0.toFixed(6), +view.x1.toFixed(6)], wait);
  drawSoon(view);
}

function fit(view, wait) {
  setRange(view, view.place.low, view.place.high, wait);
}

function zoom(view, factor, at = (view.x0 + view.x1) / 2) {
  setRange(view, at - (at - view.x0) * factor, at + (view.x1 - at) * factor);
}

function reveal(view, event) {
  const { place, layout, scroll } = view, span = view.x1 - view.x0, [from, to] = [place.from[event], place.to[event]];
  if (to < view.x0 || from > view.x1) setRange(view, from - span / 2, from + span / 2);
  const lane = layout.lanes[layout.shownAs[view.scene.lane[event]]], shown = scroll.clientHeight - AXIS_PX;
  if (lane.y < scroll.scrollTop || lane.y + lane.height > scroll.scrollTop + shown) {
    scroll.scrollTop = lane.y - (shown - lane.height) / 2;
  }
}

// What is drawn and said.

function drawSoon(view) {
  view.frame ||= requestAnimationFrame(() => {
    view.frame = 0;
    if (view.root.clientWidth) draw(view);
  });
}

function draw(view) {
  const { root, scroll } = view, full = view.layout.height + AXIS_PX + 2, height = Math.min(full, MAX_PX);
  view.theme = readTheme(root);
  view.gutter = gutterOf(view, root.clientWidth);
  scroll.style.height = `${height}px`;
  view.spacer.style.height = `${full - height}px`;
  const box = { width: scroll.clientWidth, height, scrollTop: scroll.scrollTop };
  const nInView = paint(sized(view.canvas, box.width, height), view, box);
  paintMap(sized(view.map, box.width, MAP_PX), view, box.width);
  for (const refresh of view.buttons) refresh();
  sayWhatIsDrawn(view, nInView);
}

function sayWhatIsDrawn(view, nInView) {
  const { scene, layout, related } = view, say = (n) => n.toLocaleString("en");
  const nDrawn = layout.lanes.reduce((n, lane) => n + lane.events.length, 0);
  const hidden = [...view.hidden].map((kind) => scene.kinds[kind][0]);
  view.note.textContent = [
    `${say(nDrawn)} of ${say(scene.n)} events drawn${nInView < nDrawn ? `, ${say(nInView)} in view` : ""}`,
    ...(hidden.length ? [`hidden: ${hidden.join(", ")}`] : []),
    ...(related && related.n > related.ties.length ? [`the nearest ${say(MAX_TIES)} of ${say(related.n)} ties drawn`] : []),
    ...(view.marked.size ? [`${say(view.marked.size)} ringed`] : []),
    ...scene.notes, "the Events view holds the same as a table",
  ].join(" · ");
  const { selected, gutter, x0, x1 } = view;
  const marked = view.marked.size;
  Object.assign(view.root.dataset, { drawn: nDrawn, lanes: layout.lanes.length, marked, selected, gutter, x0, x1 });
}

function aboutEvent({ scene }, i) {
  const [start, end, drag] = [scene.start[i], scene.end[i], scene.drag_s[i]], say = (n) => n?.toLocaleString("en") ?? "unknown";
  const lane = scene.lane[i], role = scene.lanes.role[lane], tokens = [scene.input_tokens[i], scene.output_tokens[i]];
  const times = start === null ? "no time stated" : scene.isOdd.has(i) ? `${sayTime(start)}, ends before it starts`
    : end === null ? `${sayTime(start)}, no duration stated` : `${sayTime(start)} to ${sayTime(end)} (${sayTime(end - start)})`;
  return [
    scene.words[scene.head[i]], `no. ${say(i + 1)} of ${say(scene.n)}`,
    `by ${scene.lanes.name[lane]}${role && ` (${role})`}`, times,
    ...(tokens.some((n) => n !== null) ? [`tokens in ${say(tokens[0])}, out ${say(tokens[1])}`] : []),
    ...(scene.credit?.[i] ? [scene.credit[i][1]] : []),
    ...(scene.isCritical.has(i) ? ["on the critical path"] : []),
    ...(drag ? [`drag ${sayTime(drag)}: so much sooner would the run end without it`] : []),
    ...(i in scene.error ? [`error: ${scene.error[i]}`] : []), scene.text[i],
  ];
}

// Pointer and keys.

function listen(view) {
  const { canvas, map, scroll, tip } = view;
  const hide = () => { tip.style.display = "none"; };
  let drag = null;
  const point = (event) => { const r = canvas.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    drag = { x: event.clientX, y: event.clientY, x0: view.x0, x1: view.x1, top: scroll.scrollTop, isMoved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return hover(view, ...point(event));
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    drag.isMoved ||= Math.hypot(dx, dy) > 4;
    if (!drag.isMoved) return;
    hide();
    const shift = (dx / axisPx(view)) * (drag.x1 - drag.x0);
    setRange(view, drag.x0 - shift, drag.x1 - shift);
    scroll.scrollTop = drag.top - dy;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.isMoved) click(view, ...point(event));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("wheel", (event) => turn(view, event, point(event)[0]), { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !press(view, event.key)) return;
    hide();
    event.preventDefault();
    event.stopPropagation(); // the page has keys of its own
  });
  scroll.addEventListener("scroll", () => drawSoon(view));
  const slide = (event) => {
    const { low, high } = view.place, half = (view.x1 - view.x0) / 2;
    const middle = low + ((event.clientX - map.getBoundingClientRect().left - view.gutter) / axisPx(view)) * (high - low);
    setRange(view, middle - half, middle + half);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); slide(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons & 1) slide(event); });
}

function axisPx(view) {
  return view.scroll.clientWidth - view.gutter - RIGHT_PX;
}

function turn(view, event, x) {
  const span = view.x1 - view.x0, isPan = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (!event.ctrlKey && !isPan) return; // the page scrolls, and the lanes with it
  event.preventDefault();
  if (event.ctrlKey) {
    const factor = Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200)));
    zoom(view, factor, view.x0 + ((x - view.gutter) / axisPx(view)) * span);
  } else {
    const shift = ((event.deltaX || event.deltaY) / axisPx(view)) * span;
    setRange(view, view.x0 + shift, view.x1 + shift);
  }
}

function laneAt(view, y) {
  const inside = y - AXIS_PX + view.scroll.scrollTop;
  return y < AXIS_PX ? undefined : view.layout.lanes.find((lane) => inside >= lane.y && inside < lane.y + lane.height);
}

/** The event nearest to a point of the canvas, at most 5 px away; -1 where there is none. */
function eventAt(view, x, y) {
  const lane = laneAt(view, y), at = geometry(view, { width: view.scroll.clientWidth, scrollTop: view.scroll.scrollTop });
  if (!lane || x < view.gutter) return -1;
  let best = -1, nearest = REACH_PX;
  for (const i of lane.events) {
    const mark = at.mark(i), side = mark.isPoint ? 5 : 0;
    const dx = Math.max(mark.x - side - x, x - mark.x - mark.width - side, 0);
    const dy = Math.max(mark.y - y, y - mark.y - mark.height, 0);
    const away = Math.hypot(dx, dy) + (mark.isPoint ? Math.abs(x - mark.x) / 100 : 0); // of two points, the one in the middle
    if (away <= nearest) [best, nearest] = [i, away];
  }
  return best;
}

function hover(view, x, y) {
  const { tip, canvas, scene } = view, event = eventAt(view, x, y), name = x < view.gutter ? laneAt(view, y) : undefined;
  canvas.style.cursor = event >= 0 || (name && scene.children[name.lane].length) ? "pointer" : "";
  tip.style.display = event >= 0 || name ? "block" : "none";
  if (event < 0 && !name) return;
  tip.textContent = (name ? [scene.lanes.name[name.lane], aboutLane(view, name)] : aboutEvent(view, event)).join("\n").trim();
  tip.style.left = `${Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y < canvas.clientHeight / 2 ? y + 16 : y - tip.offsetHeight - 12}px`;
}

function click(view, x, y) {
  const lane = laneAt(view, y), event = eventAt(view, x, y);
  if (event >= 0) select(view, event);
  else if (lane && x < view.gutter) fold(view, lane.lane);
}

/** Do what a key means; return whether it means anything. The name of a lane is the place before its first event. */
function press(view, key) {
  const { scene, layout } = view, lane = layout.lanes[layout.shownAs[view.lane]];
  if (!lane) return false;
  const at = view.selected < 0 ? -1 : lane.events.indexOf(view.selected), isFolded = view.folded.has(lane.lane);
  const isOpen = scene.children[lane.lane].length > 0 && !isFolded;
  const walk = {
    ArrowRight: () => (at < 0 && isFolded ? fold(view, lane.lane) : pick(view, lane.events[at + 1])),
    ArrowLeft: () => (at > 0 ? pick(view, lane.events[at - 1]) : at === 0 ? select(view, -1, FOLLOW_MS)
      : isOpen ? fold(view, lane.lane) : goTo(view, layout.lanes[layout.shownAs[Math.max(0, scene.lanes.parent[lane.lane])]])),
    ArrowUp: () => cross(view, layout.lanes.slice(0, layout.shownAs[view.lane]).reverse()),
    ArrowDown: () => cross(view, layout.lanes.slice(layout.shownAs[view.lane] + 1)),
    Home: () => pick(view, lane.events[0]), End: () => pick(view, lane.events.at(-1)),
    n: () => pickOfKind(view, 1), p: () => pickOfKind(view, -1),
    Enter: () => (view.selected < 0 ? fold(view, lane.lane) : select(view, view.selected)),
    "+": () => zoom(view, 1 / ZOOM), "=": () => zoom(view, 1 / ZOOM), "-": () => zoom(view, ZOOM), 0: () => fit(view),
    ...(view.selected < 0 ? {} : { Escape: () => select(view, -1) }),
  };
  if (!Object.hasOwn(walk, key)) return false;
  walk[key]();
  return true;
}

function pick(view, event) {
  if (event !== undefined) select(view, event, FOLLOW_MS);
}

function goTo(view, lane) {
  if (!lane) return;
  view.lane = lane.lane;
  drawSoon(view);
}

/** Go to the nearest event of the first of these lanes that has any; from a lane's name, to the next name. */
function cross(view, lanes) {
  if (view.selected < 0) return goTo(view, lanes[0]);
  const { from } = view.place, away = (i) => Math.abs(from[i] - from[view.selected]);
  pick(view, lanes.find((lane) => lane.events.length)?.events.reduce((best, i) => (away(i) < away(best) ? i : best)));
}

function pickOfKind(view, step) {
  const { scene, selected, hidden } = view;
  const isSame = (i) => !hidden.has(scene.kind[i]) && (selected < 0 || scene.kind[i] === scene.kind[selected]);
  const same = view.place.order.filter(isSame);
  pick(view, same[same.indexOf(selected) + step]);
}
