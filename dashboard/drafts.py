"""A policy that is being written: as text, and as a form that is made of what its fields mean.

Hides that the address holds the text, how a field of the form becomes a line of it, and which field an error is about.
"""

from __future__ import annotations

import base64
import copy
import re
import tomllib
import typing
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import streamlit as st

from analysis.curation.curriculum.stages import STAGES
from analysis.curation.fields import Field, fields_of, toml_text
from analysis.curation.gates import Gate
from analysis.curation.policy import Policy, policy_of
from analysis.errors import PolicyError
from dashboard import jobs, safe, selection
from dashboard.loading import Version

#: What matters first, beside the gates and of each gate; the rest stands below.
_FIRST = (
    ("worlds",), ("sources", "filter"), ("segments", "ambiguous"), ("quotas", "without_claims"), ("weights", "h"),
    ("order", "method"),
)  # fmt: skip
_MAIN: dict[str, tuple[str, ...]] = {
    "coherence": ("max", "above"), "hedging": ("min_sharpness",), "outcome": ("unknown",), "measure": ("name", "min", "max"),
    "credit": ("metric", "min"), "labels": ("min",),
}  # fmt: skip
#: What a gate begins with that the form adds.
_ADDED: dict[str, dict[str, Any]] = {"coherence": {"max": 0.2}, "measure": {"name": "q_work", "min": 0.5}}
#: What a sentence about something missing says -> the page that brings it.
_REMEDIES = {"`counterpoint effects`": ("counterfactuals", "Study counterfactuals"), " import ": ("add_data", "Add data")}
#: What became of the traces at each gate, column -> heading, and how the numbers of a line add up.
BY_GATE = {
    "gate": "Gate", "entered": "Came", "waiting": "Of them waiting", "passed": "Passed", "masked": "Masked",
    "returned": "Taken back", "queued": "Queued", "dropped": "Dropped", "threshold": "Threshold",
}  # fmt: skip
SUMS = (
    "Came = passed + masked + taken back + queued + dropped. Those that wait were queued by an earlier gate: they still come to "
    "later gates, which may drop them, but not to quotas and batches."
)
_MAX_TEXT = 100_000
_PLACE = re.compile(r"policy: (?P<section>\w+)(?:\[(?P<number>\d+)\])?(?:\.(?P<field>\w+))?(?P<rest>[^:]*):")
_GATES = {str(gate.__struct_config__.tag): gate for gate in typing.get_args(Gate)}
Path = tuple[str, ...]
TITLE = "Curate "  # of the jobs that make data sets, before their names
SAVED = "dataset:"  # how the address names the policy of a data set


class Draft(NamedTuple):
    """A policy on the page: its text, the values that this states (none where it is no TOML), and what is wrong with it."""

    text: str
    values: dict[str, Any]
    policy: Policy | None
    error: str = ""

    @property
    def gates(self) -> list[dict[str, Any]]:
        """The gates, as far as they are tables of a known kind."""
        gates = self.values.get("gates")
        is_known = isinstance(gates, list) and all(isinstance(gate, dict) and gate.get("gate") in _GATES for gate in gates)
        return list(gates) if isinstance(gates, list) and is_known else []

    @property
    def place(self) -> Path:
        """The field that is wrong, or its section, as far as the error names it."""
        found = _PLACE.match(self.error)
        if found is None:
            return ()
        number = found["number"]
        if found["section"] == "gates" and number is None:
            named = [str(n) for n, gate in enumerate(self.gates) if found["rest"].strip().startswith(_called(gate))]
            number = named[0] if named else None
        return tuple([part for part in (found["section"], number, found["field"]) if part])


def read(text: str) -> Draft:
    """Return the draft that a text is.

    >>> draft = read("weights = 3")
    >>> draft.place, draft.error[:46]
    (('weights',), 'policy: weights: a field does not have its sha')
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Draft(text, {}, None, f"this is not TOML: {error}")
    try:
        return Draft(text, values, policy_of(values))
    except PolicyError as error:
        return Draft(text, values, None, str(error))


def pack(text: str) -> str:
    """Return a text as it stands in an address.

    >>> unpack(pack("seed = 1")), unpack("nonsense")
    ('seed = 1', None)
    """
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()


def unpack(packed: str) -> str | None:
    """Return the text that `pack` was given; None where it is no such text, or one too long for a policy."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(base64.urlsafe_b64decode(packed), _MAX_TEXT).decode()
    except (ValueError, zlib.error):
        return None
    return text if unpacking.eof else None


def put(text: str) -> None:
    """Put a text into the address; the page then shows this policy."""
    selection.put(toml=pack(text[:_MAX_TEXT]))


def start(location: str, name: str, text: str) -> str:
    """Start to curate everything by the policy that a text is, under a name; return the job's id."""
    folder = jobs.new_folder(location)
    file = folder / "policy.toml"
    file.write_text(text, encoding="utf-8")
    return jobs.start(location, f"{TITLE}{name}", ["curate", "--policy", str(file), "--name", name], job_id=folder.name)


