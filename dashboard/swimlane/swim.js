
// The swim-lane on its canvas: drawing, pointer, keys. Texts of traces reach fillText and textContent only.

const DIGEST = 16; // characters in front of the drawing that name it
const AXIS_PX = 26, MAP_PX = 30, RIGHT_PX = 12, MAX_PX = 560, PNG_MAX_PX = 8000;
const MAX_TIES = 2000, ALL_TIES = 300, MAX_GLYPHS = 3000, REACH_PX = 5, FOLLOW_MS = 250;
const KEYS = [
  ["← →", "previous, next event of the lane; at the lane's name: fold, unfold"], ["↑ ↓", "nearest event of the lane above, below"],
  ["Home End", "first, last event of the lane"], ["n p", "next, previous event of the same kind"], ["Enter", "open the event"],
  ["+ −", "zoom in, out; also Ctrl + wheel"], ["0", "show the whole run"], ["Esc", "select nothing, go to the lane's name"],
];
const views = new Map(); // digest of a drawing -> its view
const cursors = new Map(); // digest -> what the page last said is selected; it may come before the drawing

export default function (component) {
  return component.data instanceof Uint8Array ? showDrawing(component) : followPage(component.data);
}

function followPage(cursor) {
  cursors.set(cursor.of, cursor);
  views.get(cursor.of)?.follow(cursor);
  return () => cursors.delete(cursor.of);
}

function showDrawing({ data, parentElement, setTriggerValue }) {
  const digest = new TextDecoder().decode(data.subarray(0, DIGEST));
  let view = views.get(digest);
  if (view?.root.parentNode !== parentElement) {
    view = openView(JSON.parse(new TextDecoder().decode(data.subarray(DIGEST))), parentElement);
    view.leave = () => { view.watch.disconnect(); clearTimeout(view.timer); view.root.remove(); views.delete(digest); };
    views.set(digest, view);
    if (cursors.has(digest)) view.follow(cursors.get(digest));
  }
  view.send = (event) => setTriggerValue("picked", event);
  drawSoon(view); // the page ran again; its theme may be another one
  return view.leave;
}

// A view: the parts of the page, and what is shown in them.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function openView(data, parentElement) {
  const scene = readScene(data);
  const view = {
    scene, closed: new Set(scene.lanes.is_folded.flatMap((isFolded, lane) => (isFolded ? [lane] : []))), hidden: new Set(),
    buttons: new Map(), selected: -1, lane: scene.roots[0] ?? -1, related: null, timer: 0, frame: 0,
    canvas: element("canvas", { class: "chart", tabindex: 0, role: "application", "aria-roledescription": "swim-lane" }),
    spacer: element("div"), tip: element("div", { class: "tip" }), map: element("canvas", { class: "map", "aria-hidden": true }),
    note: element("p", { class: "note" }), live: element("div", { class: "live", "aria-live": "polite" }),
  };
  const n = scene.n.toLocaleString("en");
  view.canvas.setAttribute("aria-label", `${scene.title}: ${n} events in lanes. Arrow keys walk them; the Events view is a table of them.`);
  view.scroll = element("div", { class: "scroll" }, view.canvas, view.spacer);
  const keys = element("dl", {}, ...KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]));
  view.root = element("div", { class: "swim" },
    element("div", { class: "bar" }, legendOf(view), toolsOf(view)), element("div", { class: "stage" }, view.scroll, view.tip), view.map,
    view.note, element("details", {}, element("summary", {}, "Keys"), keys), view.live);
  view.follow = ({ selected, axis }) => {
    if (axisOf(scene, axis) !== view.place.axis) putOnAxis(view, axis);
    if (!view.timer && (selected ?? -1) !== view.selected) select(view, selected ?? -1, null);
  };
  parentElement.append(view.root);
  putOnAxis(view, "time");
  listen(view);
  view.watch = new ResizeObserver(() => drawSoon(view));
  view.watch.observe(view.root);
  return view;
}

