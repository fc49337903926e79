"""How agents of a simulated run work: take up a part and finish it, put parts together, check the whole.

Whether a part comes out sound, and whether sound parts fit, is drawn here. Each move returns the id of its last event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from analysis.model import Candidate, Subtask
from analysis.streams import pick, whole

from .moves import tell
from .run import Run
from .subjects import Part

_P_HIDDEN = 0.25  # chance that a part which builds on another fails without being told about it
_P_TOOL_ERROR = 0.1  # chance that a tool call fails and is made again
_P_FIT = 0.95  # chance that sound parts work together


def begin(run: Run, agent_id: str, *, part: Part, after: Sequence[str]) -> str:
    """Take up a part, before the agent waits for something."""
    _own(run, agent_id, part=part, subtask_id=part.name)
    wording = pick(run.own("begin", run.next_id(agent_id)), run.job.phrases.begin)
    return run.add(agent_id, "act", action="model_call", content=wording.format(part=part.name), after=after)


def finish(run: Run, agent_id: str, *, part: Part, after: Sequence[str], to: str | None = None, subtask_id: str = "") -> str:
    """Work with tools, then report the part (to the agent `to`, where there is one) and hand in a candidate."""
    subtask_id = subtask_id or part.name
    _own(run, agent_id, part=part, subtask_id=subtask_id)
    for content, answer in _tool_uses(run, part, subtask_id=subtask_id):
        after = (_use_tool(run, agent_id, content=content, answer=answer, after=after),)
    is_sound = _attempt(run, part, subtask_id=subtask_id)
    text = run.job.phrases.done if is_sound else run.job.phrases.done_poor
    text = run.said[part.name] = text.format(part=part.name, sound=part.sound)
    low, high = (88, 96) if is_sound or not run.is_candid else (55, 85)
    sure = whole(run.own("sure", run.next_id(agent_id)), low, high)
    content = run.say(agent_id, text, quotes={f"{part.name}_ok": sure})
    targets = (to,) if to else ()
    event = run.add(agent_id, "act", action="return" if to else "model_call", content=content, after=after, targets=targets)
    n_passed = 2 if is_sound else int(run.luck("one of two", part.name) < 0.5)
    run.candidates.append(
        Candidate(candidate_id=f"c{len(run.candidates) + 1}", event_id=event, agent_id=agent_id, subtask_id=subtask_id,
                  text=None if is_sound else part.poor, n_passed=n_passed, n_tests=2)
    )  # fmt: skip
    return event


def _own(run: Run, agent_id: str, *, part: Part, subtask_id: str) -> None:
    needs = (run.job.needs[part.name],) if part.name in run.job.needs else ()
    run.subtasks.setdefault(subtask_id, Subtask(subtask_id=subtask_id, agent_id=agent_id, covers=(part.name,), needs=needs))


def _attempt(run: Run, part: Part, *, subtask_id: str) -> bool:
    """Draw whether this attempt at the part is sound, and note what a test alone and with true inputs would show."""
    n_before = sum([candidate.subtask_id == subtask_id for candidate in run.candidates])
    is_able = run.luck("part", part.name, n_before) < run.p_part and part.name not in run.doomed
    is_hidden = part.name in run.job.needs and run.luck("hidden", part.name) < _P_HIDDEN
    run.subtasks[subtask_id] = msgspec.structs.replace(
        run.subtasks[subtask_id], passes_alone=is_able and not is_hidden, passes_upstream=is_able
    )
    run.sound[part.name] = is_able and (run.shares or not is_hidden)
    return run.sound[part.name]


def _tool_uses(run: Run, part: Part, *, subtask_id: str) -> Iterator[tuple[str, str]]:
    """What the part's share of the run's tool calls asks and answers."""
    n_parts, place = len(run.job.parts), run.job.parts.index(part)
    for n in range(run.n_calls * (place + 1) // n_parts - run.n_calls * place // n_parts):
        answer = pick(run.own("answer", subtask_id, n), run.job.phrases.answer)
        call = run.job.phrases.call.format(tool=run.job.domain.tool, part=part.name, n=n + 1)
        yield call, answer.format(part=part.name)


def _use_tool(run: Run, agent_id: str, *, content: str, answer: str, after: Sequence[str]) -> str:
    """Call the domain's tool and read its answer; after an error, call once more."""
    tool = run.job.domain.tool
    call = run.add(agent_id, "act", action="tool_call", name=tool, content=content, after=after)
    if run.own("tool error", call) < _P_TOOL_ERROR:
        error = run.add(agent_id, "act", action="tool_result", name=tool, after=(call,), error="timeout after 30 s")
        call = run.add(agent_id, "act", action="tool_call", name=tool, content=content, after=(error,), wait_s=2)
    return run.add(agent_id, "act", action="tool_result", name=tool, content=answer, after=(call,))


def merge(
    run: Run, agent_id: str, *, after: Sequence[str], parts: Sequence[Part] = (), content: str = "", strategy: str = "join"
) -> str:
    """Put the results of the events `after` together: of `parts`, or of all, which makes the whole.

    How sure the agent is of the whole gets stated, unless it speaks in the words of `content`.
    """
    names = [part.name for part in parts or run.job.parts]
    wording = run.job.phrases.aggregate_again if run.merged else run.job.phrases.aggregate
    text = content or wording.format(names=run.job.phrases.comma.join(names))
    if not parts and not content:
        text = run.say(agent_id, text, quotes={run.job.domain.product: _sure_of_product(run)}, level="pre-aggregation")
    kind = "alternatives" if strategy == "keep one" else "composition"
    event = run.add(
        agent_id, "aggregate", content=text, after=after, strategy=strategy, merge_kind=kind, merge_points=tuple(after)
    )
    if not parts:
        run.fits = run.luck("fit") < _P_FIT
        run.merged = event
    return event


def _sure_of_product(run: Run) -> int:
    """A quote that agrees with those of the parts, near the top of what they allow."""
    quotes = [q for part in run.job.parts if (q := run.quoted.get(f"{part.name}_ok")) is not None]
    low, high = max(0, sum(quotes) - 100 * (len(quotes) - 1)), min(quotes, default=100)
    return high - whole(run.own("product", len(run.candidates)), 0, (high - low) // 3)


def check(run: Run, agent_id: str, *, after: str, to: str = "planner") -> str:
    """Run all tests on the whole and report what fails."""
    phrases, n, n_passed = run.job.phrases, run.job.n_checks, run.n_passed()
    content, result = phrases.check.format(n=n), phrases.checked.format(k=n_passed, n=n)
    answer = _use_tool(run, agent_id, content=content, answer=result, after=(after,))
    broken = run.broken()
    findings = [f"{part.name}: {part.poor}" for part in run.job.parts if part.name in broken] or [phrases.misfit]
    text = phrases.all_pass if n_passed == n else phrases.some_fail
    text = text.format(n=n, k=n - n_passed, findings=phrases.space.join(findings))
    sure = whole(run.own("verdict", answer), *((93, 97) if n_passed == n else (4, 14)))
    content = run.say(agent_id, text, quotes={run.job.domain.verdict: sure})
    run.checked = True
    if agent_id == to:
        return run.add(agent_id, "act", action="model_call", content=content, after=(answer,))
    return tell(run, agent_id, to=(to,), text=content, after=(answer,), message_type="verdict")
