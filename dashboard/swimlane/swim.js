// The swim-lane on its canvas: drawing, pointer, keys. Texts of traces reach fillText and textContent only.

const DIGEST = 16, AXIS_PX = 26, MAP_PX = 30, MAX_PX = 560, MAX_TIES = 2000, ALL_TIES = 300, MAX_GLYPHS = 3000, PNG_MAX_PX = 8000;
const KEYS = [
  ["← →", "previous and next event of the lane; at the lane's name: fold, unfold"], ["↑ ↓", "nearest event of the lane above, below"],
  ["Home End", "first and last event of the lane"], ["n p", "next and previous event of the same kind"], ["Enter", "open the event"],
  ["+ −", "zoom in and out; also Ctrl + wheel"], ["0", "show the whole run"], ["Esc", "select nothing"],
];
const views = new Map();  // digest of the drawing -> its view
const cursors = new Map();  // digest -> what the page last said is selected, where that comes before the drawing

export default function (component) {
  const { data, parentElement } = component;
  if (data instanceof Uint8Array) return showDrawing(component);
  cursors.set(data.of, data);
  views.get(data.of)?.follow(data);
  return () => cursors.delete(data.of);
}

function showDrawing({ data, parentElement, setTriggerValue }) {
  const digest = new TextDecoder().decode(data.subarray(0, DIGEST));
  const known = views.get(digest);
  if (known?.parentElement === parentElement) {  // the page ran again, or its theme changed
    known.send = (event) => setTriggerValue("picked", event);
    requestAnimationFrame(() => { known.theme = readTheme(known.root); fillLegend(known); drawSoon(known); });
    return known.leave;
  }
  const scene = readScene(JSON.parse(new TextDecoder().decode(data.subarray(DIGEST))));
  const view = openView(scene, parentElement);
  view.send = (event) => setTriggerValue("picked", event);
  view.leave = () => { view.watch.disconnect(); clearTimeout(view.timer); view.root.remove(); views.delete(digest); };
  view.follow = ({ selected, axis }) => {
    if (axis !== view.place.axis) putOnAxis(view, axis);
    if (!view.timer && (selected ?? -1) !== view.selected) select(view, selected ?? -1, { send: false });
  };
  views.set(digest, view);
  if (cursors.has(digest)) view.follow(cursors.get(digest));
  return view.leave;
}

// The parts of the page, and the state of a view.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function openView(scene, parentElement) {
  const canvas = element("canvas", { class: "chart", tabindex: "0", role: "application", "aria-roledescription": "swim-lane" });
  const tip = element("div", { class: "tip", role: "tooltip" });
  const spacer = element("div", { class: "spacer" });
  const scroll = element("div", { class: "scroll" }, canvas, spacer);
  const map = element("canvas", { class: "map", "aria-hidden": "true" });
  const legend = element("div", { class: "legend", role: "group", "aria-label": "Kinds of events" });
  const note = element("p", { class: "note" });
  const live = element("div", { class: "live", "aria-live": "polite" });
  const tools = element("div", { class: "tools" });
  const keys = element("dl", {}, ...KEYS.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]));
  const help = element("details", { class: "keys" }, element("summary", {}, "Keys"), keys);
  const bar = element("div", { class: "bar" }, legend, tools);
  const root = element("div", { class: "swim" }, bar, element("div", { class: "stage" }, scroll, tip), map, note, help, live);
  const view = {
    scene, parentElement, root, canvas, tip, spacer, scroll, map, legend, note, live,
    closed: new Set(scene.lanes.is_folded.flatMap((isFolded, lane) => (isFolded ? [lane] : []))),
    hidden: new Set(), selected: -1, lane: scene.roots[0] ?? -1, related: null, timer: 0, width: 0,
  };
  parentElement.append(root);
  view.theme = readTheme(root);
  const total = scene.n.toLocaleString("en");
  canvas.setAttribute("aria-label", `${scene.title}: ${total} events in ${scene.lanes.name.length} lanes. The Events view is a table of them.`);
  for (const [text, label, act] of [
    ["−", "Zoom out", () => zoom(view, 1.6)], ["+", "Zoom in", () => zoom(view, 1 / 1.6)],
    ["Fit", "Show the whole run", () => fit(view)], ["PNG", "Save as a picture", () => savePicture(view)],
  ]) {
    const button = element("button", { type: "button", title: label, "aria-label": label }, text);
    button.addEventListener("click", act);
    tools.append(button);
  }
  fillLegend(view);
  putOnAxis(view, "time");
  listen(view);
  view.watch = new ResizeObserver(() => drawSoon(view));
  view.watch.observe(root);
  return view;
}

function readTheme(root) {
  const css = getComputedStyle(root);
  const read = (name, otherwise) => css.getPropertyValue(name).trim() || otherwise;
  return {
    text: read("--st-text-color", "#222"), back: read("--st-background-color", "#fff"), line: read("--st-border-color", "#ddd"),
    band: read("--st-secondary-background-color", "#f4f4f4"), error: read("--st-red-color", "#d33"), primary: read("--st-primary-color", "#06c"),
    font: read("--st-font", "sans-serif"),
  };
}

function fillLegend(view) {
  const { scene } = view;
  view.legend.replaceChildren();
  scene.kinds.forEach(([name, color, shape], kind) => {
    const n = scene.kind.reduce((count, k) => count + (k === kind), 0);
    if (!n) return;
    const swatch = element("canvas", { width: 28, height: 28, "aria-hidden": "true" });
    const g = swatch.getContext("2d");
    g.scale(2, 2);
    glyph(g, shape, 7, 7, 5, color);
    const about = { type: "button", "aria-pressed": String(!view.hidden.has(kind)), title: `Show or hide: ${name}` };
    const button = element("button", about, swatch, `${name} ${n.toLocaleString("en")}`);
    button.addEventListener("click", () => {
      if (!view.hidden.delete(kind)) view.hidden.add(kind);
      fillLegend(view);
      view.legend.querySelectorAll("button")[[...view.legend.children].indexOf(view.legend.children[kindPlace(view, kind)])]?.focus();
      arrange(view);
    });
    view.legend.append(button);
  });
}
