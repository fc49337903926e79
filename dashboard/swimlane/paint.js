
// How the lanes look: canvas calls only; texts of traces reach fillText and nothing else.

const AXIS_PX = 26, MAP_PX = 30, RIGHT_PX = 12;
const PNG_WIDTH_PX = 960, PNG_MAX_PX = 8000, PNG_TOP_PX = 58, PNG_BOTTOM_PX = 28;
const MAX_TIES = 2000, ALL_TIES = 300, MAX_GLYPHS = 3000;
const SHAPES = { // corners, and where the first one is
  square: [4, Math.PI / 4], diamond: [4, 0], triangle: [3, -Math.PI / 2], triangleDown: [3, Math.PI / 2],
  hexagon: [6, 0], star: [10, -Math.PI / 2],
};

function readTheme(root) {
  const css = getComputedStyle(root), read = (name) => css.getPropertyValue(`--st-${name}`).trim();
  return {
    text: read("text-color"), back: read("background-color"), band: read("secondary-background-color"),
    line: read("border-color"), error: read("red-color"), font: read("font") || "sans-serif",
  };
}

/** Make the canvas so large, in CSS pixels, and return its context. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    Object.assign(canvas, { width: w, height: h });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

/** Where on the canvas a time and an event are, as shown now. */
function geometry(view, { width, scrollTop }) {
  const { place, layout, scene, gutter } = view, scale = (width - RIGHT_PX - gutter) / (view.x1 - view.x0);
  const x = (t) => gutter + (t - view.x0) * scale;
  const mark = (i) => {
    const lane = layout.lanes[layout.shownAs[scene.lane[i]]], left = x(place.from[i]);
    const y = AXIS_PX + lane.firstRow + layout.row[i] * lane.rowPx - scrollTop;
    return { x: left, width: x(place.to[i]) - left, isPoint: place.to[i] === place.from[i], y, height: lane.rowPx };
  };
  return { x, mark, width, scrollTop };
}

/** Draw the part of the lanes that `box` shows; return how many events are in it. */
function paint(g, view, box) {
  const { theme, gutter, place } = view, at = geometry(view, box), bottom = box.scrollTop + box.height - AXIS_PX;
  const shown = view.layout.lanes.filter((lane) => lane.y + lane.height >= box.scrollTop && lane.y <= bottom);
  const inView = shown.flatMap((lane) => lane.events.filter((i) => place.to[i] >= view.x0 && place.from[i] <= view.x1));
  const marks = new Map(inView.map((i) => [i, at.mark(i)]));
  const axis = chooseTicks(place.axis, view.x0, view.x1, box.width - RIGHT_PX - gutter);
  Object.assign(g, { fillStyle: theme.back, globalAlpha: 1, textBaseline: "middle", textAlign: "left", direction: "ltr" });
  g.fillRect(0, 0, box.width, box.height);
  paintLanes(g, view, shown, box);
  for (const [t] of axis.marks) line(g, at.x(t), AXIS_PX, at.x(t), box.height);
  g.save();
  g.beginPath();
  g.rect(gutter, AXIS_PX, box.width - gutter, box.height - AXIS_PX);
  g.clip();
  paintTies(g, view, at, marks);
  paintEvents(g, view, marks);
  if (view.isPathShown) paintPath(g, view, at, marks);
  for (const i of view.marked) paintRing(g, view, marks.get(i), 1.5);
  paintRing(g, view, marks.get(view.selected), 2.5);
  g.restore();
  paintAxis(g, view, axis, at);
  return inView.length;
}

function line(g, ...points) {
  g.beginPath();
  for (let k = 0; k < points.length; k += 2) g.lineTo(points[k], points[k + 1]);
  g.stroke();
}

function paintLanes(g, view, shown, box) {
  const { theme, scene, gutter } = view;
  Object.assign(g, { strokeStyle: theme.line, lineWidth: 1 });
  for (const lane of shown) {
    const y = AXIS_PX + lane.y - box.scrollTop, middle = y + lane.height / 2, x = indentOf(lane), room = gutter - x - 6;
    g.fillStyle = theme.band;
    if (view.lane === lane.lane) g.fillRect(0, y, box.width, lane.height);
    line(g, 0, y + lane.height, box.width, y + lane.height);
    g.fillStyle = theme.text;
    if (scene.children[lane.lane].length) paintTriangle(g, x - 11, middle, view.folded.has(lane.lane));
    g.font = `12px ${theme.font}`;
    g.fillText(fitted(g, scene.lanes.name[lane.lane], room), x, middle - 6);
    Object.assign(g, { globalAlpha: 0.7, font: `10px ${theme.font}` });
    g.fillText(fitted(g, aboutLane(view, lane), room), x, middle + 8);
    g.globalAlpha = 1;
  }
  line(g, gutter, AXIS_PX, gutter, box.height);
}

