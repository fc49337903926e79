"""The task bank: small typed functions, each with a reference, wrong variants and tests, read from TOML files.

Decides what a file may say and which types there are; hides the format of the files. Sources are text here: nothing is
run or imported. `data/tasks/README.md` states every field.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from analysis import data_folder
from analysis.counterfactual.sandbox import Case
from analysis.errors import TaskError, UnknownNameError

Fault = Literal["off-by-one", "edge-case", "type", "performance", "misread-spec"]

#: All types that parameters and results can have, as sources write them.
TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list[int]": list[int],
    "list[str]": list[str],
    "dict[str, int]": dict[str, int],
    "tuple[int, int]": tuple[int, int],
    "list[tuple[int, int]]": list[tuple[int, int]],
}
_FLOAT_TOLERANCE = 1e-9


class Parameter(msgspec.Struct, frozen=True):
    """A parameter and its type, one of `TYPES`."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Variant(msgspec.Struct, frozen=True):
    """A wrong source for a function; its id says what it does, its fault of which kind that is."""

    variant_id: str
    fault: Fault
    source: str


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function to be written.

    `requires` is an expression over the parameters that holds for all arguments the function is defined for. `difficulty`
    is the share of solvers, in [0, 1], that the author expects to fail: a guess to begin with. Its name is `function_id`.
    """

    function_id: str
    domain: str
    statement: str
    parameters: tuple[Parameter, ...]
    returns: str
    requires: str
    difficulty: float
    reference: str
    variants: tuple[Variant, ...]
    cases: tuple[Case, ...]

    @property
    def signature(self) -> str:
        """Name, parameters and types, as a source writes them."""
        return f"{self.function_id}({', '.join(map(str, self.parameters))}) -> {self.returns}"

    def source(self, variant_id: str | None = None) -> str:
        """Return the source of a variant, or the reference. Raises UnknownNameError."""
        sources = {None: self.reference} | {variant.variant_id: variant.source for variant in self.variants}
        if variant_id not in sources:
            known = ", ".join([variant.variant_id for variant in self.variants])
            raise UnknownNameError(self.function_id, "no such variant", got=str(variant_id), expected=known)
        return sources[variant_id]


class Bank(msgspec.Struct, frozen=True):
    """Functions, sorted by domain and id. Only the references of the built-in bank are the project's own code."""

    functions: tuple[Function, ...]
    is_built_in: bool = False


class _VariantRow(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    fault: Fault
    source: str


class _FunctionRow(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    statement: str
    difficulty: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reference: str
    tests: str
    variants: list[_VariantRow]
    requires: str = "True"


def load_bank(folder: Path | None = None) -> Bank:
    """Read all `*.toml` files of a folder, the built-in bank by default; a file is named after its domain.

    Raises TaskError, which names the file, the function and the field.

    >>> bank = load_bank()
    >>> next(function.signature for function in bank.functions if function.function_id == "median")
    'median(numbers: list[int]) -> float'
    """
    place = folder or data_folder() / "tasks"
    paths = sorted(place.glob("*.toml"))
    if not paths:
        raise TaskError(str(place), "no task files here", expected="*.toml")
    functions = sorted([function for path in paths for function in _read(path)], key=lambda f: (f.domain, f.function_id))
    names = [function.function_id for function in functions]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TaskError(str(place), "a function has the name of another one", got=twice[0])
    return Bank(tuple(functions), is_built_in=folder is None)


def select(bank: Bank, *, domains: Collection[str] = (), low: float = 0.0, high: float = 1.0) -> Bank:
    """Return the functions of these domains (all, where none is named) with a difficulty from `low` to `high`.

    Raises UnknownNameError for a domain that is not in the bank.

    >>> [f.function_id for f in select(load_bank(), domains=["text"], high=0.1).functions]
    ['count_vowels']
    """
    known = {function.domain for function in bank.functions}
    if unknown := sorted(set(domains) - known):
        raise UnknownNameError("domains", "no such domain", got=unknown[0], expected=", ".join(sorted(known)))
    chosen = [f for f in bank.functions if f.domain in (domains or known) and low <= f.difficulty <= high]
    return Bank(tuple(chosen), bank.is_built_in)


def _read(path: Path) -> list[Function]:
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("functions")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(str(path), "not a TOML file", got=str(error)) from None
    if not isinstance(rows, list):
        raise TaskError(str(path), "no functions", expected="[[functions]]")
    return [_function(row, path, f"functions[{n}]") for n, row in enumerate(rows)]


def _function(values: Any, path: Path, number: str) -> Function:
    place = f"{path}:{values.get('id', number) if isinstance(values, dict) else number}"
    try:
        row = msgspec.convert(values, _FunctionRow)
    except msgspec.ValidationError as error:
        raise TaskError(place, "a field does not have its shape", got=str(error)) from None
    parameters, returns = _signature(row.reference, row.id, f"{place}: reference")
    _check_requires(row.requires, f"{place}: requires")
    for variant in row.variants:
        if _signature(variant.source, row.id, f"{place}: {variant.id}: source") != (parameters, returns):
            raise TaskError(f"{place}: {variant.id}: source", "the signature is not the reference's")
    if len({variant.id for variant in row.variants}) < len(row.variants):
        raise TaskError(f"{place}: variants", "a variant has the id of another one")
    return Function(
        function_id=row.id, domain=path.stem, statement=row.statement, parameters=parameters, returns=returns,
        requires=row.requires, difficulty=row.difficulty, reference=row.reference,
        variants=tuple([Variant(variant.id, variant.fault, variant.source) for variant in row.variants]),
        cases=_cases(row.tests, parameters, returns, f"{place}: tests"),
    )  # fmt: skip


def _signature(source: str, name: str, place: str) -> tuple[tuple[Parameter, ...], str]:
    """Read the signature of a source that may hold imports and the one function."""
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise TaskError(place, "not Python", got=str(error)) from None
    defined = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
    if len(defined) != 1 or not isinstance(defined[0], ast.FunctionDef) or defined[0].name != name:
        raise TaskError(place, "the source must be one function, after its imports", expected=f"def {name}(...)")
    function, args = defined[0], defined[0].args
    if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults or function.decorator_list:
        raise TaskError(place, "the function may have plain parameters only")
    notes = [*[arg.annotation for arg in args.args], function.returns]
    types = ["" if note is None else ast.unparse(note) for note in notes]
    if unknown := [name for name in types if name not in TYPES]:
        raise TaskError(place, "a type is missing or not one of the bank's", got=unknown[0], expected=", ".join(TYPES))
    return tuple([Parameter(arg.arg, kind) for arg, kind in zip(args.args, types, strict=False)]), types[-1]


def _check_requires(text: str, place: str) -> None:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise TaskError(place, "not an expression", got=str(error)) from None


def _cases(lines: str, parameters: tuple[Parameter, ...], returns: str, place: str) -> tuple[Case, ...]:
    cases = []
    for n, line in enumerate(lines.strip().splitlines(), 1):
        try:
            arguments, result = json.loads(line)
            for parameter, argument in zip(parameters, arguments, strict=True):
                msgspec.convert(argument, TYPES[parameter.type])
            msgspec.convert(result, TYPES[returns])
        except (ValueError, TypeError) as error:
            expected = f"[[{', '.join([parameter.type for parameter in parameters])}], {returns}] as JSON"
            raise TaskError(f"{place}: line {n}", "not a test", got=f"{line} ({error})", expected=expected) from None
        cases.append(Case(tuple(arguments), result, _FLOAT_TOLERANCE if returns == "float" else 0.0))
    if not cases:
        raise TaskError(place, "no tests")
    return tuple(cases)
