"""The formula language: what a relation says, read from its text and told in words.

Formulas are Python's syntax, read by a whitelist on the syntax tree and never evaluated. The module hides that tree:
what comes out is a `Node` over proposition names, or a `Linear` row over the probabilities of such nodes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.errors import RelationError, UnknownNameError

MAX_DEPTH = 50

#: How many of the parts may hold: (fewest, most); None is all of them.
COUNTS: dict[str, tuple[int, int | None]] = {"exactly_one": (1, 1), "at_most_one": (0, 1), "at_least_one": (1, None)}
#: function -> (fewest, most) arguments; None is any number.
_ARITY: dict[str, tuple[int, int | None]] = {
    "iff": (2, 2), "implies": (2, 2), "given": (2, 2), "equal": (2, None), **dict.fromkeys(COUNTS, (1, None))
}  # fmt: skip
FUNCTIONS = (*_ARITY, "linear")
_OPERATORS: dict[type[ast.operator], str] = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_COMPARISONS: dict[type[ast.cmpop], str] = {ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "=="}

Column = npt.NDArray[np.bool_]


class Node(NamedTuple):
    """A Boolean formula: an operation on parts; of `name` the single part is the proposition.

    Operations: name, not, and, or, xor, implies, equal (also `iff`), exactly_one, at_most_one, at_least_one, and
    given (the first part if the second holds), which is no event of its own and stands only at the top.
    """

    op: str
    parts: tuple[Any, ...]


class Linear(NamedTuple):
    """Sum of coefficient times probability of a node, at most `bound` (equal to it where `is_equality`)."""

    terms: tuple[tuple[float, Node], ...]
    bound: float
    is_equality: bool


class Formula(NamedTuple):
    """A relation as it was written, and what it says; `names` in order of appearance."""

    text: str
    content: Node | Linear
    names: tuple[str, ...]


@lru_cache(maxsize=4096)
def parse(text: str) -> Formula:
    """Return the formula that `text` states.

    Raises
    ------
    RelationError
        If the text is no formula of the language; it names the part that is not.
    UnknownNameError
        If a function is not one of the language.

    Examples
    --------
    >>> parse("iff(solved, code_ok & tests_ok)").names
    ('solved', 'code_ok', 'tests_ok')
    >>> parse("linear(2*a - b <= 0.3)").content
    Linear(terms=((2.0, Node(op='name', parts=('a',))), (-1.0, Node(op='name', parts=('b',)))), bound=0.3, is_equality=False)
    """
    tree = _tree(text)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "linear":
        linear = _linear(tree, text)
        return Formula(text, linear, tuple(dict.fromkeys(name for _, node in linear.terms for name in names_of(node))))
    node = _node(tree, text)
    if node.op == "given":
        raise _wrong(text, "`given` is a quantity, not a statement", "quote it as a proposition, or bound it in linear(...)")
    return Formula(text, node, tuple(dict.fromkeys(names_of(node))))


def parse_proposition(text: str) -> Node:
    """Return the proposition a claim is about: a name, or `given(b, a)` read as a formula (b if a).

    >>> parse_proposition("the login works").parts
    ('the login works',)
    >>> parse_proposition("given(b, a)").op
    'given'
    """
    return _node(_tree(text), text) if text.lstrip().startswith("given(") else Node("name", (text,))


def check_names(formulas: Sequence[Formula], known: Sequence[str]) -> None:
    """Refuse a formula over a proposition that is not known; the error lists the ones that are."""
    for formula in formulas:
        for name in formula.names:
            if name not in known:
                raise UnknownNameError(
                    f"relation {formula.text}", "unknown proposition", got=name, expected=", ".join(sorted(known)),
                    hint="correct the name, or quote the proposition",
                )  # fmt: skip


def names_of(node: Node) -> Iterator[Any]:
    """Yield the names in a node, in order of appearance, with repeats."""
    if node.op == "name":
        yield node.parts[0]
        return
    for part in node.parts:
        yield from names_of(part)


def bounds(node: Node, columns: Mapping[Any, Column]) -> tuple[Any, Any]:
    """Return where the node surely holds and where it may hold; names without a column are open.

    With all columns given the two are equal, and are the truth of the node in each world.
    """
    if node.op == "name":
        column = columns.get(node.parts[0])
        return (False, True) if column is None else (column, column)
    lows, highs = zip(*(bounds(part, columns) for part in node.parts), strict=True)
    if node.op == "not":
        return ~np.asarray(highs[0]), ~np.asarray(lows[0])
    if node.op == "implies":
        return ~np.asarray(highs[0]) | lows[1], ~np.asarray(lows[0]) | highs[1]
    if node.op in ("and", "or"):
        join = np.logical_and if node.op == "and" else np.logical_or
        return reduce(join, lows), reduce(join, highs)
    n_low = reduce(np.add, (np.asarray(low, np.int32) for low in lows))
    n_high = reduce(np.add, (np.asarray(high, np.int32) for high in highs))
    if node.op == "equal":
        n = len(node.parts)
        return (n_low == n) | (n_high == 0), (n_high == n) | (n_low == 0)
    if node.op == "xor":
        settled = n_low == n_high
        return settled & (n_low % 2 == 1), ~settled | (n_low % 2 == 1)
    fewest, most = COUNTS[node.op]
    most = len(node.parts) if most is None else most
    return (n_low >= fewest) & (n_high <= most), (n_high >= fewest) & (n_low <= most)


def in_words(content: Node | Linear) -> str:
    """Return what a formula says, for a reader.

    >>> in_words(parse("implies(plan_ok, ~failed & exec_ok)").content)
    'if plan_ok, then not failed and exec_ok'
    >>> in_words(parse("exactly_one(a, b, c)").content)
    'exactly one of a, b and c'
    >>> in_words(parse("linear(2*a - b <= 0.3)").content)
    '2 P(a) - P(b) is at most 0.3'
    """
    if isinstance(content, Linear):
        terms = " + ".join(f"{'' if c == 1 else f'{c:g} '}P({in_words(node)})" for c, node in content.terms)
        terms = terms.replace("+ -1 ", "- ").replace("+ -", "- ")
        return f"{terms} {'is' if content.is_equality else 'is at most'} {content.bound:g}"
    if content.op == "name":
        return str(content.parts[0])
    parts = [_bracketed(part) for part in content.parts]
    match content.op:
        case "not":
            return f"not {parts[0]}"
        case "implies":
            return f"if {parts[0]}, then {parts[1]}"
        case "given":
            return f"{parts[0]} if {parts[1]}"
        case "and" | "or":
            return f" {content.op} ".join(parts)
        case "xor" if len(parts) == 2:
            return f"either {parts[0]} or {parts[1]}, not both"
        case "xor":
            return f"an odd number of {_listed(parts)}"
        case "equal" if len(parts) == 2:
            return f"{parts[0]} exactly when {parts[1]}"
        case "equal":
            return f"all or none of {_listed(parts)}"
        case op:
            return f"{op.replace('_', ' ')} of {_listed(parts)}"


def _bracketed(node: Node) -> str:
    words = in_words(node)
    return words if node.op in ("name", "not", "and") else f"({words})"


def _listed(words: list[str]) -> str:
    if len(words) > 8:
        return f"{', '.join(words[:3])}, … and {words[-1]} ({len(words)} propositions)"
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _wrong(text: str, problem: str, hint: str = "", got: str = "") -> RelationError:
    return RelationError(f"relation {text}", problem, got=got, hint=hint or f"write {', '.join(FUNCTIONS)}, ~ & | ^")


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _wrong(text, "not a formula", got=str(error).split("(<unknown>")[0].strip()) from None


def _node(tree: ast.expr, text: str, depth: int = 0) -> Node:
    if depth > MAX_DEPTH:
        raise _wrong(text, f"nested deeper than {MAX_DEPTH} levels", "name the parts, and tie the names with iff(...)")

    def inner(part: ast.expr) -> Node:
        node = _node(part, text, depth + 1)
        if node.op == "given":
            raise _wrong(text, "`given` inside a statement", "it is a quantity: quote it, or bound it in linear(...)")
        return node

    match tree:
        case ast.Name(id=name) | ast.Constant(value=str(name)) if name:
            return Node("name", (name,))
        case ast.UnaryOp(op=ast.Invert(), operand=part):
            return Node("not", (inner(part),))
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
            return Node(_OPERATORS[type(operator)], tuple(inner(part) for part in _chain(tree, type(operator))))
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
            _check_call(name, len(parts), text)
            return Node("equal" if name == "iff" else name, tuple(inner(part) for part in parts))
    raise _wrong(text, "not a part of the formula language", got=_source(tree))


def _source(tree: ast.expr) -> str:
    try:
        return ast.unparse(tree)
    except RecursionError:
        return type(tree).__name__


def _chain(tree: ast.expr, operator: type[ast.operator]) -> list[ast.expr]:
    """Return the operands of a chain of one operator, which Python nests to the left."""
    parts = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, operator):
        parts.append(tree.right)
        tree = tree.left
    return [tree, *reversed(parts)]


def _check_call(name: str, n_parts: int, text: str) -> None:
    if name == "linear":
        raise _wrong(text, "`linear` inside a statement", "write it as a relation of its own")
    if name not in _ARITY:
        raise UnknownNameError(f"relation {text}", "unknown function", got=name, expected=", ".join(FUNCTIONS))
    fewest, most = _ARITY[name]
    if n_parts < fewest or (most is not None and n_parts > most):
        wanted = f"{fewest}" if fewest == most else f"at least {fewest}"
        raise RelationError(f"relation {text}", f"wrong number of arguments of `{name}`", got=str(n_parts), expected=wanted)


Terms = tuple[dict[Node, float], float]  # coefficient by node, and the constant


def _linear(tree: ast.Call, text: str) -> Linear:
    match tree.args, tree.keywords:
        case [ast.Compare(left=left, ops=[comparison], comparators=[right])], [] if type(comparison) in _COMPARISONS:
            pass
        case _:
            raise _wrong(text, "not a linear coupling", "write one comparison with <=, >= or ==: linear(2*a - b <= 0.3)")
    sign = -1.0 if isinstance(comparison, ast.GtE) else 1.0
    terms, constant = _plus(_terms(left, text), _terms(right, text), -1.0)
    rows = [(sign * c, node) for node, c in terms.items() if c != 0]
    if not rows:
        raise _wrong(text, "no proposition in the linear coupling")
    return _without_conditionals(rows, -sign * constant, isinstance(comparison, ast.Eq), text)


def _without_conditionals(rows: list[tuple[float, Node]], bound: float, is_equality: bool, text: str) -> Linear:
    """Multiply P(b if a) <= c out to P(a and b) - c P(a) <= 0; with other terms beside it, it is not linear."""
    if not any(node.op == "given" for _, node in rows):
        return Linear(tuple(rows), bound + 0.0, is_equality)
    if len(rows) > 1:
        raise _wrong(text, "`given` beside other terms is not linear", "bound it alone: linear(given(b, a) <= 0.3)")
    coefficient, (_, (event, condition)) = rows[0]
    return Linear(((coefficient, Node("and", (event, condition))), (-bound, condition)), 0.0, is_equality)


def _terms(tree: ast.expr, text: str, depth: int = 0) -> Terms:
    if depth > 20 * MAX_DEPTH:
        raise _wrong(text, f"more than {20 * MAX_DEPTH} terms")
    match tree:
        case ast.Constant(value=int(number) | float(number)) if not isinstance(number, bool) and math.isfinite(number):
            return {}, float(number)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return _plus(({}, 0.0), _terms(part, text, depth + 1), -1.0)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
            sign = 1.0 if isinstance(operator, ast.Add) else -1.0
            return _plus(_terms(left, text, depth + 1), _terms(right, text, depth + 1), sign)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as operator, right=right):
            return _scaled(_terms(left, text, depth + 1), _terms(right, text, depth + 1), isinstance(operator, ast.Div), text)
    return {_node(tree, text): 1.0}, 0.0


def _scaled(left: Terms, right: Terms, is_quotient: bool, text: str) -> Terms:
    if left[0] and not right[0]:
        left, right = right, left
    elif is_quotient or left[0]:
        raise _wrong(text, "not linear", "coefficients are numbers: linear(2*a - b <= 0.3)")
    if is_quotient and left[1] == 0:
        raise _wrong(text, "division by 0")
    factor = 1 / left[1] if is_quotient else left[1]
    return _plus(({}, 0.0), right, factor)


def _plus(left: Terms, right: Terms, factor: float) -> Terms:
    total = dict(left[0])
    for node, c in right[0].items():
        total[node] = total.get(node, 0.0) + factor * c
    return total, left[1] + factor * right[1]


def renamed(node: Node, names: Callable[[Any], Any]) -> Node:
    """Return the node over other names."""
    if node.op == "name":
        return Node("name", (names(node.parts[0]),))
    return Node(node.op, tuple(renamed(part, names) for part in node.parts))


def tied_literals(node: Node) -> list[tuple[Any, Any, bool]]:
    """Return pairs of names that a node makes equal (True) or complements (False); for relations of up to 8 names.

    >>> tied_literals(parse("exactly_one(a, b)").content), tied_literals(parse("equal(a, b, c)").content)
    ([('a', 'b', False)], [('a', 'b', True), ('b', 'c', True)])
    """
    names = list(dict.fromkeys(names_of(node)))
    if node.op == "equal" and all(part.op == "name" for part in node.parts):
        return [(a, b, True) for a, b in pairwise(names)]
    if not 1 < len(names) <= 8:
        return []
    worlds = ((np.arange(1 << len(names))[:, None] >> np.arange(len(names))) & 1).astype(bool)
    worlds = worlds[np.broadcast_to(bounds(node, dict(zip(names, worlds.T, strict=True)))[0], len(worlds))]
    return [
        (names[i], names[j], bool((worlds[:, i] == worlds[:, j]).all()))
        for j in range(len(names))
        for i in range(j)
        if len(worlds) and len(set(worlds[:, i] == worlds[:, j])) == 1 and len(set(worlds[:, i])) == 2
    ]
