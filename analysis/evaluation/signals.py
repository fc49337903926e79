"""What speaks for one event or another being the one that made a run fail: named signals, each with its clues.

Decides which signals there are; each is a measurement that can be read off the trace without a model and without the
expected answer. How much each counts is for `suspects` to say.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence

from analysis.coherence.levels import LevelResidual
from analysis.errors import printable
from analysis.evaluation import wording
from analysis.evaluation.case import Case, Clue
from analysis.model import Claim, Trace
from analysis.orchestration.evidence import plain
from analysis.orchestration.findings import Finding, findings
from analysis.orchestration.timing import timing

#: Every signal and what it measures, from 0 to 1 for each event.
SIGNALS: dict[str, str] = {
    "opens": "the first step that an agent decided on",
    "opens with code": "the opening of a group chat that holds ready-made code",
    "another task": "the opening of a group chat that holds less than 60 % of the task's words",
    "place in chat": "logarithm of the place among the agents' steps, in a group chat",
    "end of chat": "the same place as a share of the chat",
    "place in team": "logarithm of the place among the agents' steps, in a team with a leader",
    "first result": "the first own work that was handed in",
    "last result": "the last own work that was handed in, in a team with a leader",
    "agent's first": "the first result of its agent",
    "result": "own work handed in, in a team with a leader",
    "delegation": "a delegation or a spawn",
    "ledger": "a leader's own record of how the work stands",
    "new plan": "a leader's note of 300 characters or more, after the first",
    "stop": "the end of the run",
    "code": "holds fenced code",
    "first code": "the first fenced code after the opening",
    "call failed": "its call or code failed in the result that follows at once",
    "call empty": "its call or code gave nothing",
    "call worked": "its call or code gave a result",
    "error": "the event itself failed",
    "first error": "the first event that failed or whose call failed",
    "broken": "a result that holds an error message",
    "length": "logarithm of its length over that of a long text",
    "no figures": "holds no figure at all",
    "assumes": "words of assuming, three and more count as one",
    "vouches": "declares the work right or done at its end, without code",
    "checker": "said by an agent whose role is to check",
    "first check": "the first word of such an agent",
    "mended": "its own agent's next step begins with a fault",
    "contradicted": "the next step of another agent begins with a fault",
    "asked again": "likeness of the request before to the next one, to the same agent",
    "no progress": "the verdict that follows says that there is no progress or a loop",
    "answer's source": "share of the final answer's figures and capitalised words that first come up there",
    "answer in full": "a result that holds the final answer",
    "reversal": "a verdict or quote that its own component reverses later, or that the failure refutes",
    "finding": "where an orchestration finding points: what began it, or what copied or overlooked",
    "in finding": "share of an orchestration finding's events",
    "critical path": "share of the run's longest path that would be saved without it, on a clock",
    "residual": "share of all rises of the residual, by component and turn; in proportion where they come to less than 0.1",
}

#: Those that say what kind of step it is and where it stands: no reason to suspect it, only how often such steps are to blame.
CONTEXT = ("place in chat", "end of chat", "place in team", "result", "delegation", "ledger", "stop", "code", "length",
           "no figures", "checker")  # fmt: skip

#: The findings whose culprit stands last among their events: what was waited for, copied or overlooked stands before.
_LAST = ("aggregation leakage", "verifier echo", "stopped too early", "claimed success on failure")
_LONG_NOTE = 300
#: Slips of a few hundredths between quotes stay below this residual; what is below it counts in proportion.
_CLEAR = 0.1
#: Shares of the longest path that are worth a sentence.
_NOTABLE = 0.05
_NOTHING = ("", "[]", "{}", "none", "null")
_REFUTED = "request_satisfied", "solved"


def signals(trace: Trace, residuals: Sequence[LevelResidual] | None = None) -> tuple[Case, list[Clue]]:
    """Return the case of a run and all clues on its suspects, signal by signal in a fixed order."""
    case = Case(trace, timing(trace))
    known = {case.steps[k].event_id for k in case.suspects}
    found = [clue for detect in _DETECTORS for clue in detect(case)]
    found += _residual(case, residuals or ())
    return case, [clue for clue in found if clue.event_id in known and clue.value > 0]


def _place(case: Case) -> Iterator[Clue]:
    n = len(case.suspects)
    for place, k in enumerate(case.suspects):
        if place == 0:
            yield case.clue("opens", k, 1.0, "{e} opens the run: what it gets wrong everything after it inherits.")
        late = math.log1p(place) / math.log(100)
        if case.leaders:
            yield case.clue("place in team", k, late, "")
        else:
            yield case.clue("place in chat", k, late, "")
            yield case.clue("end of chat", k, place / max(1, n - 1), "")
    yield from _results(case)


def _results(case: Case) -> Iterator[Clue]:
    seen: set[str | None] = set()
    for n, k in enumerate(case.results):
        agent = case.steps[k].agent_id
        if n == 0:
            yield case.clue("first result", k, 1.0, "{e} is the first own work of the run, on which the rest builds.")
        if agent not in seen:
            yield case.clue("agent's first", k, 1.0, "{e} is the first that {a} contributes.")
        seen.add(agent)
        if case.leaders:
            yield case.clue("result", k, 1.0, "")
            if n == len(case.results) - 1:
                yield case.clue("last result", k, 1.0, "{e} is the last work that was handed in before the answer.")


def _decisions(case: Case) -> Iterator[Clue]:
    for place, k in enumerate(case.suspects):
        step = case.steps[k]
        if case.leaders and step.kind in ("delegate", "spawn"):
            yield case.clue("delegation", k, 1.0, "")
        if step.action == "ledger":
            yield case.clue("ledger", k, 1.0, "")
        if step.action == "note" and step.agent_id in case.leaders and place and len(case.texts[k]) >= _LONG_NOTE:
            yield case.clue("new plan", k, 1.0, "{e} is a long note in which {a}, who leads, thinks again about how to go on.")
        if step.kind == "stop":
            yield case.clue("stop", k, 1.0, "")


def _errors(case: Case) -> Iterator[Clue]:
    first = None
    for k in case.suspects:
        step, result = case.steps[k], case.answered(k)
        if step.error:
            yield case.clue("error", k, 1.0, "{e} failed: '{0}'.", _short(step.error))
        if result is not None and result.error:
            reason = "{e} made a call that failed: {0} says '{1}'."
            yield case.clue("call failed", k, 1.0, reason, result.event_id, _short(result.error))
        elif result is not None:
            is_empty = plain((result.content or "").rpartition("Code output:")[2]) in _NOTHING
            what = "came back with nothing" if is_empty else "worked; the team went on with what came back"
            signal = "call empty" if is_empty else "call worked"
            yield case.clue(signal, k, 1.0, "{e} made a call that {0} ({1}).", what, result.event_id)
        if first is None and (step.error or (result is not None and result.error)):
            first = k
            yield case.clue("first error", k, 1.0, "{e} is where the first error of the run arose.")


def _short(error: str) -> str:
    return printable(plain(error), 80)


def _requests(case: Case) -> Iterator[Clue]:
    """What the leader makes of a result: the same request again, or a verdict that nothing moves."""
    asked = [k for k in case.suspects if case.steps[k].kind == "delegate"]
    verdicts = _by_event(case.trace.claims)
    judged = [k for k in case.suspects if case.steps[k].event_id in verdicts]
    for k in case.results if case.leaders else ():
        at = bisect(asked, k)
        before, after = (asked[at - 1] if at else None), (asked[at] if at < len(asked) else None)
        if before is not None and after is not None and case.steps[before].targets == case.steps[after].targets:
            likeness = _likeness(case.texts[before], case.texts[after])
            again = case.steps[after].event_id
            yield case.clue("asked again", k, likeness, "{a} was asked again in like words after {e}, in {0}.", again)
        next_verdict = bisect(judged, k)
        verdict = judged[next_verdict] if next_verdict < len(judged) else None
        said = verdicts[case.steps[verdict].event_id] if verdict is not None else {}
        if verdict is not None and (said.get("progress_being_made") == 0 or said.get("in_loop") == 1):
            where = case.steps[verdict].event_id
            yield case.clue("no progress", k, 1.0, "after {e} the verdict {0} says that the work does not move.", where)


def _by_event(claims: Sequence[Claim]) -> dict[str | None, dict[str, float]]:
    found: dict[str | None, dict[str, float]] = {}
    for claim in claims:
        if not claim.is_placeholder:
            found.setdefault(claim.event_id, {})[claim.proposition] = claim.p
    return found


def _likeness(first: str, second: str) -> float:
    a, b = set(plain(first).split()), set(plain(second).split())
    return len(a & b) / len(a | b) if a and b else 0.0


def _reversals(case: Case) -> Iterator[Clue]:
    """Quotes on one side of a half that their component later puts on the other, and success claimed in a failed run."""
    place = {case.steps[k].event_id: k for k in case.suspects}
    later: dict[tuple[str, str], Claim] = {}
    for claim in reversed([c for c in case.trace.claims if c.event_id in place and not (c.is_placeholder or c.is_out_of_range)]):
        k = place[claim.event_id or ""]
        said = f"{claim.proposition} at {claim.p:g}"
        after = later.get((claim.component, claim.proposition))
        if claim.proposition in _REFUTED and claim.p > 0.5 and case.trace.outcome.passed is False:
            yield case.clue("reversal", k, 1.0, "{e} puts {0}, and the run failed.", said)
        elif claim.p > 0.5 and after is not None and after.p < 0.5:
            reason = "{e} puts {0}, and {a} takes it back in {1} ({2:g})."
            yield case.clue("reversal", k, 1.0, reason, said, after.event_id, after.p)
        later[claim.component, claim.proposition] = claim


def _findings(case: Case) -> Iterator[Clue]:
    place = {case.steps[k].event_id: k for k in case.suspects}
    for finding in findings(case.trace, timed=case.timed):
        named = [place[event_id] for event_id in finding.event_ids if event_id in place]
        culprit = _culprit(case, finding, named)
        if culprit is not None:
            reason = "{e} is where a finding points, {0}: {1}."
            yield case.clue("finding", culprit, 1.0, reason, finding.name, finding.message)
        for k in named:
            reason = "{e} is one of {0} events of a finding, {1}."
            yield case.clue("in finding", k, 1 / len(named), reason, len(named), finding.name)


def _culprit(case: Case, finding: Finding, named: Sequence[int]) -> int | None:
    """Return the step that began it, or, for what was copied or overlooked, the one that did so."""
    if not named:
        return None
    if finding.name in _LAST:
        return named[-1]
    if finding.name == "over-communication":  # the events are the messages that follow another one
        said = [k for k in case.suspects if k < named[0] and case.steps[k].agent_id == case.steps[named[0]].agent_id]
        return said[-1] if said else named[0]
    if finding.name == "pseudo-parallelism":  # the work itself is sound; handing it out twice was the fault
        given = [k for k in case.suspects if k < named[0] and case.steps[k].kind == "spawn"]
        return given[-1] if given else named[0]
    if finding.name == "cyclic delegation":
        made: set[str | None] = set()
        for k in named:
            made.add(case.steps[k].agent_id)
            if made & set(case.steps[k].targets):
                return k
    return named[0]


def _critical_path(case: Case) -> Iterator[Clue]:
    for k in case.suspects if case.timed.basis_of_time == "clock" else ():  # else the path is little more than the order
        drag = case.timed.drag.get(case.steps[k].event_id)
        if drag and case.timed.span:
            share = min(1.0, drag / case.timed.span)
            reason = "{e} holds up {0:.0%} of the run's longest path." if share >= _NOTABLE else ""
            yield case.clue("critical path", k, share, reason, share)


def _residual(case: Case, residuals: Sequence[LevelResidual]) -> Iterator[Clue]:
    """Where ε*² rose: at the first quotes by energy, after that on the account of those who spoke."""
    rises: dict[tuple[str, str, int | None], float] = {}
    for level in residuals:
        for turn in level.turns:
            shares = turn.energy if turn.delta is None else turn.spoken or {}
            for component, share in shares.items():
                if share > 0:
                    rises[level.level, component, turn.turn] = share
    total = math.fsum(rises.values())
    last = {(c.component, turn): c.event_id for c in case.trace.claims for turn in (c.turn, None)}
    place = {case.steps[k].event_id: k for k in case.suspects}
    for cell, rise in sorted(rises.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or 0)):
        k = place.get(last.get(cell[1:]) or "")
        if k is not None:
            reason = "{e} holds the quote by which {a} accounts for {0:.0%} of all rises of the residual ({1} level)."
            value = rise / total * min(1.0, math.sqrt(total) / _CLEAR)
            yield case.clue("residual", k, value, reason, rise / total, cell[0])


_DETECTORS: tuple[Callable[[Case], Iterator[Clue]], ...] = (
    _place, _decisions, _errors, wording.said, wording.roles, wording.opening, wording.replies, _requests, wording.answer,
    _reversals, _findings, _critical_path,
)  # fmt: skip
