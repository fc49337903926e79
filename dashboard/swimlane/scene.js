// What stands where in the swim-lane: lanes, rows, ties, ticks. Knows neither the page nor a canvas.

export const MAX_ROWS = 24; // of one lane
const LANE_PX = 36, LANE_PAD_PX = 5;
const DAY_S = 86400;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY_S];
const UNITS = [[DAY_S, "d", "days"], [3600, "h", "hours"], [60, "min", "minutes"], [0, "s", "seconds"]];

/** Take the plain columns of `rows()`: add the tree of the lanes, and causes and effects of each event. */
export function readScene(data) {
  const n = data.kind.length;
  const children = data.lanes.name.map(() => []), roots = [];
  data.lanes.parent.forEach((parent, lane) => (parent < 0 ? roots : children[parent]).push(lane));
  const causes = Array.from({ length: n }, () => []), effects = Array.from({ length: n }, () => []);
  for (let k = 0; k < data.ties.length; k += 2) {
    causes[data.ties[k + 1]].push(data.ties[k]);
    effects[data.ties[k]].push(data.ties[k + 1]);
  }
  return { ...data, n, children, roots, causes, effects, isCritical: new Set(data.critical), isOdd: new Set(data.odd) };
}

/** Put the events on an axis: `from` and `to` of each (NaN: no place), who comes after whom, and the range. */
export function placeEvents(scene, axis) {
  const from = new Float64Array(scene.n), to = new Float64Array(scene.n);
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < scene.n; i++) {
    from[i] = axis === "time" ? scene.start[i] ?? NaN : i + 1;
    to[i] = axis === "time" ? scene.end[i] ?? from[i] : i + 1;
    if (from[i] < low) low = from[i];
    if (to[i] > high) high = to[i];
  }
  const order = Array.from(from.keys()).filter((i) => !Number.isNaN(from[i])).sort((a, b) => from[a] - from[b] || a - b);
  if (!order.length) [low, high] = [0, 1];
  const margin = Math.max((high - low) * 0.02, axis === "time" ? 0 : 0.6) || 0.5;
  return { axis, from, to, order, low: low - margin, high: high + margin };
}

/** Give what overlaps a row of its own; what needs more than `maxRows` shares the last one. Spans come sorted by start. */
export function packRows(spans, maxRows = MAX_ROWS) {
  const ends = [];
  return spans.map(([start, end]) => {
    let row = ends.findIndex((until) => until < start || (until === start && end > start));
    if (row < 0) row = Math.min(ends.length, maxRows - 1);
    ends[row] = Math.max(end, ends[row] ?? -Infinity);
    return row;
  });
}

/** Lay out the lanes from top to bottom. A folded lane takes in the events of all lanes below it in the tree. */
export function layOut(scene, place, folded, isHidden) {
  const lanes = [];
  const shownAs = new Int32Array(scene.children.length); // lane -> the place in `lanes` where its events are drawn
  const todo = scene.roots.map((lane) => [lane, 0, -1]).reverse();
  while (todo.length) {
    const [lane, depth, inside] = todo.pop();
    if (inside < 0) lanes.push({ lane, depth, events: [], nAgents: 0, nEvents: 0 });
    shownAs[lane] = inside < 0 ? lanes.length - 1 : inside;
    if (!scene.lanes.is_group[lane]) lanes[shownAs[lane]].nAgents += 1;
    const below = folded.has(lane) ? shownAs[lane] : inside;
    for (const child of scene.children[lane].toReversed()) todo.push([child, depth + 1, below]);
  }
  for (const lane of scene.lane) lanes[shownAs[lane]].nEvents += 1;
  for (const i of place.order) if (!isHidden(i)) lanes[shownAs[scene.lane[i]]].events.push(i);
  const row = new Int16Array(scene.n);
  let y = 0;
  for (const lane of lanes) {
    const rows = packRows(lane.events.map((i) => [place.from[i], place.to[i]]));
    lane.events.forEach((i, k) => { row[i] = rows[k]; });
    const nRows = rows.reduce((most, r) => Math.max(most, r + 1), 1);
    lane.rowPx = nRows <= 2 ? 15 : nRows <= 6 ? 10 : nRows <= 12 ? 6 : 4;
    lane.height = Math.max(LANE_PX, nRows * lane.rowPx + 2 * LANE_PAD_PX);
    lane.y = y;
    lane.firstRow = y + (lane.height - nRows * lane.rowPx) / 2;
    y += lane.height;
  }
  return { lanes, shownAs, row, height: y };
}

/** Follow the ties of an event both ways: `[cause, effect, steps]`, the nearest `most` of `n`, and all events reached. */
export function relatedTo(scene, event, most) {
  const ties = [], reached = new Set([event]);
  const ways = [scene.causes, scene.effects].map((next) => ({ next, seen: new Set([event]), edge: [event] }));
  let n = 0;
  for (let steps = 1; ways.some((way) => way.edge.length); steps++) {
    for (const way of ways) {
      const further = [];
      for (const i of way.edge) for (const j of way.next[i]) {
        n += 1;
        if (ties.length < most) ties.push(way.next === scene.causes ? [j, i, steps] : [i, j, steps]);
        if (way.seen.has(j)) continue;
        way.seen.add(j);
        reached.add(j);
        further.push(j);
      }
      way.edge = further;
    }
  }
  return { ties, reached, n };
}

/** Choose marks about 90 px apart, the unit they are in, and what the axis is called. */
export function chooseTicks(axis, low, high, width) {
  const isTime = axis === "time", rough = (high - low) / Math.max(1, width / 90);
  const step = !isTime ? Math.max(1, roundUp(rough, 1))
    : rough <= 0.5 ? roundUp(rough, 1) : STEPS_S.find((s) => s >= rough) ?? roundUp(rough, DAY_S);
  const [least, unit, word] = isTime ? UNITS.find(([s]) => step >= s) : [1, "", ""];
  const size = least || 1;
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9)));
  const marks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) {
    marks.push([k * step, `${((k * step) / size).toFixed(digits)}${unit && ` ${unit}`}`]);
  }
  return { marks, title: isTime ? `${word} since the run began` : "event number" };
}

function roundUp(value, unit) {
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return unit * power * ([1, 2, 5].find((k) => k * power * unit >= value * (1 - 1e-9)) ?? 10);
}

/** Say a time or a duration: `0.25 s`, `3 min 20 s`, `2 h 5 min`. */
export function sayTime(seconds) {
  const size = Math.abs(seconds), whole = Math.round(size), minutes = Math.round(size / 60);
  const sign = seconds < 0 ? "−" : "";
  if (whole < 60) return `${sign}${+size.toFixed(size < 1 ? 3 : 2)} s`;
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${sign}${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