function legendOf(view) {
  const legend = element("div", { class: "legend", role: "group", "aria-label": "Kinds of events" });
  for (const { kind, name, n } of kindsOf(view.scene)) {
    const swatch = element("canvas", { width: 28, height: 28, "aria-hidden": true });
    const g = swatch.getContext("2d");
    g.scale(2, 2);
    drawGlyph(g, view.scene.kinds[kind], 7, 7, 5);
    const button = element("button", { type: "button", "aria-pressed": true, title: `Show or hide ${name}` }, swatch, `${name} ${n}`);
    button.addEventListener("click", () => { toggle(view.hidden, kind); arrange(view); });
    view.buttons.set(kind, button);
    legend.append(button);
  }
  return legend;
}

function kindsOf(scene) {
  const n = scene.kinds.map(() => 0);
  for (const kind of scene.kind) n[kind] += 1;
  return scene.kinds.flatMap(([name], kind) => (n[kind] ? [{ kind, name, n: n[kind].toLocaleString("en") }] : []));
}

function toolsOf(view) {
  const tools = element("div", { class: "tools", role: "group", "aria-label": "Zoom and export" });
  for (const [text, title, act] of [
    ["−", "Zoom out", () => zoom(view, 1.6)], ["+", "Zoom in", () => zoom(view, 1 / 1.6)],
    ["Fit", "Show the whole run", () => setRange(view, view.place.low, view.place.high)], ["PNG", "Save as a picture", () => savePicture(view)],
  ]) {
    const button = element("button", { type: "button", title, "aria-label": title }, text);
    button.addEventListener("click", act);
    tools.append(button);
  }
  return tools;
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
  view.layout = layOut(view.scene, view.place, view.closed, (i) => view.hidden.has(view.scene.kind[i]));
  if (view.lane >= 0) view.lane = view.layout.lanes[view.layout.shownAs[view.lane]].lane;
  drawSoon(view);
}

function toggle(set, member) {
  if (!set.delete(member)) set.add(member);
}

/** Select an event, or none (-1). `wait` ms later the page is told; null: the page knows. */
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
  if (wait === null) return;
  clearTimeout(view.timer);
  view.timer = setTimeout(() => { view.timer = 0; view.send(event); }, wait);
}

function aboutEvent(view, i) {
  const { scene } = view, [start, end, drag] = [scene.start[i], scene.end[i], scene.drag_s[i]];
  const lane = scene.lane[i], role = scene.lanes.role[lane], tokens = [scene.input_tokens[i], scene.output_tokens[i]];
  const times = start === null ? "no time stated" : end === null ? `${sayTime(start)}, no duration stated`
    : scene.odd.includes(i) ? `${sayTime(start)}, ends before it starts` : `${sayTime(start)} to ${sayTime(end)} (${sayTime(end - start)})`;
  const say = (count) => (count === null ? "unknown" : count.toLocaleString("en"));
  return [
    scene.words[scene.head[i]], `no. ${(i + 1).toLocaleString("en")} of ${scene.n.toLocaleString("en")}`,
    `by ${scene.lanes.name[lane]}${role && ` (${role})`}`, times,
    ...(tokens.some((count) => count !== null) ? [`tokens in ${say(tokens[0])}, out ${say(tokens[1])}`] : []),
    ...(scene.isCritical[i] ? ["on the critical path"] : []),
    ...(drag === undefined || drag === null ? [] : [`drag ${sayTime(drag)}: so much sooner would the run end without it`]),
    ...(i in scene.error ? [`error: ${scene.error[i]}`] : []), scene.text[i],
  ];
}

// What part of the axis is shown.

function setRange(view, x0, x1) {
  const { low, high, axis } = view.place, full = high - low;
  const span = Math.min(full, Math.max(x1 - x0, axis === "time" ? full * 1e-6 : Math.min(full, 4)));
  view.x0 = Math.min(Math.max((x0 + x1 - span) / 2, low), high - span);
  view.x1 = view.x0 + span;
  drawSoon(view);
}

function zoom(view, factor, at = (view.x0 + view.x1) / 2) {
  setRange(view, at - (at - view.x0) * factor, at + (view.x1 - at) * factor);
}

