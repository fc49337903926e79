"""The policy of a data set: everything that decides what enters it, in one versioned TOML file.

Decides what a policy may say and when it contradicts itself; every field carries its meaning, from which `explain` and the page
are made. Hidden here: the ready policies of `data/policies`.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from analysis import data_folder
from analysis.curation.batches import Batches
from analysis.curation.curriculum.stages import STAGES, Stage
from analysis.curation.fields import Share, fields_of, means, toml_of
from analysis.curation.gates import Coherence, Gate, Hedging, Measure, name_of
from analysis.curation.mixture import Mixing
from analysis.curation.ordering import Ordering
from analysis.curation.quotas import GROUPS, Quotas
from analysis.curation.refusing import refusal
from analysis.curation.segments import Segmenting
from analysis.errors import PolicyError, nearest

World = Literal["live", "simulated", "recorded"]
DEFAULT = "default"
_MAX_SHARPNESS = 0.5  # the mean distance of probabilities from one half is never larger


class Sources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which traces are the input."""

    filter: Annotated[str, means("in the filter language of `counterpoint list`; empty takes all")] = ""
    formats: Annotated[tuple[str, ...], means("formats to take; empty takes all")] = ()


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a row is drawn: exp(-(residual_norm/h)²), 1 on average; a row without tied claims has the average."""

    h: Annotated[
        Annotated[float, Meta(ge=0)],
        means("residual_norm at which a row is drawn 1/e times as often; 0 for all alike", "share of ε*max"),
    ] = 0.3


class Staging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stages of the curriculum a data set is for; needs the table `difficulty`."""

    model: Annotated[str, means("the model or condition whose difficulties count; may be empty where there is one")] = ""
    stages: Annotated[tuple[Stage, ...], means("stages to take; empty takes all")] = ()
    shares: Annotated[
        dict[Stage, Share],
        means("how much of the sampling weight each stage has; empty leaves it as it comes", "share of weight"),
    ] = {}
    unknown: Annotated[Literal["keep", "drop"], means("with stages: what happens to a trace whose task has no stage")] = "drop"


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides what enters a data set. The same policy on the same data gives the same bytes."""

    version: Annotated[Literal[1], means("form of this file")] = 1
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**32 - 1)], means("of everything that is drawn")] = 0
    worlds: Annotated[
        tuple[World, ...] | None,
        means("where the traces happened; has to be stated where the data hold several: they are never mixed silently"),
    ] = None
    sources: Sources = Sources()
    gates: Annotated[tuple[Gate, ...], means("what a trace has to pass, in this order")] = ()
    quotas: Quotas = Quotas()
    weights: Weights = Weights()
    segments: Segmenting = Segmenting()
    mixture: Mixing = Mixing()
    order: Ordering = Ordering()
    batches: Batches = Batches()
    curriculum: Staging = Staging()

    @property
    def digest(self) -> str:
        """Names the policy: equal for equal policies, however their files are written."""
        return hashlib.blake2b(msgspec.json.encode(self, order="deterministic"), digest_size=8).hexdigest()

    @property
    def toml(self) -> str:
        """The policy as TOML with every field written out, which reads back as the same policy."""
        return toml_of(self)


def read_policy(path: str | Path) -> Policy:
    """Return the policy of a TOML file.

    Raises
    ------
    PolicyError
        If the file cannot be read, a field does not have its shape, or the policy contradicts itself; it names the field.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(str(path), "the policy cannot be read", got=error.strerror or str(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(str(path), "not a TOML file", got=str(error)) from None
    return policy_of(values, str(path))


def policy_of(values: dict[str, Any], place: str = "policy") -> Policy:
    """Return the policy that plain values state. Raises PolicyError, which names `place` and the field.

    >>> policy_of({"gates": [{"gate": "coherence", "max": 0.1}, {"gate": "coherence", "max": 0.2}]})
    Traceback (most recent call last):
    analysis.errors.PolicyError: policy: gates: a gate is there twice (got coherence) - keep the stricter one
    """
    try:
        policy = msgspec.convert(values, Policy)
    except msgspec.ValidationError as error:
        raise refusal(Policy, values, error, place) from None
    check(policy, place)
    return policy


def find_policy(name: str) -> Policy:
    """Return a ready policy by its name, or the one of a file (`*.toml`). Raises PolicyError."""
    if name.endswith(".toml"):
        return read_policy(name)
    ready = ready_policies()
    if name not in ready:
        expected = f"a file (*.toml), or {', '.join(ready)}"
        raise PolicyError("policy", "no such policy", got=name, expected=expected, hint=nearest(name, list(ready)))
    return read_policy(ready[name])


def ready_policies() -> dict[str, Path]:
    """Return the files of the policies that ship, by name."""
    return {path.stem: path for path in sorted((data_folder() / "policies").glob("*.toml"))}


def explain() -> str:
    """Return a whole policy with every field at its default and its meaning beside it; it is a policy file itself."""
    gates = []
    for gate in get_args(Gate):
        lines = toml_of(_example(gate), is_explained=True).splitlines()
        gates += [
            "",
            f"# {(gate.__doc__ or '').partition(chr(10))[0]}",
            "#   [[gates]]",
            f'#   gate = "{gate.__struct_config__.tag}"',
        ]
        gates += [line if line.startswith("#") else f"#   {line}" for line in lines]
    head = ["# A policy of `counterpoint curate`. Every field may be left out; these are the defaults.", ""]
    tail = ["", "# Gates stand in tables of their own, in the order in which traces pass them; there is none by default."]
    return "\n".join([*head, toml_of(Policy(), is_explained=True).replace("gates = []\n", ""), *tail, *gates]) + "\n"


def check(policy: Policy, place: str) -> None:
    """Raise PolicyError where a policy contradicts itself, with what to change."""
    names = Counter(map(name_of, policy.gates))
    if twice := [name for name, n in names.items() if n > 1]:
        raise PolicyError(f"{place}: gates", "a gate is there twice", got=twice[0], hint="keep the stricter one")
    for number, gate in enumerate(policy.gates):
        _check_gate(gate, f"{place}: gates[{number}] {name_of(gate)}")
    if policy.worlds == ():
        raise PolicyError(f"{place}: worlds", "no world is taken, so everything is dropped", hint="name one, or leave it out")
    for name in GROUPS:
        least, most = getattr(policy.quotas, f"min_per_{name}"), getattr(policy.quotas, f"max_per_{name}")
        if 0 < most < least:
            where, got = f"{place}: quotas.min_per_{name}", f"min {least}, max {most}"
            raise PolicyError(where, "asks for more than the quota allows", got=got, hint=f"raise max_per_{name}")
    _check_stages(policy.curriculum, place)


def _check_gate(gate: Gate, place: str) -> None:
    if isinstance(gate, Coherence) and (gate.max is None) == (gate.max_quantile is None):
        raise PolicyError(place, "needs one threshold", expected="max or max_quantile", hint="state exactly one of them")
    if isinstance(gate, Hedging) and gate.min_sharpness > _MAX_SHARPNESS:
        got, hint = f"min_sharpness {gate.min_sharpness:g}", "probabilities lie at most 0.5 from one half; take less"
        raise PolicyError(place, "drops everything", got=got, hint=hint)
    if isinstance(gate, Measure):
        for bound in ("min", "max"):
            if getattr(gate, bound) is not None and getattr(gate, f"{bound}_quantile") is not None:
                raise PolicyError(place, f"states both {bound} and {bound}_quantile", hint="keep one of them")
        for low, high in ((gate.min, gate.max), (gate.min_quantile, gate.max_quantile)):
            if low is not None and high is not None and low > high:
                got = f"min {low:g}, max {high:g}"
                raise PolicyError(place, "min is larger than max, so everything is dropped", got=got, hint="swap them")
        if {gate.min, gate.max, gate.min_quantile, gate.max_quantile} == {None}:
            raise PolicyError(place, "needs a bound", expected="min, max, min_quantile or max_quantile")


def _check_stages(staging: Staging, place: str) -> None:
    wanted = staging.stages or STAGES
    if others := sorted(set(staging.shares) - set(wanted)):
        where, hint = f"{place}: curriculum.shares", "add it to stages, or take its share away"
        raise PolicyError(where, "a stage has a share and is not taken", got=others[0], hint=hint)
    if (total := sum(staging.shares.values())) > 1 + 1e-9:
        got, hint = f"{total:.3g}", "lower some; what is left to 1 goes to the other stages"
        raise PolicyError(f"{place}: curriculum.shares", "the shares add up to more than 1", got=got, hint=hint)
    if staging.shares and not total > 0:
        raise PolicyError(f"{place}: curriculum.shares", "all shares are 0", hint="give one stage more, or leave shares out")


def _example(gate: type[msgspec.Struct]) -> msgspec.Struct:
    """A gate with all its defaults; where a field has none, with a word that shows what belongs there."""
    return gate(**{field.name: "q_work" for field in fields_of(gate) if field.is_required})
