"""Team files: who is in a team, how it works, and who plays each component, in TOML.

Decides what a file may say and who plays; `data/teams` holds the ready ones, good and bad in ways that their names and `about`
state. A team holds its policies whole, so that a trace that names it can be run again when their files have gone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from analysis import data_folder
from analysis.counterfactual.agents.ledger import Ledger
from analysis.counterfactual.agents.live import Endpoint, LiveAgent
from analysis.counterfactual.agents.protocol import Agent
from analysis.counterfactual.agents.simulated import EFFECTS, Component, Simulated
from analysis.counterfactual.agents.trainable import Policy, Trained, load
from analysis.counterfactual.plan import DURATIONS_S, Checking, Piece, Strategy
from analysis.errors import TeamError, UnknownNameError

#: Ways to split a task; those with a part are wrong in that part. A planner that is asked has all of them before it.
SPLITS = ("by part", "hidden dependency", "missing part", "repeated part", "same part")


class Team(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a team works.

    lead, worker, verifier : components; without a verifier nothing is checked
    layout : `single`, one agent does everything; `parallel`, the lead hands out all parts; `hierarchical`, parts that lead
        others in the task's shape hand those out; `serial`, the lead hands out one part after the other has come in
    n_workers : how many the parts are spread over; by default every part has its own
    assignment : `spread` in turn, all to `one`, or the lead is `asked`
    split : one of `SPLITS`, or the lead is `asked`
    upstream : whether a worker `waits` for the parts its own builds on, is `told` their interfaces, or works `blind`
    package : what a delegation hands over
    n_alternatives : how many workers write each part
    strategy : how results are merged; `asked`, the lead chooses
    checks : how the verifier judges; n_repairs : how often what it rejects is written again and merged
    n_status : empty messages that every worker sends to the others before it works
    n_tries : how often a worker that runs its part's tests tries
    stop : `at the end`, or the lead is `asked` after each check
    p_awaited : share of the results that are waited for before the merge
    fills_gaps : the lead writes itself what the split left out
    merge_delay_s : how long results lie before they are merged
    durations_s : of steps that nobody is asked for
    components : who is simulated, and how
    live : who is a model, and where; its runs are of the world `live`, on a real clock
    trained : whose decisions a policy takes, in a file its path; the component of the same name does the rest, where there is one
    """

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]*$")]
    about: str
    is_good: bool = False
    lead: str = "planner"
    worker: str = "coder"
    verifier: str | None = None
    layout: Literal["single", "parallel", "hierarchical", "serial"] = "parallel"
    n_workers: Annotated[int, Meta(ge=1, le=100)] | None = None
    assignment: Literal["spread", "one", "asked"] = "spread"
    split: Literal["by part", "same part", "asked"] = "by part"
    upstream: Literal["waits", "told", "blind"] = "waits"
    package: tuple[Piece, ...] = ("nl", "signatures")
    n_alternatives: Annotated[int, Meta(ge=1, le=9)] = 1
    strategy: Strategy | Literal["asked"] = "parallel"
    checks: Checking = "tests"
    n_repairs: Annotated[int, Meta(ge=0, le=9)] = 0
    n_status: Annotated[int, Meta(ge=0, le=20)] = 0
    n_tries: Annotated[int, Meta(ge=1, le=9)] = 1
    stop: Literal["at the end", "asked"] = "at the end"
    p_awaited: Annotated[float, Meta(gt=0, le=1)] = 1.0
    fills_gaps: bool = False
    merge_delay_s: Annotated[float, Meta(ge=0)] = 0.0
    durations_s: dict[str, Annotated[float, Meta(ge=0)]] = {}
    components: dict[str, Component] = {}
    live: dict[str, Endpoint] = {}
    trained: dict[str, Policy] = {}

    @property
    def roles(self) -> tuple[str, ...]:
        """The components that take part."""
        names = [self.lead, *([] if self.layout == "single" else [self.worker]), *([self.verifier] if self.verifier else [])]
        return tuple(dict.fromkeys(names))