function reveal(view, event) {
  const { place, layout } = view, span = view.x1 - view.x0, [from, to] = [place.from[event], place.to[event]];
  if (to < view.x0 || from > view.x1) setRange(view, from - span / 2, from + span / 2);
  const lane = layout.lanes[layout.shownAs[view.scene.lane[event]]], shown = view.scroll.clientHeight - AXIS_PX;
  if (lane.y < view.scroll.scrollTop || lane.y + lane.height > view.scroll.scrollTop + shown) {
    view.scroll.scrollTop = lane.y - (shown - lane.height) / 2;
  }
}

// Drawing.

function drawSoon(view) {
  view.frame ||= requestAnimationFrame(() => { view.frame = 0; draw(view); });
}

function draw(view) {
  const { root, layout, canvas, map } = view, css = getComputedStyle(root);
  const read = (name) => css.getPropertyValue(`--st-${name}`).trim();
  view.theme = {
    text: read("text-color"), back: read("background-color"), band: read("secondary-background-color"), line: read("border-color"),
    error: read("red-color"), font: read("font") || "sans-serif",
  };
  const width = root.clientWidth, full = layout.height + AXIS_PX + 2, height = Math.min(full, MAX_PX);
  if (!width) return;
  view.gutter = gutterOf(view, width);
  view.scroll.style.height = `${height}px`;
  view.spacer.style.height = `${full - height}px`;
  const box = { width: view.scroll.clientWidth, height, scrollTop: view.scroll.scrollTop };
  const nInView = paint(sized(canvas, box.width, height), view, box);
  paintMap(sized(map, width, MAP_PX), view, width);
  for (const [kind, button] of view.buttons) button.setAttribute("aria-pressed", !view.hidden.has(kind));
  sayWhatIsDrawn(view, nInView);
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

function sayWhatIsDrawn(view, nInView) {
  const { scene, layout, related } = view, say = (n) => n.toLocaleString("en");
  const nDrawn = layout.lanes.reduce((n, lane) => n + lane.events.length, 0);
  const hidden = [...view.hidden].map((kind) => scene.kinds[kind][0]);
  view.note.textContent = [
    `${say(nDrawn)} of ${say(scene.n)} events drawn${nInView < nDrawn ? `, ${say(nInView)} in view` : ""}`,
    ...(hidden.length ? [`hidden: ${hidden.join(", ")}`] : []),
    ...(related && related.n > related.ties.length ? [`the nearest ${say(MAX_TIES)} of ${say(related.n)} ties drawn`] : []),
    ...scene.notes, "The Events view holds the same as a table.",
  ].join(" · ");
  Object.assign(view.root.dataset, { drawn: nDrawn, inView: nInView, selected: view.selected, lanes: layout.lanes.length, gutter: view.gutter, from: view.x0, to: view.x1 });
}

function aboutLane({ scene, closed }, { lane, nAgents, nEvents }) {
  const events = `${nEvents.toLocaleString("en")} ${nEvents === 1 ? "event" : "events"}`;
  const isFolded = closed.has(lane) && scene.children[lane].length;
  const who = isFolded || scene.lanes.is_group[lane] ? `${nAgents.toLocaleString("en")} agents` : scene.lanes.role[lane];
  return who ? `${who} · ${events}` : events;
}

function gutterOf(view, width) {
  const g = view.canvas.getContext("2d");
  let widest = 60;
  for (const lane of view.layout.lanes.slice(0, 500)) {
    g.font = `12px ${view.theme.font}`;
    const name = g.measureText(view.scene.lanes.name[lane.lane]).width;
    g.font = `10px ${view.theme.font}`;
    widest = Math.max(widest, indentOf(lane) + Math.max(name, g.measureText(aboutLane(view, lane)).width) + 8);
  }
  return Math.round(Math.min(widest, 240, width * 0.3));
}

function indentOf({ depth }) {
  return 18 + 10 * Math.min(depth, 6);
}

/** Draw the part of the lanes that `box` shows; return how many events are in it. */
function paint(g, view, box) {
  const { theme, gutter } = view;
  const right = box.width - RIGHT_PX, scale = (right - gutter) / (view.x1 - view.x0);
  const at = { x: (t) => gutter + (t - view.x0) * scale, y: (lane) => AXIS_PX + lane.top - box.scrollTop };
  const shown = view.layout.lanes.filter((l) => l.y + l.height >= box.scrollTop && l.y <= box.scrollTop + box.height - AXIS_PX);
  const axis = chooseTicks(view.place.axis, view.x0, view.x1, right - gutter);
  Object.assign(g, { fillStyle: theme.back, globalAlpha: 1, textBaseline: "middle", textAlign: "left", direction: "ltr" });
  g.fillRect(0, 0, box.width, box.height);
  paintLanes(g, view, shown, box);
  g.strokeStyle = theme.line;
  for (const [t] of axis.marks) line(g, at.x(t), AXIS_PX, at.x(t), box.height);
  g.save();
  g.beginPath();
  g.rect(gutter, AXIS_PX, box.width - gutter, box.height - AXIS_PX);
  g.clip();
  const inView = shown.flatMap((lane) => lane.events.filter((i) => view.place.to[i] >= view.x0 && view.place.from[i] <= view.x1));
  const marks = new Map(inView.map((i) => [i, markOf(view, at, i)]));
  paintTies(g, view, at, marks.size);
  paintEvents(g, view, marks);
  paintCritical(g, view, at, marks);
  paintSelected(g, view, marks);
  g.restore();
  paintAxis(g, view, axis, at, box);
  return inView.length;
}

function line(g, ...points) {
  g.beginPath();
  for (let k = 0; k < points.length; k += 2) g.lineTo(points[k], points[k + 1]);
  g.stroke();
}

function markOf({ place, layout, scene }, at, i) {
  const lane = layout.lanes[layout.shownAs[scene.lane[i]]], x = at.x(place.from[i]);
  return { x, width: at.x(place.to[i]) - x, isPoint: place.to[i] === place.from[i], y: at.y(lane) + layout.row[i] * lane.rowPx, height: lane.rowPx };
}

function paintLanes(g, view, shown, box) {
  const { theme, scene, gutter } = view;
  for (const lane of shown) {
    const y = AXIS_PX + lane.y - box.scrollTop, middle = y + lane.height / 2, x = indentOf(lane);
    if (view.lane === lane.lane) {
      g.fillStyle = theme.band;
      g.fillRect(0, y, box.width, lane.height);
    }
    g.strokeStyle = theme.line;
    line(g, 0, y + lane.height, box.width, y + lane.height);
    g.fillStyle = theme.text;
    if (scene.children[lane.lane].length) drawTriangle(g, x - 11, middle, view.closed.has(lane.lane));
    g.font = `12px ${theme.font}`;
    g.fillText(fitted(g, scene.lanes.name[lane.lane], gutter - x - 6), x, middle - 6);
    g.globalAlpha = 0.7;
    g.font = `10px ${theme.font}`;
    g.fillText(fitted(g, aboutLane(view, lane), gutter - x - 6), x, middle + 8);
    g.globalAlpha = 1;
  }
  line(g, gutter, AXIS_PX, gutter, box.height);
}

function drawTriangle(g, x, y, isClosed) {
  g.beginPath();
  for (const [dx, dy] of isClosed ? [[-3, -5], [4, 0], [-3, 5]] : [[-5, -3], [5, -3], [0, 4]]) g.lineTo(x + dx, y + dy);
  g.fill();
}

function fitted(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let [few, many] = [0, text.length];
  while (few < many) {
    const half = Math.ceil((few + many) / 2);
    if (g.measureText(`${text.slice(0, half)}…`).width <= width) few = half; else many = half - 1;
  }
  return few ? `${text.slice(0, few)}…` : "";
}

function paintTies(g, view, at, nMarks) {
  const { scene, related, theme } = view;
  const draw = (cause, effect, style) => {
    Object.assign(g, style);
    paintTie(g, view, at, cause, effect);
  };
  if (nMarks <= ALL_TIES) {
    const style = { strokeStyle: theme.text, fillStyle: theme.text, lineWidth: 0.8, globalAlpha: related ? 0.12 : 0.35 };
    for (let k = 0; k < scene.ties.length; k += 2) draw(scene.ties[k], scene.ties[k + 1], style);
  }
  for (const [cause, effect, steps] of [...(related?.ties ?? [])].reverse()) {
    const color = { strokeStyle: scene.selected_color, fillStyle: scene.selected_color };
    draw(cause, effect, { ...color, lineWidth: steps === 1 ? 2 : 1, globalAlpha: steps === 1 ? 1 : 0.35 });
  }
  g.globalAlpha = 1;
}

/** A curve from where the cause ends (or, if it goes on, from where the effect starts) to where the effect starts. */
function paintTie(g, view, at, cause, effect) {
  const { place, scene, hidden } = view;
  if (hidden.has(scene.kind[cause]) || hidden.has(scene.kind[effect])) return;
  const [a, b] = [markOf(view, at, cause), markOf(view, at, effect)];
  const leaves = Math.max(place.from[cause], Math.min(place.to[cause], place.from[effect]));
  const [x1, y1, x2, y2] = [at.x(leaves), a.y + a.height / 2, b.x, b.y + b.height / 2];
  if (!(Math.max(x1, x2) >= view.gutter && Math.min(x1, x2) <= g.canvas.width)) return;
  const bend = Math.max(14, Math.min(60, Math.abs(x2 - x1) / 2));
  g.beginPath();
  g.moveTo(x1, y1);
  g.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - 3, y2);
  g.stroke();
  g.beginPath();
  for (const [dx, dy] of [[0, 0], [-7, -3.5], [-7, 3.5]]) g.lineTo(x2 + dx, y2 + dy);
  g.fill();
}