function aboutLane({ scene, folded }, { lane, nAgents, nEvents }) {
  const events = `${nEvents.toLocaleString("en")} ${nEvents === 1 ? "event" : "events"}`;
  const isMany = scene.lanes.is_group[lane] || (folded.has(lane) && scene.children[lane].length);
  const who = isMany ? `${nAgents.toLocaleString("en")} agents` : scene.lanes.role[lane];
  return who ? `${who} · ${events}` : events;
}

function indentOf({ depth }) {
  return 18 + 10 * Math.min(depth, 6);
}

/** How wide the names of the lanes are, within bounds. */
function gutterOf(view, width) {
  const g = view.canvas.getContext("2d"), { scene, theme, layout } = view;
  let widest = 60;
  for (const lane of layout.lanes.slice(0, 500)) {
    g.font = `12px ${theme.font}`;
    const name = g.measureText(scene.lanes.name[lane.lane]).width;
    g.font = `10px ${theme.font}`;
    widest = Math.max(widest, indentOf(lane) + Math.max(name, g.measureText(aboutLane(view, lane)).width) + 8);
  }
  return Math.round(Math.min(widest, 240, width * 0.3));
}

function paintTriangle(g, x, y, isFolded) {
  g.beginPath();
  for (const [dx, dy] of isFolded ? [[-3, -5], [4, 0], [-3, 5]] : [[-5, -3], [5, -3], [0, 4]]) g.lineTo(x + dx, y + dy);
  g.fill();
}

/** As much of a text as fits. */
function fitted(g, text, width) {
  if (g.measureText(text).width <= width) return text;
  let [few, many] = [0, text.length];
  while (few < many) {
    const half = Math.ceil((few + many) / 2);
    if (g.measureText(`${text.slice(0, half)}…`).width <= width) few = half; else many = half - 1;
  }
  return few ? `${text.slice(0, few)}…` : "";
}

/** Where few events are in view all their ties faintly; those of the selected one in its colour, faintly from step two on. */
function paintTies(g, view, at, marks) {
  const { scene, related, theme } = view;
  if (marks.size <= ALL_TIES) {
    Object.assign(g, { strokeStyle: theme.text, fillStyle: theme.text, lineWidth: 0.8, globalAlpha: related ? 0.12 : 0.35 });
    for (let k = 0; k < scene.ties.length; k += 2) {
      const [cause, effect] = [scene.ties[k], scene.ties[k + 1]];
      if (marks.has(cause) || marks.has(effect)) paintTie(g, view, at, cause, effect);
    }
  }
  Object.assign(g, { strokeStyle: scene.selected_color, fillStyle: scene.selected_color });
  for (const [cause, effect, steps] of related?.ties.toReversed() ?? []) {
    Object.assign(g, { lineWidth: steps === 1 ? 2 : 1, globalAlpha: steps === 1 ? 1 : 0.35 });
    paintTie(g, view, at, cause, effect);
  }
  g.globalAlpha = 1;
}

/** A curve from where the cause ends (or, if it goes on, from where the effect starts) to where the effect starts. */
function paintTie(g, view, at, cause, effect) {
  const { place, scene, hidden } = view;
  if (hidden.has(scene.kind[cause]) || hidden.has(scene.kind[effect])) return;
  const a = at.mark(cause), b = at.mark(effect), y1 = a.y + a.height / 2, x2 = b.x, y2 = b.y + b.height / 2;
  const x1 = at.x(Math.max(place.from[cause], Math.min(place.to[cause], place.from[effect])));
  if (!(Math.max(x1, x2) >= view.gutter && Math.min(x1, x2) <= at.width)) return;
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
  const { scene, related, marked, theme } = view, hasGlyphs = marks.size <= MAX_GLYPHS;
  const isFaint = related ? (i) => !related.reached.has(i) : (i) => marked.size > 0 && !marked.has(i);
  g.font = `11px ${theme.font}`;
  for (const kind of scene.kinds.map((_, k) => k).reverse()) { // the decisions last, over the work
    for (const [i, mark] of marks) {
      if (scene.kind[i] !== kind) continue;
      const style = styleOf(view, i), ink = style[3];
      const { x, y, width, height, isPoint } = mark;
      g.globalAlpha = isFaint(i) ? 0.3 : 1;
      if (isPoint && hasGlyphs && height >= 10) {
        paintGlyph(g, style, x, y + height / 2, 5.5);
      } else {
        g.fillStyle = style[1];
        g.fillRect(isPoint ? x - 1.5 : x, y + 1, Math.max(3, width - 0.5), height - 2);
      }
      if (!isPoint && width > 16 && height >= 15) paintName(g, view, mark, [kind, ink, style[2]], scene.words[scene.label[i]]);
      if (i in scene.error) {
        g.fillStyle = theme.error;
        g.fillRect(isPoint ? x - 6 : x, y, Math.max(isPoint ? 12 : 3, width), 2);
      }
    }
  }
  g.globalAlpha = 1;
}