def draw_note(version: Version, note: str, *, key: str) -> None:
    """Draw what a part of a policy has nothing to go by, beside what mends it."""
    st.info(safe.markdown(note, 600), icon=":material/info:")
    if "`counterpoint analyze`" in note or "`counterpoint curriculum`" in note:
        if st.button("Analyse now", icon=":material/play_arrow:", key=key):
            selection.go("add_data", job=jobs.start(version.location, "Analyse", ["analyze"]))
        return
    for words, (page, label) in _REMEDIES.items():
        if words in note:
            selection.link(page, label)


def draw_form(draft: Draft, names: Mapping[str, Sequence[str]]) -> None:
    """Draw every field of the policy with its meaning; what is changed goes into the address.

    Parameters
    ----------
    names : field -> the names that the data know for it; others can be typed
    """
    if draft.error and not draft.values and not draft.place:
        st.info("The form comes back once the text is TOML.", icon=":material/edit_off:")
        return
    st.markdown("##### Gates, in the order in which traces pass them")
    _draw_error(draft, ("gates",))
    if draft.values.get("gates") and not draft.gates:
        st.error("A gate does not have its shape; the text says which.", icon=":material/error:")
        return
    for n in range(len(draft.gates)):
        _draw_gate(draft, n, names)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        added = st.selectbox("Another gate", list(_GATES), format_func=_about, key="policy.added")
        st.button("Add", icon=":material/add:", key="policy.add", on_click=_edit, args=(draft, _add, added))
    st.markdown("##### What matters beside them")
    _draw_fields(draft, [(path, _field_at(path)) for path in _FIRST], names)
    for name, record in _sections().items():
        rest = [((name, field.name), field) for field in fields_of(record) if (name, field.name) not in _FIRST]
        if not rest:
            continue
        is_wrong = draft.place[:2] in [(name,), *(path for path, _ in rest)]
        with st.expander(safe.markdown(f"{name}: {_says(record)}", 200), expanded=is_wrong):
            _draw_error(draft, (name,))
            _draw_fields(draft, rest, names)
    with st.expander("seed: what is drawn by chance"):
        _draw_fields(draft, [(("seed",), _field_at(("seed",)))], names)


def _draw_gate(draft: Draft, n: int, names: Mapping[str, Sequence[str]]) -> None:
    gate = draft.gates[n]
    record, main, path = _GATES[gate["gate"]], _MAIN.get(gate["gate"], ()), ("gates", str(n))
    fields = [((*path, field.name), field) for field in fields_of(record)]
    with st.container(border=True, gap="xsmall"):
        words, buttons = st.columns([5, 1], vertical_alignment="top")
        words.markdown(f"**{n + 1:d}. {safe.markdown(_called(gate))}** :small[:gray[{safe.markdown(_says(record), 300)}]]")
        with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
            tools: dict[str, tuple[str, str, Callable[..., Any]]] = {
                "up": ("arrow_upward", "Before the gate above", _move_up), "remove": ("delete", "Take this gate away", list.pop),
            }  # fmt: skip
            for name, (icon, meaning, change) in tools.items():
                st.button(
                    "", key=f"policy.{name}.{n}", icon=f":material/{icon}:", help=meaning, type="tertiary",
                    disabled=name == "up" and not n, on_click=_edit, args=(draft, change, n),
                )  # fmt: skip
        _draw_error(draft, path)
        _draw_fields(draft, [(place, field) for place, field in fields if field.name in main], names)
        rest = [(place, field) for place, field in fields if field.name not in main]
        is_told = any(place == draft.place or gate.get(field.name, field.default) != field.default for place, field in rest)
        if rest:
            with st.expander("More of this gate", expanded=is_told, key=f"policy.more.{n}"):
                _draw_fields(draft, rest, names)


def _draw_fields(draft: Draft, fields: Sequence[tuple[Path, Field]], names: Mapping[str, Sequence[str]]) -> None:
    """Draw fields below each other, each beside its meaning; one that is a table of shares becomes a field for each."""
    flat = [part for place, one in fields for part in (_shares(place) if one.kind == "table" else [(place, one)])]
    for path, field in flat:
        words, widget = st.columns([3, 2], vertical_alignment="center")
        name = field.name if path[0] == "gates" else ".".join(path)
        words.markdown(f":small[**{safe.markdown(name)}** {safe.markdown(_meaning(field), 300)}]")
        with widget:
            _draw_widget(draft, path, field, names.get(field.name, ()))
        _draw_error(draft, path)


def _draw_widget(draft: Draft, path: Path, field: Field, known: Sequence[str]) -> None:
    key, label = _key(path), f"{field.name}: {field.meaning}"
    value = st.session_state[key] = _fitting(field, _at(draft.values, path))
    how: dict[str, Any] = {"key": key, "on_change": _keep, "args": (draft, path, field), "label_visibility": "collapsed"}
    if field.kind == "list":
        options = list(dict.fromkeys([*field.options, *known, *value]))
        st.multiselect(label, options, accept_new_options=not field.options, placeholder="left out", **how)
    elif field.options:
        st.selectbox(label, field.options, **how)
    elif field.kind in ("number", "whole"):
        _draw_number(label, field, how)
    elif field.kind == "yes-no":
        st.toggle(label, **how)
    elif known:
        st.selectbox(label, list(dict.fromkeys([value, *known])), accept_new_options=True, **how)
    else:
        st.text_input(label, placeholder="left out", **how)