function paintEvents(g, view, marks) {
  const { scene, related, theme } = view, isDense = marks.size > MAX_GLYPHS;
  g.font = `11px ${theme.font}`;
  scene.kinds.map((kind, k) => [kind, k]).reverse().forEach(([kind, k]) => { // the decisions last, over the work
    const ink = inkOn(kind[1]);
    for (const [i, mark] of marks) {
      if (scene.kind[i] !== k) continue;
      const { x, y, width, height, isPoint } = mark;
      g.globalAlpha = related && !related.touched.has(i) ? 0.3 : 1;
      if (isPoint && !isDense && height >= 10) {
        drawGlyph(g, kind, x, y + height / 2, 5.5);
      } else {
        g.fillStyle = kind[1];
        g.fillRect(isPoint ? x - 1.5 : x, y + 1, Math.max(3, width - 0.5), height - 2);
      }
      if (!isPoint && width > 16 && height >= 15) {
        drawGlyph(g, [kind[0], ink, kind[2]], x + 8, y + height / 2, 3.5);
        if (width > 44) {
          const from = Math.max(x, view.gutter);
          g.fillStyle = ink;
          g.fillText(fitted(g, scene.words[scene.label[i]], x + width - Math.max(x + 15, from + 4) - 3), Math.max(x + 15, from + 4), y + height / 2 + 0.5);
        }
      }
      if (i in scene.error) {
        g.fillStyle = theme.error;
        g.fillRect(isPoint ? x - 6 : x, y, Math.max(12, width), 2);
      }
    }
  });
  g.globalAlpha = 1;
}

