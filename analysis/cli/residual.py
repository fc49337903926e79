"""`counterpoint residual`: the coherence of claims that stand in a file or come through a pipe."""

from __future__ import annotations

import json as json_library
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Meta

from analysis.cli.output import JsonOption, print_json, print_table
from analysis.errors import CounterpointError, TraceError

if TYPE_CHECKING:
    from analysis.coherence.cliques import Quote

Name = Annotated[str, Meta(min_length=1, max_length=512)]
InputArgument = Annotated[str, typer.Argument(help="A JSON or JSONL file, or - for the standard input.", metavar="FILE|-")]


class _Claim(msgspec.Struct, forbid_unknown_fields=True):
    component: Name
    proposition: Name
    p: float
    turn: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    n_samples: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    samples: tuple[float, ...] | None = None


class _Item(msgspec.Struct, forbid_unknown_fields=True):
    """`propositions` are names that relations may use though nobody quotes them."""

    claims: list[_Claim]
    relations: list[str] = []
    reference: dict[str, float] | None = None
    propositions: list[Name] = []


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(residual)


def residual(
    file: InputArgument,
    ratio: Annotated[bool, typer.Option("--ratio", help="Measure quotes of b if a as ratios too (slower, not convex).")] = False,
    json: JsonOption = False,
) -> None:
    """Say how far claims are from coherent ones: {"claims": [{"component", "proposition", "p"}], "relations": [...]}."""
    given, is_single = _items(_text(file))
    if not given:
        raise TraceError("input", "the list is empty", hint='give {"claims": [...], "relations": [...]}')
    found = [_report(item, ratio) for item in given]
    if json:
        print_json(found[0] if is_single else found)
    else:
        for number, (item, result) in enumerate(zip(given, found, strict=True)):
            _print(result, f"item {number + 1}" if len(found) > 1 else "")
            if n_replaced := 0 if "error" in result else len(item["claims"]) - result["n_claims"]:
                typer.echo(f"claims that later ones of the same component replace: {n_replaced}", err=True)
    n_bad = sum("error" in result for result in found)
    raise typer.Exit(0 if n_bad == 0 else 2 if n_bad == len(found) else 1)


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise TraceError(file, "the file cannot be read", got=error.strerror or "", hint="check the path") from None
    except UnicodeDecodeError:
        raise TraceError(file, "the file is not text", hint="export it as JSON or JSONL") from None


def _items(text: str) -> tuple[list[Any], bool]:
    """Return the items, and whether the input is one object; a line of JSONL that is no JSON becomes an error in place."""
    if not text.strip():
        raise TraceError("input", "it is empty", hint='give {"claims": [...], "relations": [...]}')
    try:
        value = json_library.loads(text)
        return (value, False) if isinstance(value, list) else ([value], True)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) == 1 or not any(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines):
            raise TraceError("input", "not valid JSON", got=str(error), hint="give one object, a list, or JSONL") from None
    numbered = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [_line(n, line) for n, line in numbered], False


def _line(number: int, line: str) -> Any:
    try:
        return json_library.loads(line)
    except (ValueError, RecursionError) as error:
        return TraceError(f"line {number}", "not valid JSON", got=str(error), hint="mend or remove this line")


def _report(item: Any, with_ratio: bool) -> dict[str, Any]:
    from analysis.coherence.relations import check_names, names_of, parse, parse_proposition
    from analysis.coherence.report import report

    try:
        if isinstance(item, CounterpointError):
            raise item
        given = msgspec.convert(item, _Item)
        _check(given)
        formulas = [parse(text) for text in given.relations]
        quoted = {name for claim in given.claims for name in names_of(parse_proposition(claim.proposition))}
        check_names(formulas, sorted(quoted.union(given.propositions)))
        return report(_turns(given.claims), formulas, reference=given.reference, with_ratio=with_ratio)
    except msgspec.ValidationError as error:
        return {"error": str(TraceError("item", str(error), hint='give {"claims": [...], "relations": [...]}'))}
    except CounterpointError as error:
        return {"error": str(error)}


def _check(item: _Item) -> None:
    """Refuse numbers that are no probabilities: nothing is clipped, and NaN is no way to say that a number is missing."""
    numbers = [(f"claims[{n}].p", claim.p) for n, claim in enumerate(item.claims)]
    numbers += [(f"claims[{n}].samples", p) for n, claim in enumerate(item.claims) for p in claim.samples or ()]
    numbers += [(f"reference.{name}", p) for name, p in (item.reference or {}).items()]
    for place, p in numbers:
        if not 0 <= p <= 1:
            raise TraceError(place, "not a probability", got=str(p), expected="a number from 0 to 1", hint="correct or remove it")


def _turns(claims: list[_Claim]) -> list[tuple[int | None, list[Quote]]]:
    from analysis.coherence.cliques import Quote
    from analysis.coherence.turns import standing

    counts = [claim.n_samples or len(claim.samples or ()) or None for claim in claims]
    return standing([(c.turn, Quote(c.component, c.proposition, c.p, n, c.samples)) for c, n in zip(claims, counts, strict=True)])


def _print(result: dict[str, Any], title: str) -> None:
    if title:
        typer.echo(f"\n{title}")
    if "error" in result:
        typer.echo(result["error"], err=True)
        return
    typer.echo(result["summary"])
    lengths = ("residual", "lower", "upper", "residual_canonical", "residual_debiased", "residual_norm", "residual_composed")
    print_table(["measure", "value"], [(name, result[name]) for name in (*lengths, "coupling_bits", "n_worlds", "method")])
    if result["projection"]:
        stakes = result["stakes"] or {}
        print_table(["proposition", "repaired", "stake"], [(p, near, stakes.get(p)) for p, near in result["projection"].items()])
    if result["energy"]:
        rules = ("energy", "shapley", "shapley_replace", "residual_local")
        print_table(["component", *rules], [(name, *(result[rule][name] for rule in rules)) for name in result["energy"]])
    if result["by_turn"]:
        print_table(["turn", "residual", "delta"], [tuple(row.values()) for row in result["by_turn"]])
