"""Templates: ties that come up again and again, by name, written out as formulas over what is quoted in one trace.

It hides how a pattern such as `*_ok` becomes propositions, and how a proposition that is no identifier is spelt. A `*`
stands for any text, once in a pattern, and a pattern for what is quoted: what nobody quotes is not among its parts.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from analysis.coherence.relations import parse
from analysis.errors import RelationError

_CHAIN = 500  # operands of one `&`: Python reads some thousands in a row, fewer deep in a call
_COPY = "@"

Arguments = Mapping[str, Sequence[str]]
Write = Callable[[Arguments, Collection[str]], Iterator[str]]


class Template(NamedTuple):
    """A kind of tie: what it says in words, and argument -> what it takes (a key of `TAKES`)."""

    says: str
    arguments: Mapping[str, str]
    write: Write


def check(template: str, arguments: Arguments, *, place: str) -> None:
    """Refuse a template that does not exist, and arguments that are not what it takes; `place` is where they stand.

    Raises
    ------
    RelationError
        It names the template or argument, and what there is.
    """
    if template not in TEMPLATES:
        raise RelationError(place, "unknown template", got=template, expected=", ".join(TEMPLATES))
    wanted = TEMPLATES[template].arguments
    if unknown := sorted(arguments.keys() - wanted.keys()):
        raise RelationError(place, f"unknown argument of {template}", got=", ".join(unknown), expected=", ".join(wanted))
    if missing := [name for name in wanted if name not in arguments]:
        raise RelationError(place, f"{template} lacks an argument", got="no " + ", ".join(missing), expected=", ".join(wanted))
    for name, kind in wanted.items():
        words, fits = TAKES[kind]
        if not fits(arguments[name]) or any(value.count("*") > 1 for value in arguments[name]):
            got = ", ".join(arguments[name]) or "nothing"
            raise RelationError(place, f"argument `{name}` of {template} does not fit", got=got, expected=words)
    starred = [arguments[name][0] for name, kind in wanted.items() if kind == "starred"]
    if len({value.count("*") for value in starred}) > 1:
        raise RelationError(place, f"{template}: a * in one pattern only", got=" and ".join(starred), hint="write it in both")


def expand(template: str, arguments: Arguments, quoted: Collection[str]) -> list[str]:
    """Return the formulas of a template over the propositions that are `quoted`, those that tie at least two of them.

    >>> expand("parts-whole", {"whole": ["code_ok"], "parts": ["*_ok"]}, ["code_ok", "parser_ok", "io_ok", "speed"])
    ['iff(code_ok, io_ok & parser_ok)']
    >>> expand("plan-execute", {"stages": ["plan_ok", "exec_*", "verify_ok"]}, ["verify_ok", "exec_a", "exec_b", "plan_ok"])
    ['implies(plan_ok, exec_a & exec_b)', 'implies(exec_a & exec_b, verify_ok)']
    """
    written = TEMPLATES[template].write(arguments, quoted)
    return [formula for formula in written if len(set(parse(formula).names) & set(quoted)) > 1]


def _caught(pattern: str, name: str) -> str | None:
    """Return the text that the `*` of a pattern stands for in a name, or None where they do not match."""
    head, star, tail = pattern.partition("*")
    if not star:
        return "" if name == pattern else None
    is_match = len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail)
    return name[len(head) : len(name) - len(tail)] if is_match else None


def _named(entries: Sequence[str], quoted: Collection[str], but: Collection[str] = ()) -> list[str]:
    """Return the propositions that entries stand for: a name for itself, a pattern for what is quoted, sorted."""
    names = dict.fromkeys(
        name
        for entry in entries
        for name in ([entry] if "*" not in entry else sorted(name for name in quoted if _caught(entry, name) is not None))
    )
    return [name for name in names if name not in but]


def _spelt(name: str) -> str:
    # Python folds what looks alike in identifiers (NFKC): such a name would come back as another one.
    is_plain = name.isidentifier() and not keyword.iskeyword(name) and unicodedata.is_normalized("NFKC", name)
    return name if is_plain else repr(name)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_spelt, names))


def _joined(names: Sequence[str], operator: str) -> str:
    if len(names) <= _CHAIN:
        return f" {operator} ".join(map(_spelt, names))
    groups = [names[n : n + _CHAIN] for n in range(0, len(names), _CHAIN)]
    return f" {operator} ".join(f"({_joined(group, operator)})" for group in groups)


def _negation(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    yield f"{_spelt(given['proposition'][0])} ^ {_spelt(given['opposite'][0])}"


def _implies(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    yield f"implies({_spelt(given['premise'][0])}, {_spelt(given['conclusion'][0])})"


def _over_all(function: str) -> Write:
    def write(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
        names = _named(given["propositions"], quoted)
        if len(names) > 1:
            yield f"{function}({_listed(names)})"

    return write


def _of_parts(operator: str) -> Write:
    def write(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
        whole = given["whole"][0]
        if parts := _named(given["parts"], quoted, but=[whole]):
            yield f"iff({_spelt(whole)}, {_joined(parts, operator)})"

    return write


def _needs(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    whole = given["whole"][0]
    for part in _named(given["parts"], quoted, but=[whole]):
        yield f"implies({_spelt(whole)}, {_spelt(part)})"


def _agreement(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    agree = given["agree"][0]
    if len(parts := _named(given["parts"], quoted, but=[agree])) > 1:
        yield f"implies({_joined(parts, '&')}, {_spelt(agree)})"


def _plan_execute(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    """Tie each stage to the next one that is quoted: a stage nobody speaks of passes on what it is tied to."""
    stages = given["stages"]
    named = [_named([stage], quoted, but=[other for other in stages if other != stage]) for stage in stages]
    spoken = [names for stage in named if (names := [name for name in stage if name in quoted])]
    for earlier, later in pairwise(spoken):
        yield f"implies({_joined(earlier, '&')}, {_joined(later, '&')})"


def _verifier(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    for verdict in sorted(quoted):
        if (about := _caught(given["verdict"][0], verdict)) is not None:
            part = given["part"][0].replace("*", about)
            if part in quoted and part != verdict:
                yield f"equal({_listed([verdict, part])})"


def _shared_state(given: Arguments, quoted: Collection[str]) -> Iterator[str]:
    copies: dict[str, list[str]] = {}
    for name in sorted(quoted):
        state, mark, _owner = name.rpartition(_COPY)
        copies.setdefault(state if mark else name, []).append(name)
    for state in _named(given["propositions"], copies):
        if len(copies.get(state, ())) > 1:
            yield f"equal({_listed(copies[state])})"


#: kind of argument -> what it takes in words, and whether values are that.
TAKES: dict[str, tuple[str, Callable[[Sequence[str]], bool]]] = {
    "one": ("one proposition", lambda values: len(values) == 1 and "*" not in values[0]),
    "several": ("two propositions or more, or a pattern with one *", lambda v: len(v) > 1 or "*" in "".join(v)),
    "stages": ("two or more in order, each a proposition or a pattern with one *", lambda values: len(values) > 1),
    "starred": ("one proposition, or a pattern with one *", lambda values: len(values) == 1),
    "any": ("a proposition or more, or a pattern with one *", lambda values: len(values) > 0),
}

_WHOLE = {"whole": "one", "parts": "several"}

#: The seven published types of relation, then those of teams that plan, execute and verify.
TEMPLATES: dict[str, Template] = {
    "negation": Template("one holds exactly when the other does not", {"proposition": "one", "opposite": "one"}, _negation),
    "equal": Template("all hold or none", {"propositions": "several"}, _over_all("equal")),
    "implies": Template("if the premise holds, so does the conclusion", {"premise": "one", "conclusion": "one"}, _implies),
    "mutex": Template("at most one holds", {"propositions": "several"}, _over_all("at_most_one")),
    "partition": Template("exactly one holds", {"propositions": "several"}, _over_all("exactly_one")),
    "conjunction": Template("the whole holds exactly when all parts do", _WHOLE, _of_parts("&")),
    "disjunction": Template("the whole holds exactly when some part does", _WHOLE, _of_parts("|")),
    "parts-whole": Template("a task is solved exactly when all its parts are; `parts` are all of them", _WHOLE, _of_parts("&")),
    "needs": Template("the whole is right only if each part is; there may be other parts", _WHOLE, _needs),
    "agreement": Template(
        "if all are right, they agree; not the reverse, since all may be wrong alike",
        {"agree": "one", "parts": "several"}, _agreement,
    ),
    "plan-execute": Template(
        "if a stage is right, so is the next: list the stages in the order in which one vouches for the next, such as plan_ok,"
        " exec_ok, verify_ok where work that follows a right plan is right and right work passes; no law of logic orders them",
        {"stages": "stages"}, _plan_execute,
    ),
    "verifier": Template(
        "the verifier's verdict on a part says just what the part's own proposition says; the * of both is the part's name",
        {"verdict": "starred", "part": "starred"}, _verifier,
    ),
    "shared-state": Template(
        "copies of one state say the same: `state@component` for every component, and `state` itself; quotes of one and the same"
        " proposition need no relation, they are tied anyway", {"propositions": "any"}, _shared_state,
    ),
}  # fmt: skip