/** Black or white, whichever is read better on a colour `#rrggbb`. */
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(color.slice(k, k + 2), 16) / 255);
  return 0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2 > 0.18 ? "#000000" : "#ffffff";
}

function drawGlyph(g, [, color, shape], x, y, r) {
  const corners = {
    square: [4, Math.PI / 4], diamond: [4, 0], triangle: [3, -Math.PI / 2], triangleDown: [3, Math.PI / 2], hexagon: [6, 0], star: [10, -Math.PI / 2],
  }[shape];
  g.fillStyle = color;
  g.beginPath();
  if (!corners) g.arc(x, y, r, 0, 7);
  for (let k = 0; k < (corners?.[0] ?? 0); k++) {
    const turn = corners[1] + (2 * Math.PI * k) / corners[0], reach = shape === "star" && k % 2 ? r * 0.5 : r * 1.15;
    g.lineTo(x + reach * Math.cos(turn), y + reach * Math.sin(turn));
  }
  g.fill();
}

function paintCritical(g, view, at, marks) {
  const { scene, place, theme, hidden } = view;
  Object.assign(g, { strokeStyle: theme.text, fillStyle: theme.text, lineWidth: 1.5 });
  g.setLineDash([4, 3]);
  const path = scene.critical.filter((i) => !Number.isNaN(place.from[i]) && !hidden.has(scene.kind[i])).sort((a, b) => place.from[a] - place.from[b]);
  path.forEach((i, k) => {
    const mark = markOf(view, at, i), next = k + 1 < path.length ? markOf(view, at, path[k + 1]) : null;
    if (marks.has(i)) g.fillRect(mark.isPoint ? mark.x - 6 : mark.x, mark.y + mark.height - 3, Math.max(12, mark.width), 3);
    if (next) line(g, mark.x + mark.width, mark.y + mark.height - 1.5, next.x, next.y + next.height - 1.5);
  });
  g.setLineDash([]);
}