/** Name, colour and shape of an event, and the ink on it: the colour says its kind or, where that is shown, its credit. */
function styleOf({ scene, theme }, i) {
  const [kind, color, shape] = scene.kinds[scene.kind[i]], credit = scene.credit?.[i];
  if (scene.credit && !credit) return [kind, theme.line, shape, theme.text];
  return [kind, credit?.[0] ?? color, shape, inkOn(credit?.[0] ?? color)];
}

/** The shape and, where there is room, the name inside a bar: where the bar begins, or begins to be seen. */
function paintName(g, view, { x, y, width, height }, style, name) {
  const left = Math.max(x, view.gutter), middle = y + height / 2, room = x + width - left - 19;
  if (room < 0) return;
  paintGlyph(g, style, left + 8, middle, 3.5);
  if (room > 24) g.fillText(fitted(g, name, room), left + 16, middle + 0.5);
}

/** Black or white, whichever is read better on a colour `#rrggbb`. */
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((k) => (parseInt(color.slice(k, k + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

function paintGlyph(g, [, color, shape], x, y, r) {
  const [n, first] = SHAPES[shape] ?? [0, 0];
  g.fillStyle = color;
  g.beginPath();
  if (!n) g.arc(x, y, r, 0, 2 * Math.PI);
  for (let k = 0; k < n; k++) {
    const turn = first + (2 * Math.PI * k) / n, reach = shape === "star" && k % 2 ? r * 0.5 : r * 1.15;
    g.lineTo(x + reach * Math.cos(turn), y + reach * Math.sin(turn));
  }
  g.fill();
}

/** The critical path: a line below its events, and dashes from one to the next. */
function paintPath(g, view, at, marks) {
  const { scene, place, theme, hidden } = view;
  const isDrawn = (i) => !Number.isNaN(place.from[i]) && !hidden.has(scene.kind[i]);
  const path = scene.critical.filter(isDrawn).sort((i, j) => place.from[i] - place.from[j]);
  Object.assign(g, { strokeStyle: theme.text, fillStyle: theme.text, lineWidth: 1.5, globalAlpha: view.related ? 0.45 : 1 });
  g.setLineDash([4, 3]);
  let before = null;
  for (const i of path) {
    const mark = at.mark(i), foot = mark.y + mark.height;
    if (marks.has(i)) g.fillRect(mark.isPoint ? mark.x - 6 : mark.x, foot - 3, Math.max(mark.isPoint ? 12 : 3, mark.width), 3);
    const isApart = before && (before.foot !== foot || mark.x - before.right > 3);
    const isNear = before && mark.x >= view.gutter && before.right <= at.width;
    if (isApart && isNear) line(g, before.right, before.foot - 1.5, mark.x, foot - 1.5);
    before = { right: mark.x + mark.width, foot };
  }
  g.setLineDash([]);
  g.globalAlpha = 1;
}

function paintRing(g, view, mark, lineWidth) {
  if (!mark) return;
  const reach = mark.isPoint ? 8 : 3;
  Object.assign(g, { strokeStyle: view.scene.selected_color, lineWidth });
  g.strokeRect(mark.x - reach, mark.y - 2, Math.max(mark.width, mark.isPoint ? 0 : 3) + 2 * reach, mark.height + 4);
}

function paintAxis(g, view, axis, at) {
  const { theme, gutter } = view;
  g.fillStyle = theme.back;
  g.fillRect(0, 0, at.width, AXIS_PX);
  Object.assign(g, { strokeStyle: theme.line, fillStyle: theme.text, lineWidth: 1, font: `11px ${theme.font}` });
  line(g, 0, AXIS_PX, at.width, AXIS_PX);
  let free = gutter + 3;
  for (const [t, text] of axis.marks) {
    const x = at.x(t), width = g.measureText(text).width, left = Math.min(x - width / 2, at.width - width - 2);
    if (left < free && x > free + width / 2 + 8) continue;
    g.fillText(text, Math.max(left, free), 14);
    line(g, x, AXIS_PX - 4, x, AXIS_PX);
    free = Math.max(left, free) + width + 8;
  }
  Object.assign(g, { globalAlpha: 0.7, font: `10px ${theme.font}` });
  g.fillText(fitted(g, axis.title.split(" since")[0], gutter - 8), 5, 14);
  g.globalAlpha = 1;
}

/** The whole run as a strip: how many events start where, the critical path, what part is shown. */
function paintMap(g, view, width) {
  const { theme, place, scene, gutter, hidden } = view, span = width - gutter - RIGHT_PX, deep = MAP_PX - 9;
  const x = (t) => gutter + ((t - place.low) / (place.high - place.low)) * span;
  const counts = new Float64Array(Math.ceil(span / 3) + 1);
  for (const i of place.order) if (!hidden.has(scene.kind[i])) counts[Math.floor((x(place.from[i]) - gutter) / 3)] += 1;
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  g.clearRect(0, 0, width, MAP_PX);
  Object.assign(g, { fillStyle: theme.text, globalAlpha: 0.5 });
  counts.forEach((n, k) => { if (n) g.fillRect(gutter + 3 * k, MAP_PX - 6 - (n / most) * deep, 2.5, (n / most) * deep + 1); });
  g.globalAlpha = 1;
  if (view.isPathShown) {
    for (const i of scene.critical) g.fillRect(x(place.from[i]), MAP_PX - 4, Math.max(1, x(place.to[i]) - x(place.from[i])), 2);
  }
  g.fillStyle = scene.selected_color;
  for (const i of view.marked) g.fillRect(x(place.from[i]) - 0.75, MAP_PX - 12, 1.5, 8);
  if (view.selected >= 0) g.fillRect(x(place.from[view.selected]) - 1, 0, 2.5, MAP_PX);
  Object.assign(g, { strokeStyle: theme.text, lineWidth: 1 });
  g.strokeRect(x(view.x0) + 0.5, 0.5, x(view.x1) - x(view.x0) - 1, MAP_PX - 1);
}

/** Return a canvas with title, legend, lanes and caption: what is shown from left to right, all lanes from top to bottom. */
function pictureOf(view) {
  const { scene, layout, theme } = view, width = Math.max(view.scroll.clientWidth, PNG_WIDTH_PX);
  const box = { width, height: Math.min(layout.height + AXIS_PX + 2, PNG_MAX_PX), scrollTop: 0 };
  const canvas = document.createElement("canvas"), g = canvas.getContext("2d");
  Object.assign(canvas, { width: 2 * width, height: 2 * (PNG_TOP_PX + box.height + PNG_BOTTOM_PX) });
  g.setTransform(2, 0, 0, 2, 0, 2 * PNG_TOP_PX);
  const n = paint(g, view, box);
  g.setTransform(2, 0, 0, 2, 0, 0);
  g.fillStyle = theme.back;
  g.fillRect(0, 0, width, PNG_TOP_PX);
  g.fillRect(0, PNG_TOP_PX + box.height, width, PNG_BOTTOM_PX);
  Object.assign(g, { fillStyle: theme.text, font: `600 15px ${theme.font}` });
  g.fillText(fitted(g, scene.title, width - 16), 8, 18);
  g.font = `11px ${theme.font}`;
  let x = 14;
  for (const { kind, text } of kindsOf(scene).filter(({ kind }) => !view.hidden.has(kind))) {
    paintGlyph(g, scene.kinds[kind], x, 42, 5);
    g.fillStyle = theme.text;
    g.fillText(text, x + 10, 42);
    x += g.measureText(text).width + 28;
  }
  for (const [color, text] of scene.swatches) {
    g.fillStyle = color ?? theme.line;
    g.fillRect(x - 5, 37, 10, 10);
    g.fillStyle = theme.text;
    g.fillText(text, x + 10, 42);
    x += g.measureText(text).width + 28;
  }
  if (scene.critical.length && view.isPathShown) g.fillText("▁ critical path", x, 42);
  const { title } = chooseTicks(view.place.axis, view.x0, view.x1, width);
  const caption = `${n.toLocaleString("en")} of ${scene.n.toLocaleString("en")} events · axis: ${title} · Counterpoint`;
  g.fillText(fitted(g, caption, width - 16), 8, PNG_TOP_PX + box.height + 14);
  return canvas;
}

/** The kinds that occur, with their number. */
function kindsOf(scene) {
  const n = scene.kinds.map(() => 0);
  for (const kind of scene.kind) n[kind] += 1;
  const all = scene.kinds.map(([name], kind) => ({ kind, name, text: `${name} ${n[kind].toLocaleString("en")}` }));
  return all.filter(({ kind }) => n[kind]);
}
