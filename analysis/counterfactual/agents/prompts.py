"""What a model is told for each purpose, and what its answer comes to: one of the options and nothing else, or no answer.

Who writes a part or a message sees what was handed over to it; who plans, merges, judges or ends sees the whole task. Tests
and the wrong variants of a task are never shown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from analysis.counterfactual.agents.blocks import has_function, json_object, source_block
from analysis.counterfactual.agents.protocol import Request, Response, Seen
from analysis.counterfactual.tasks.compose import ComposedTask
from analysis.model import ContextPackage

Message = dict[str, str]
Field = Literal["text", "choice", "program", "rejected"]

_ASKED = {
    "plan": "Say how to go about the task, in a few sentences.",
    "assign": "Choose which agent is to write the part {part}.",
    "write": "Write the Python function `{name}` (part {part}).",
    "verify": "Judge the candidates: which of {options} do not do what the task asks for? None is an answer.",
    "message": "Write a short message of the kind `{options}`{about} to your team.",
    "aggregate": "Put the parts that are here together into the whole program, with the entry point that the task names.",
    "stop": "Decide whether the run ends here (one of {options}).",
    "answer": "Put your parts together into the whole program, with the entry point that the task names.",
}
_CHOOSE = "Decide how the team goes about the task: choose one of {options}."
#: What options mean, by their kind: what stands before a colon.
_MEANT = {
    "by part": "each part is a subtask of its own, with the parts that it builds on",
    "hidden dependency": "the same, but who writes this part is not told what it builds on",
    "missing part": "the same without this part", "repeated part": "the same with this part twice",
    "same part": "everybody writes the first part",
    "parallel": "all results are merged at once", "sequential": "one result after the other is merged to what there is",
    "hierarchical": "results are merged in pairs", "vote": "of several results for a part the one that most agree on is kept",
    "best-by-tests": "of several results for a part the one that passes most tests is kept",
    "stop": "the run ends with what there is", "go on": "what was rejected is written again",
}  # fmt: skip
_NEEDED: dict[str, Field] = {
    "plan": "text", "assign": "choice", "write": "program", "verify": "rejected", "message": "text", "aggregate": "program",
    "stop": "choice", "answer": "program",
}  # fmt: skip
#: purpose -> the proposition that the stated probability is about, and in words
_CLAIMED = {
    "plan": ("plan_ok", "the plan is right"), "write": ("{part}_ok", "the function is right"),
    "verify": ("checks_pass", "everything is right"), "aggregate": ("parts_ok", "all parts are right"),
    "stop": ("solved", "the task is solved"),
}  # fmt: skip
#: No valid JSON, so that a model which repeats the form has not answered, and no example is taken for a stated probability.
_FORM = {
    "text": '"text": <what you say>', "choice": '"choice": <one of {options}>', "program": '"program": <Python source>',
    "rejected": '"rejected": [<some or none of {options}>]',
}  # fmt: skip
_WHOLE_TASK = ("plan", "assign", "verify", "aggregate", "stop", "answer")


class _Said(msgspec.Struct, frozen=True):
    text: str = ""
    choice: str | None = None
    program: str | None = None
    rejected: tuple[str, ...] | None = None
    p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


def messages_of(request: Request, *, instructions: str = "", json_mode: bool = False) -> list[Message]:
    """Return the messages that put a request before a model; a plain prompt stands alone, after the instructions."""
    opening = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(request.task, str):
        return [*opening, {"role": "user", "content": request.task}]
    role = f"You are {request.agent_id}, the {request.component} of a team of agents that writes a Python program together."
    task = [f"The task:\n{request.task.text}"] if request.purpose in _WHOLE_TASK else _handed_over(request.package)
    asked = _CHOOSE if request.purpose == "plan" and request.options else _ASKED[request.purpose]
    asked = asked.format(**_words(request, request.task))
    parts = [*task, *map(_told, request.seen), asked, *_meanings(request), _form(request, json_mode)]
    system = "\n".join(filter(None, [role, instructions]))
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]


def repair_of(request: Request, said: str, problem: str, *, json_mode: bool = False) -> list[Message]:
    """Return the messages that ask once more for an answer in the right form."""
    again = f"That cannot be read: {problem}. {_form(request, json_mode)}"
    return [{"role": "assistant", "content": said}, {"role": "user", "content": again}]


def read_answer(request: Request, said: str) -> Response | str:
    """Return what a model's answer comes to, or what is wrong with it in words.

    The last JSON object counts; a program may stand in a Python block, also alone, where it holds a function. A choice may
    stand alone too. It must be one of the options, and a probability one.
    """
    if isinstance(request.task, str):
        return Response(text=said) if said.strip() else "it is empty"
    value = json_object(said)
    try:
        # Through text once more, which refuses half characters and numbers that are none.
        found = _bare(request, said) if value is None else msgspec.json.decode(json.dumps(value), type=_Said, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"no JSON of the form that was asked for ({error})"
    if found is None:
        return "no JSON of the form that was asked for"
    source = (source_block(found.program) or found.program) if found.program else source_block(said)
    return _response(request, msgspec.structs.replace(found, program=source))


def _bare(request: Request, said: str) -> _Said | None:
    """Return an answer without JSON that can be taken for no other: a choice alone, or a block with a function."""
    if _needed(request) == "choice":
        choice = _option(said, request.options)
        return None if choice is None else _Said(choice=choice)
    source = source_block(said)
    return _Said() if _needed(request) == "program" and source is not None and has_function(source) else None


def _response(request: Request, found: _Said) -> Response | str:
    """Return what is needed of what was said, if it is there and can be."""
    needed, options = _needed(request), request.options
    choice = None if found.choice is None else _option(found.choice, options)
    rejected = [_option(name, options) or name for name in found.rejected or ()]
    said = {"text": found.text, "choice": found.choice, "program": found.program, "rejected": found.rejected}[needed]
    if said is None or (isinstance(said, str) and not said.strip()):
        return f"`{needed}` is missing"
    if needed == "choice" and choice is None:
        return f"`choice` is none of {', '.join(options)}"
    if needed == "rejected" and (unknown := sorted(set(rejected) - set(options))):
        return f"`rejected` names {unknown[0]}, which is none of {', '.join(options)}"
    return Response(
        text=found.text, choice=choice if needed == "choice" else None, program=found.program if needed == "program" else None,
        rejected=tuple(dict.fromkeys(rejected)) if needed == "rejected" else (), claims=_claims(request, found.p),
    )  # fmt: skip


def _option(said: str, options: Sequence[str]) -> str | None:
    """Return the option that a text is, but for case, quotes and a full stop."""
    plain = said.strip().strip("`'\"*.").strip().casefold()
    return said if said in options else next((option for option in options if option.casefold() == plain), None)


def _needed(request: Request) -> Field:
    return "choice" if request.purpose == "plan" and request.options else _NEEDED[request.purpose]


def _claims(request: Request, p: float | None) -> tuple[tuple[str, float], ...]:
    if p is None or request.purpose not in _CLAIMED:
        return ()
    return ((_CLAIMED[request.purpose][0].format(part=request.part), p),)


def _words(request: Request, task: ComposedTask) -> dict[str, str]:
    name = task.node(request.part).function.function_id if request.purpose == "write" and request.part else ""
    about = f" about the part {request.part}" if request.part else ""
    return {"part": request.part or "", "name": name, "about": about, "options": ", ".join(request.options)}


def _meanings(request: Request) -> list[str]:
    """Return a line for each option of a choice whose name does not say enough."""
    known = [(option, _MEANT.get(option.partition(":")[0])) for option in request.options]
    lines = [f"- {option}: {meaning}" for option, meaning in known if meaning]
    return ["\n".join(lines)] if lines and _needed(request) == "choice" and len(request.options) > 1 else []


def _form(request: Request, json_mode: bool) -> str:
    if isinstance(request.task, str):
        return "Answer with text."
    needed = _needed(request)
    is_apart = needed == "program" and not json_mode
    fields = [] if is_apart else [_FORM[needed].format(options=", ".join(request.options))]
    fields += [] if needed == "text" else ['"text": <what you say about it, in one sentence>']
    about = ""
    if request.purpose in _CLAIMED:
        fields.append('"p": <number from 0 to 1>')
        about = f" `p` is your probability that {_CLAIMED[request.purpose][1]}."
    shape = "{" + ", ".join(fields) + "}"
    if json_mode:
        return f"Answer with one JSON object and nothing else: {shape}.{about}"
    source = "and the source in a block\n```python\n…\n```\n" if is_apart else ""
    return f"Answer with one block\n```json\n{shape}\n```\n{source}and nothing else.{about}"


def _handed_over(package: ContextPackage) -> list[str]:
    texts = [
        ("What it is to do", package.nl or ""), ("Examples", "\n".join(package.scenarios)),
        ("Signatures", "\n".join(package.signatures)), ("How the parts hang together", package.domain_model or ""),
    ]  # fmt: skip
    return [f"{title}:\n{text}" for title, text in texts if text]


def _told(seen: Seen) -> str:
    about = "the whole" if seen.part is None else f"part {seen.part}"
    lines = [f"From {seen.agent_id}: {seen.message_type or seen.kind}, {about}."]
    if seen.text:
        lines.append(seen.text)
    if seen.program is not None:
        lines.append(f"```python\n{seen.program.rstrip()}\n```")
    if seen.n_tests is not None:
        lines.append(f"{seen.n_passed} of {seen.n_tests} tests pass.")
    if seen.rejected:
        lines.append(f"Rejected: {', '.join(seen.rejected)}.")
    lines += [f"It states {name} with probability {p:g}." for name, p in seen.claims]
    return "\n".join(lines)