function paintSelected(g, view, marks) {
  const mark = marks.get(view.selected);
  if (!mark) return;
  const x = mark.isPoint ? mark.x - 8 : mark.x - 3;
  Object.assign(g, { strokeStyle: view.scene.selected_color, lineWidth: 2.5 });
  g.strokeRect(x, mark.y - 2, Math.max(mark.width, mark.isPoint ? 10 : 3) + 6, mark.height + 4);
}

function paintAxis(g, view, axis, at, box) {
  const { theme, gutter } = view;
  g.fillStyle = theme.back;
  g.fillRect(0, 0, box.width, AXIS_PX);
  Object.assign(g, { strokeStyle: theme.line, fillStyle: theme.text, lineWidth: 1, font: `11px ${theme.font}` });
  line(g, 0, AXIS_PX, box.width, AXIS_PX);
  let free = gutter;
  for (const [t, text] of axis.marks) {
    const width = g.measureText(text).width, x = Math.min(at.x(t) - width / 2, box.width - width - 2);
    if (x < free) continue;
    g.fillText(text, x, 15);
    line(g, at.x(t), AXIS_PX - 4, at.x(t), AXIS_PX);
    free = x + width + 8;
  }
  g.globalAlpha = 0.7;
  g.font = `10px ${theme.font}`;
  g.fillText(fitted(g, axis.title.replace(" since the run began", ""), gutter - 8), 4, 15);
  g.globalAlpha = 1;
}

/** The whole run as a strip: how many events stand where, the critical path, what part is shown. */
function paintMap(g, view, width) {
  const { theme, place, scene, gutter, hidden } = view, span = width - gutter - RIGHT_PX;
  const x = (t) => gutter + ((t - place.low) / (place.high - place.low)) * span;
  const counts = new Float64Array(Math.ceil(span / 3) + 1);
  for (const i of place.order) if (!hidden.has(scene.kind[i])) counts[Math.floor((x(place.from[i]) - gutter) / 3)] += 1;
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  g.clearRect(0, 0, width, MAP_PX);
  Object.assign(g, { fillStyle: theme.text, globalAlpha: 0.5 });
  counts.forEach((n, k) => { if (n) g.fillRect(gutter + 3 * k, MAP_PX - 5 - (n / most) * (MAP_PX - 9), 2.5, (n / most) * (MAP_PX - 9) + 1); });
  g.globalAlpha = 1;
  for (const i of scene.critical) g.fillRect(x(place.from[i]), MAP_PX - 3, Math.max(1, x(place.to[i]) - x(place.from[i])), 2);
  g.fillStyle = scene.selected_color;
  if (view.selected >= 0) g.fillRect(x(place.from[view.selected]) - 1, 0, 2.5, MAP_PX);
  Object.assign(g, { strokeStyle: theme.text, lineWidth: 1 });
  g.strokeRect(x(view.x0) + 0.5, 0.5, x(view.x1) - x(view.x0) - 1, MAP_PX - 1);
}