def read_team(path: Path) -> Team:
    """Read a team file; raises TeamError, which names the file and the field."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TeamError(str(path), "not a TOML file", got=str(error)) from None
    except OSError as error:
        raise TeamError(str(path), "the file cannot be read", got=error.strerror or str(error)) from None
    if isinstance(trained := values.get("trained"), dict):
        values["trained"] = {name: _policy(path, name, given) for name, given in trained.items()}
    return team_of({"name": path.stem, **values}, str(path))


def team_of(values: dict[str, Any], place: str) -> Team:
    """Return the team that plain values state; raises TeamError, which names `place` and the field."""
    try:
        team = msgspec.convert(values, Team)
    except msgspec.ValidationError as error:
        problem, _, field = str(error).partition(" - at `$")
        where = field.strip("`.") or "the file"
        raise TeamError(f"{place}: {where}", "a field does not have its shape", got=problem) from None
    _check(team, place)
    return team


def _policy(team_file: Path, name: str, given: object) -> object:
    """Return the policy in a file that a team file names, as plain values."""
    if not isinstance(given, str):
        return given
    try:
        return msgspec.to_builtins(load(team_file.parent / given))
    except TeamError as error:
        raise TeamError(f"{team_file}: trained.{name}", str(error)) from None


def _check(team: Team, place: str) -> None:
    _check_players(team, place)
    known = {"effects": EFFECTS, "splits": SPLITS[1:]}
    for name, component in team.components.items():
        for field, names in known.items():
            if unknown := sorted(set(getattr(component, field)) - set(names)):
                where = f"{place}: components.{name}.{field}"
                raise TeamError(where, "no such entry", got=unknown[0], expected=", ".join(names))
        if sum(component.splits.values()) > 1:
            raise TeamError(f"{place}: components.{name}.splits", "the chances add up to more than 1")
    if unknown := sorted(set(team.durations_s) - set(DURATIONS_S)):
        raise TeamError(f"{place}: durations_s", "no such entry", got=unknown[0], expected=", ".join(DURATIONS_S))
    if team.n_repairs and team.verifier is None:
        raise TeamError(f"{place}: n_repairs", "nothing is repaired where nothing is verified", expected="a verifier")
    if team.stop == "asked" and team.verifier is None:
        raise TeamError(f"{place}: stop", "the lead is asked after checks, and there are none", expected="a verifier")


def _check_players(team: Team, place: str) -> None:
    """Everybody who takes part is simulated, live or trained, and just one of them."""
    described: dict[str, Mapping[str, object]] = {"components": team.components, "live": team.live, "trained": team.trained}
    for field, names in described.items():
        if extra := sorted(set(names) - set(team.roles)):
            raise TeamError(f"{place}: {field}.{extra[0]}", "no such component takes part", expected=", ".join(team.roles))
    if missing := sorted(set(team.roles).difference(*described.values())):
        raise TeamError(f"{place}: components.{missing[0]}", "a component that takes part is not described")
    if twice := sorted(set(team.live) & {*team.components, *team.trained}):
        hint = f"take it out of `components` and `trained`, or `live.{twice[0]}` out"
        raise TeamError(f"{place}: live.{twice[0]}", "a component that is live is nothing else", hint=hint)
    for name, endpoint in team.live.items():
        url = urlsplit(endpoint.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc:
            expected = "http(s)://host/… without a password; the key comes from the environment variable in `key_env`"
            raise TeamError(f"{place}: live.{name}.base_url", "not the address of an endpoint", expected=expected)


def ready_teams() -> dict[str, Team]:
    """Return the ready teams by name, the single agent, which is the baseline, first.

    >>> list(ready_teams())[:2]
    ['single', 'best-of-three']
    """
    teams = [read_team(path) for path in sorted((data_folder() / "teams").glob("*.toml"))]
    return {team.name: team for team in sorted(teams, key=lambda team: (team.layout != "single", not team.is_good, team.name))}


def find_team(name: str) -> Team:
    """Return a ready team by its name, or the one that a file (`*.toml`) states. Raises TeamError, UnknownNameError."""
    if name.endswith(".toml"):
        return read_team(Path(name))
    teams = ready_teams()
    if name not in teams:
        raise UnknownNameError("team", "no such team", got=name, expected=f"a file, or {', '.join(teams)}")
    return teams[name]


def simulated(team: Team) -> dict[str, Agent]:
    """Return the agents of a team without live ones, by component: simulated, and trained. Raises TeamError for other teams."""
    if team.live:
        hint = "give agents that answer for it, or let the team run with a ledger"
        raise TeamError(f"team {team.name}: live.{min(team.live)}", "a model would have to be asked", hint=hint)
    return _without_live(team)


def players(team: Team, ledger: Ledger) -> dict[str, Agent]:
    """Return all agents of a team, by component; raises EndpointError where a live one has no key, or no client is installed."""
    return _without_live(team) | {name: LiveAgent(endpoint, ledger) for name, endpoint in team.live.items()}


def _without_live(team: Team) -> dict[str, Agent]:
    own: dict[str, Agent] = {name: Simulated(component) for name, component in team.components.items()}
    return own | {name: Trained(policy, own.get(name)) for name, policy in team.trained.items()}