def _draw_number(label: str, field: Field, how: dict[str, Any]) -> None:
    kind = int if field.kind == "whole" else float
    ends = {"min_value": "ge", "max_value": "le"}
    limits: dict[str, Any] = {end: kind(field.bounds[name]) for end, name in ends.items() if name in field.bounds}
    step = 1 if kind is int else 0.05 if field.bounds.get("le", 2) <= 1 else 0.1
    shown: dict[str, Any] = {"format": "%d" if kind is int else "%g", "placeholder": "left out", "step": step, "value": None}
    st.number_input(label, **(limits | shown | how))


def _draw_error(draft: Draft, path: Path) -> None:
    """Draw the error of the draft where it is about this place."""
    if draft.error and draft.place == path:
        st.error(safe.markdown(draft.error.removeprefix("policy: "), 600), icon=":material/error:")


def _keep(draft: Draft, path: Path, field: Field) -> None:
    """Write the text anew with what a field of the form is now; what is as by default is left out."""
    value = st.session_state[_key(path)]
    value = round(value, 9) if isinstance(value, float) else value
    values = copy.deepcopy(draft.values)
    table: Any = values
    for part in path[:-1]:
        if isinstance(table, list):
            table = table[int(part)]
        else:
            table[part] = table[part] if isinstance(table.get(part), dict | list) else {}
            table = table[part]
    is_default = value is None or value == field.default or (value in ([], "") and not field.default)
    if is_default and not field.is_required:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = value
    put(toml_text(_without_empty(values)))


def _edit(draft: Draft, change: Callable[..., Any], what: Any) -> None:
    """Write the text anew with other gates: `change` is given them, to change in place, and what it is about."""
    gates = copy.deepcopy(draft.gates)
    change(gates, what)
    put(toml_text(draft.values | {"gates": gates}))


def _add(gates: list[dict[str, Any]], name: str) -> None:
    gates.append({"gate": name, **_ADDED.get(name, {})})


def _move_up(gates: list[dict[str, Any]], n: int) -> None:
    gates.insert(n - 1, gates.pop(n))


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without tables that hold nothing."""
    inner = {name: _without_empty(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return {name: value for name, value in inner.items() if value != {}}


def _fitting(field: Field, value: Any) -> Any:
    """Return a value as the field's widget takes it: its default, where it is none that the field can be."""
    fits: dict[str, Callable[[Any], bool]] = {
        "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and _is_within(field, v),
        "whole": lambda v: isinstance(v, int) and not isinstance(v, bool) and _is_within(field, v),
        "text": lambda v: isinstance(v, str) and (not field.options or v in field.options),
        "yes-no": lambda v: isinstance(v, bool),
        "list": lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v) and set(v) <= set(field.options or v),
    }  # fmt: skip
    found = value if fits[field.kind](value) else field.default
    if field.kind == "list":
        return list(found or ())
    if field.kind == "number" and found is not None:
        return float(found)
    return found if found is not None or field.kind in ("number", "whole") else ""


def _is_within(field: Field, value: float) -> bool:
    return field.bounds.get("ge", value) <= value <= field.bounds.get("le", value)


def _meaning(field: Field) -> str:
    """What a field means, in which unit, and what it is when nobody sets it."""
    default = "left out" if field.default in (None, "", [], ()) else _said(field.default)
    facts = [field.unit, "has to be stated" if field.is_required else f"default: {default}"]
    return f"{field.meaning} ({'; '.join(filter(None, facts))})"


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shares(path: Path) -> list[tuple[Path, Field]]:
    about = "how much of the sampling weight this stage has"
    bounds = {"ge": 0.0, "le": 1.0}
    return [((*path, stage), Field(stage, about, "share of weight", "number", None, False, (), bounds)) for stage in STAGES]


def _field_at(path: Path) -> Field:
    record = Policy if len(path) == 1 else _sections()[path[0]]
    return next(field for field in fields_of(record) if field.name == path[-1])


def _sections() -> dict[str, type[msgspec.Struct]]:
    hints = typing.get_type_hints(Policy)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, msgspec.Struct)}


def _at(values: Any, path: Iterable[str]) -> Any:
    for part in path:
        if isinstance(values, list):
            values = values[int(part)]
        else:
            values = values.get(part) if isinstance(values, dict) else None
    return values


def _key(path: Path) -> str:
    return f"policy.{'.'.join(path)}"


def _called(gate: Mapping[str, Any]) -> str:
    return " ".join([str(gate["gate"]), *(str(gate[name]) for name in ("name", "metric") if name in gate)])


def _about(name: str) -> str:
    return f"{name}: {_says(_GATES[name])}"


def _says(record: type[msgspec.Struct]) -> str:
    return (record.__doc__ or "").partition("\n")[0]