/** Save lanes, title, legend and caption as a PNG: what is shown from left to right, all lanes from top to bottom. */
function savePicture(view) {
  const { scene, layout, theme } = view, width = view.scroll.clientWidth, top = 58;
  const box = { width, height: Math.min(layout.height + AXIS_PX + 2, PNG_MAX_PX), scrollTop: 0 };
  const canvas = element("canvas", { width: 2 * width, height: 2 * (box.height + top + 28) });
  const g = canvas.getContext("2d");
  g.scale(2, 2);
  g.translate(0, top);
  const n = paint(g, view, box);
  g.translate(0, -top);
  g.fillStyle = theme.back;
  g.fillRect(0, 0, width, top);
  g.fillRect(0, top + box.height, width, 28);
  Object.assign(g, { fillStyle: theme.text, font: `600 15px ${theme.font}` });
  g.fillText(fitted(g, scene.title, width - 16), 8, 18);
  g.font = `11px ${theme.font}`;
  let x = 14;
  for (const { kind, name, n: count } of kindsOf(scene).filter(({ kind }) => !view.hidden.has(kind))) {
    drawGlyph(g, scene.kinds[kind], x, 42, 5);
    g.fillStyle = theme.text;
    g.fillText(`${name} ${count}`, x + 10, 42);
    x += g.measureText(`${name} ${count}`).width + 28;
  }
  const { title } = chooseTicks(view.place.axis, view.x0, view.x1, width);
  const caption = `${n.toLocaleString("en")} of ${scene.n.toLocaleString("en")} events · axis: ${title} · Counterpoint`;
  g.fillText(fitted(g, caption, width - 16), 8, top + box.height + 14);
  canvas.toBlob((blob) => {
    const link = element("a", { href: URL.createObjectURL(blob), download: scene.file });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

// Pointer and keys.

function listen(view) {
  const { canvas, map, scroll, tip } = view;
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
    tip.style.display = "none";
    const shift = (dx / (canvas.clientWidth - view.gutter - RIGHT_PX)) * (drag.x1 - drag.x0);
    setRange(view, drag.x0 - shift, drag.x1 - shift);
    scroll.scrollTop = drag.top - dy;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.isMoved) click(view, ...point(event));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("wheel", (event) => turn(view, event, point(event)[0]), { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !press(view, event.key)) return;
    event.preventDefault();
    event.stopPropagation(); // the page has keys of its own
  });
  scroll.addEventListener("scroll", () => drawSoon(view));
  const slide = (event) => {
    const r = map.getBoundingClientRect(), { low, high } = view.place, half = (view.x1 - view.x0) / 2;
    const middle = low + ((event.clientX - r.left - view.gutter) / (r.width - view.gutter - RIGHT_PX)) * (high - low);
    setRange(view, middle - half, middle + half);
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); slide(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons & 1) slide(event); });
}

function turn(view, event, x) {
  const span = view.x1 - view.x0, width = view.canvas.clientWidth - view.gutter - RIGHT_PX;
  const isPan = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (!event.ctrlKey && !isPan) return; // the page scrolls, and the lanes with it
  event.preventDefault();
  if (event.ctrlKey) {
    zoom(view, Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), view.x0 + ((x - view.gutter) / width) * span);
  } else {
    const shift = ((event.deltaX || event.deltaY) / width) * span;
    setRange(view, view.x0 + shift, view.x1 + shift);
  }
}

function laneAt(view, y) {
  const inside = y - AXIS_PX + view.scroll.scrollTop;
  return y < AXIS_PX ? undefined : view.layout.lanes.find((lane) => inside >= lane.y && inside < lane.y + lane.height);
}

/** The event nearest to a point of the canvas, at most 5 px away; -1 where there is none. */
function eventAt(view, x, y) {
  const lane = laneAt(view, y);
  if (!lane || x < view.gutter) return -1;
  const scale = (view.canvas.clientWidth - RIGHT_PX - view.gutter) / (view.x1 - view.x0);
  const at = { x: (t) => view.gutter + (t - view.x0) * scale, y: ({ top }) => AXIS_PX + top - view.scroll.scrollTop };
  let [best, nearest] = [-1, REACH_PX + 0.01];
  for (const i of lane.events) {
    const mark = markOf(view, at, i), reach = mark.isPoint ? 5 : 0;
    const dx = Math.max(mark.x - reach - x, x - mark.x - mark.width - reach, 0), dy = Math.max(mark.y - y, y - mark.y - mark.height, 0);
    const away = Math.hypot(dx, dy) + (mark.isPoint ? Math.abs(x - mark.x) / 100 : 0);
    if (away <= nearest) [best, nearest] = [i, away];
  }
  return best;
}

