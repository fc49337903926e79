// Keys for the whole page: each presses the button of its page that is there to be seen, or moves the focus. Never while typing.
const BUTTONS = {
  j: ["trace-next", "review-next"], k: ["trace-previous", "review-keep"], n: ["trace-next_of_kind", "review-next"],
  p: ["trace-previous_of_kind"], d: ["review-drop"], e: ["review-edit"],
  "]": ["trace-next_trace"], "[": ["trace-previous_trace"], "?": ["app-keys"],
};

function isTyping(target) {
  if (!(target instanceof Element)) return false;
  return target.isContentEditable || target.closest("input, textarea, select, [role=combobox], [role=listbox], [role=grid], canvas") !== null;
}

function focusFilter() {
  const box = document.querySelector(".st-key-filter input");
  if (box) { box.focus(); box.select(); return true; }
  const link = document.querySelector('[data-testid="stSidebarNav"] a[href$="/traces"]');
  if (link) link.click();
  return link !== null;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { if (isTyping(event.target)) event.target.blur(); return; }
  if (isTyping(event.target)) return;
  if (event.key === "/") { if (focusFilter()) event.preventDefault(); return; }
  const names = BUTTONS[event.key] || [];
  const button = names.map((name) => document.querySelector(`.st-key-${name} button`)).find((found) => found);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
}

export default function () {
  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}