function hover(view, x, y) {
  const { tip, canvas } = view, event = eventAt(view, x, y), lane = laneAt(view, y);
  canvas.style.cursor = event >= 0 || (x < view.gutter && lane && view.scene.children[lane.lane].length) ? "pointer" : "";
  const isName = x < view.gutter && lane;
  tip.style.display = event >= 0 || isName ? "block" : "none";
  if (tip.style.display === "none") return;
  tip.textContent = (event >= 0 ? aboutEvent(view, event) : [view.scene.lanes.name[lane.lane], aboutLane(view, lane)]).join("\n").trim();
  tip.style.left = `${Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = y < canvas.clientHeight / 2 ? `${y + 16}px` : `${y - tip.offsetHeight - 12}px`;
}

function click(view, x, y) {
  const lane = laneAt(view, y), event = eventAt(view, x, y);
  if (event >= 0) select(view, event);
  else if (lane && x < view.gutter) fold(view, lane.lane);
}

function fold(view, lane) {
  view.lane = lane;
  if (view.scene.children[lane].length) toggle(view.closed, lane);
  arrange(view);
}

/** Do what a key means; return whether it means anything here. */
function press(view, key) {
  const { scene, layout, place } = view, step = { ArrowUp: -1, ArrowDown: 1 }[key];
  const lane = layout.lanes[layout.shownAs[view.lane]];
  if (!lane) return false;
  const at = view.selected < 0 ? -1 : lane.events.indexOf(view.selected), isFolded = view.closed.has(lane.lane);
  const pick = (event) => { if (event !== undefined) select(view, event, FOLLOW_MS); };
  if (step) walkLanes(view, layout.shownAs[view.lane], step, pick);
  else if (key === "ArrowRight" && at < 0 && isFolded) fold(view, lane.lane);
  else if (key === "ArrowRight") pick(lane.events[at + 1]);
  else if (key === "ArrowLeft" && at > 0) pick(lane.events[at - 1]);
  else if (key === "ArrowLeft" && at === 0) select(view, -1, FOLLOW_MS);
  else if (key === "ArrowLeft" && scene.children[lane.lane].length && !isFolded) fold(view, lane.lane);
  else if (key === "ArrowLeft") { view.lane = Math.max(scene.lanes.parent[lane.lane], 0); arrange(view); }
  else if (key === "Home") pick(lane.events[0]);
  else if (key === "End") pick(lane.events.at(-1));
  else if (key === "n" || key === "p") {
    const same = place.order.filter((i) => (view.selected < 0 || scene.kind[i] === scene.kind[view.selected]) && !view.hidden.has(scene.kind[i]));
    pick(same[same.indexOf(view.selected) + (key === "n" ? 1 : -1)]);
  } else if (key === "Enter" && view.selected >= 0) select(view, view.selected);
  else if (key === "Enter") fold(view, lane.lane);
  else if (key === "+" || key === "=") zoom(view, 1 / 1.6);
  else if (key === "-") zoom(view, 1.6);
  else if (key === "0") setRange(view, place.low, place.high);
  else if (key === "Escape" && view.selected >= 0) select(view, -1);
  else return false;
  return true;
}

function walkLanes(view, from, step, pick) {
  const { lanes } = view.layout, { place, selected } = view;
  let to = from + step;
  if (selected < 0) {
    if (lanes[to]) { view.lane = lanes[to].lane; arrange(view); }
    return;
  }
  while (lanes[to] && !lanes[to].events.length) to += step;
  const away = (i) => Math.abs(place.from[i] - place.from[selected]);
  pick(lanes[to]?.events.reduce((best, i) => (away(i) < away(best) ? i : best)));
}
