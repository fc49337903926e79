"""The teams: four that are well led, and eleven of which each shows one known failure of coordination."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from analysis.streams import pick, whole

from .moves import delegate, hire, plan, rivals, spawn, stop, tell
from .run import Run
from .subjects import Part
from .work import begin, check, finish, merge


class Team(NamedTuple):
    """How a team works. A failure's `about` says what is wrong; `skill` scales the chance that a part is sound."""

    name: str
    play: Callable[[Run], None]
    about: str
    is_good: bool = False
    skill: float = 1.0
    is_candid: bool = False


def _workers(run: Run) -> list[str]:
    return [f"{run.job.domain.worker}-{k + 1}" for k in range(len(run.job.parts))]


def _open(run: Run, *others: str, split: str = "by part", n_rivals: int = 3) -> tuple[list[str], str]:
    """Hire the planner, plan, and spawn one worker a part beside the `others`; return the workers and the spawn."""
    hire(run, "planner")
    workers = _workers(run)
    team = dict.fromkeys(workers, run.job.domain.worker) | {other: other for other in others}
    names = [part.name if split == "by part" else run.job.parts[0].name for part in run.job.parts]
    assignment = dict(zip(workers, names, strict=True))
    planned = plan(run, "planner", n_rivals=n_rivals)
    return workers, spawn(run, "planner", team=team, split=split, assignment=assignment, after=planned)


def _pairs(run: Run, workers: list[str]) -> list[tuple[str, Part]]:
    return list(zip(workers, run.job.parts, strict=True))


def _hand_out(run: Run, workers: list[str], *, spawned: str) -> dict[str, list[str]]:
    """Delegate one part to each worker; return part -> the events after which it can be worked on."""
    return {p.name: [delegate(run, "planner", to=w, parts=[p], after=spawned)] for w, p in _pairs(run, workers)}


def _take_up(run: Run, workers: list[str], *, ready: dict[str, list[str]]) -> dict[str, list[str]]:
    """Let all workers begin; return part -> the events after which it can be finished."""
    return {p.name: [begin(run, w, part=p, after=ready[p.name])] for w, p in _pairs(run, workers)}


def _hand_in(run: Run, workers: list[str], *, ready: dict[str, list[str]]) -> list[str]:
    """Let all workers finish side by side; return the reports."""
    return [finish(run, w, part=p, after=ready[p.name], to="planner") for w, p in _pairs(run, workers)]


def _tell_needs(run: Run, workers: list[str], *, begun: dict[str, list[str]]) -> dict[str, list[str]]:
    """Let each worker that others build on tell them what it hands over; return part -> events to wait for."""
    run.shares = True
    owner = {part.name: (worker, part) for worker, part in _pairs(run, workers)}
    ready = dict(begun)
    for name, needed in run.job.needs.items():
        teller, part = owner[needed]
        to = owner[name][0]
        text = run.job.phrases.hand_over.format(to=to, part=needed, form=part.form)
        told = tell(run, teller, to=(to,), text=text, after=begun[needed], message_type="interface")
        ready[name] = [*begun[name], told]
    return ready


def _check_and_mend(run: Run, merged: str, *, owners: dict[str, str]) -> str:
    """Check the whole; send parts that fail back to their owners once, merge and check again."""
    verdict = check(run, run.job.domain.verifier, after=merged)
    mended = []
    for part in run.job.parts:
        if part.name in run.broken():
            owner = owners[part.name]
            text = run.job.phrases.mend.format(to=owner, part=part.name, poor=part.poor)
            handed = delegate(run, "planner", to=owner, parts=[part], after=verdict, text=text)
            mended.append(finish(run, owner, part=part, after=(handed,), to="planner"))
    if not mended:
        return verdict
    return check(run, run.job.domain.verifier, after=merge(run, "integrator", after=[merged, *mended]))


def _play_single(run: Run) -> None:
    hire(run, "solo")
    run.shares = True
    last = plan(run, "solo")
    for part in run.job.parts:
        run.merged = last = finish(run, "solo", part=part, after=(last,))
    last = check(run, "solo", after=last, to="solo")
    if broken := [part for part in run.job.parts if part.name in run.broken()]:
        for part in broken:
            run.merged = last = finish(run, "solo", part=part, after=(last,))
        last = check(run, "solo", after=last, to="solo")
    stop(run, "solo", after=(last,))


def _play_parallel(run: Run) -> None:
    workers, spawned = _open(run, "integrator", run.job.domain.verifier)
    begun = _take_up(run, workers, ready=_hand_out(run, workers, spawned=spawned))
    reports = _hand_in(run, workers, ready=_tell_needs(run, workers, begun=begun))
    merged = merge(run, "integrator", after=reports)
    stop(run, "planner", after=(_check_and_mend(run, merged, owners=dict(zip(begun, workers, strict=True))),))


def _play_pipeline(run: Run) -> None:
    worker, verifier = f"{run.job.domain.worker}-1", run.job.domain.verifier
    run.shares = True
    hire(run, "planner")
    team = {worker: run.job.domain.worker, "integrator": "integrator", verifier: verifier, "critic": "critic"}
    assignment = {worker: "work", "integrator": "join", verifier: "check", "critic": "read"}
    spawned = spawn(run, "planner", team=team, split="by stage", assignment=assignment, after=plan(run, "planner"))
    last = delegate(run, "planner", to=worker, parts=run.job.parts, after=spawned)
    reports = [last := finish(run, worker, part=part, after=(last,), to="integrator") for part in run.job.parts]
    merged = merge(run, "integrator", after=reports)
    verdict = _check_and_mend(run, merged, owners={part.name: worker for part in run.job.parts})
    read = tell(run, "critic", to=("planner",), text=run.job.phrases.review, after=(verdict,), message_type="review")
    stop(run, "planner", after=(read,))


def _play_hierarchical(run: Run) -> None:
    run.shares = True
    parts, verifier = run.job.parts, run.job.domain.verifier
    half = (len(parts) + 1) // 2
    halves = {"lead-1": parts[:half], "lead-2": parts[half:]}
    team = {"lead-1": "lead", "lead-2": "lead", "integrator": "integrator", verifier: verifier}
    assignment = {lead: run.job.phrases.comma.join([part.name for part in mine]) for lead, mine in halves.items()}
    hire(run, "planner")
    spawned = spawn(run, "planner", team=team, split="by half", assignment=assignment, after=plan(run, "planner"))
    owners = {part.name: worker for worker, part in _pairs(run, _workers(run))}
    handed = {lead: delegate(run, "planner", to=lead, parts=mine, after=spawned) for lead, mine in halves.items()}
    joined = [_lead_half(run, lead, parts=mine, owners=owners, after=handed[lead]) for lead, mine in halves.items()]
    merged = merge(run, "integrator", after=joined)
    stop(run, "planner", after=(_check_and_mend(run, merged, owners=owners),))


def _lead_half(run: Run, lead: str, *, parts: tuple[Part, ...], owners: dict[str, str], after: str) -> str:
    crew = {owners[part.name]: part.name for part in parts}
    team = dict.fromkeys(crew, run.job.domain.worker)
    started = spawn(run, lead, team=team, split="by part", assignment=crew, after=after)
    given = {part.name: delegate(run, lead, to=owners[part.name], parts=[part], after=started) for part in parts}
    reports = [finish(run, owners[part.name], part=part, after=(given[part.name],), to=lead) for part in parts]
    return merge(run, lead, after=reports, parts=parts)


def _play_serial_collapse(run: Run) -> None:
    workers, last = _open(run)
    run.blame = last
    reports = []
    for worker, part in _pairs(run, workers):
        handed = delegate(run, "planner", to=worker, parts=[part], after=last)
        last = finish(run, worker, part=part, after=(handed,), to="planner")
        reports.append(last)
    stop(run, "planner", after=(merge(run, "planner", after=reports),))


def _play_aggregation_leakage(run: Run) -> None:
    workers, spawned = _open(run)
    reports = _hand_in(run, workers, ready=_hand_out(run, workers, spawned=spawned))
    kept = pick(run.own("kept"), range(len(reports)))
    content = next(fields["content"] for _, fields in run.events if fields["event_id"] == reports[kept])
    run.blame = merge(run, "planner", after=reports, content=content, strategy="copy one summary")
    for part in run.job.parts:
        if part != run.job.parts[kept] and run.own("lost", part.name) < 0.5:
            run.sound[part.name] = False
    stop(run, "planner", after=(run.blame,))


def _play_incoherent(run: Run) -> None:
    """Sure of the parts together, sure of the checks, and yet doubtful of the whole, which is nothing but both."""
    run.states = True
    domain, phrases = run.job.domain, run.job.phrases
    workers, spawned = _open(run, "integrator", domain.verifier, n_rivals=2)
    reports = _hand_in(run, workers, ready=_hand_out(run, workers, spawned=spawned))
    text = phrases.aggregate.format(names=phrases.comma.join([part.name for part in run.job.parts]))
    quotes = {domain.product: whole(run.own("product"), 84, 88)}
    text = run.say("integrator", text, quotes=quotes, level="pre-aggregation")
    merged = merge(run, "integrator", after=reports, content=text)
    quotes = {domain.verdict: whole(run.own("verdict"), 88, 95)}
    for name, quote in list(rivals(run).items())[2:]:  # the planner has quoted the other two
        quotes[name] = quote + whole(run.own("rival"), 35, 50)
    text = run.say(domain.verifier, phrases.partial_check, quotes=quotes)
    verdict = tell(run, domain.verifier, to=("planner",), text=text, after=(merged,), message_type="verdict")
    text = run.say("planner", phrases.stop_doubtful, quotes={"solved": whole(run.own("solved"), 18, 35)}, level="final")
    run.blame = stop(run, "planner", after=(verdict,), condition="time is up", final_state="unchecked", text=text)


def _play_verifier_echo(run: Run) -> None:
    verifier, last = run.job.domain.verifier, run.job.parts[-1].name
    workers, spawned = _open(run, verifier)
    reports = _hand_in(run, workers, ready=_hand_out(run, workers, spawned=spawned))
    merged = merge(run, "planner", after=reports)
    quotes = {run.job.domain.verdict: run.quoted[f"{last}_ok"]} if run.states else {}
    text = run.say(verifier, run.said[last], quotes=quotes)
    run.blame = tell(run, verifier, to=("planner",), text=text, after=(merged, reports[-1]), message_type="verdict")
    text = run.job.phrases.stop_unchecked
    stop(run, "planner", after=(run.blame,), condition="the verifier agrees", final_state="unchecked", text=text)


def _play_stopped_early(run: Run) -> None:
    workers, spawned = _open(run)
    begun = _take_up(run, workers, ready=_hand_out(run, workers, spawned=spawned))
    n_in = whole(run.own("reports in"), 1, len(workers) - 1)
    reports = [finish(run, w, part=p, after=begun[p.name], to="planner") for w, p in _pairs(run, workers)[:n_in]]
    text = run.job.phrases.stop_early.format(names=run.job.phrases.comma.join(workers[n_in:]))
    run.blame = stop(run, "planner", after=reports, condition="good enough", final_state="partial", text=text)


def _play_false_success(run: Run) -> None:
    run.doomed = {pick(run.own("doomed"), run.job.parts).name}
    workers, spawned = _open(run)
    reports = _hand_in(run, workers, ready=_hand_out(run, workers, spawned=spawned))
    merged = merge(run, "planner", after=reports)
    text = run.job.phrases.stop_false
    run.blame = stop(run, "planner", after=(merged,), condition="all checks pass", final_state="solved", text=text)


def _play_pseudo_parallelism(run: Run) -> None:
    workers, spawned = _open(run, split="same part")
    run.blame = spawned
    part, *others = run.job.parts
    text = run.job.phrases.same_part.format(part=part.name)
    reports = []
    for n, worker in enumerate(workers, 1):
        handed = delegate(run, "planner", to=worker, parts=[part], after=spawned, text=text)
        reports.append(finish(run, worker, part=part, after=(handed,), to="planner", subtask_id=f"{part.name}-{n}"))
    for other in others:  # the planner writes them in passing
        run.sound[other.name] = run.luck("part", other.name, 0) < 0.6
    stop(run, "planner", after=(merge(run, "planner", after=reports, strategy="keep one"),))


def _play_over_communication(run: Run) -> None:
    workers, spawned = _open(run)
    heard = _hand_out(run, workers, spawned=spawned)
    for n in range(3):
        sent = []
        for worker, part in _pairs(run, workers):
            others = [other for other in workers if other != worker]
            wording = pick(run.own("chatter", worker, n), run.job.phrases.chatter)
            text = wording.format(to=run.job.phrases.comma.join(others), part=part.name)
            sent.append(tell(run, worker, to=others, text=text, after=heard[part.name], message_type="status"))
        run.blame = run.blame or sent[0]
        heard = dict.fromkeys(heard, sent)
    stop(run, "planner", after=(merge(run, "planner", after=_hand_in(run, workers, ready=heard)),))


def _play_dominant_agent(run: Run) -> None:
    workers, spawned = _open(run)
    chosen, *idle = workers
    last = run.blame = delegate(run, "planner", to=chosen, parts=run.job.parts, after=spawned)
    for worker in idle:
        tell(run, worker, to=("planner",), text=run.job.phrases.idle, after=(spawned,), message_type="status")
    reports = [last := finish(run, chosen, part=part, after=(last,), to="planner") for part in run.job.parts]
    stop(run, "planner", after=(merge(run, "planner", after=reports),))


def _play_retry_storm(run: Run) -> None:
    run.n_calls = 0  # the tool is down: nobody but the one who insists calls it
    workers, spawned = _open(run)
    ready = _hand_out(run, workers, spawned=spawned)
    worker, part = pick(run.own("storm"), _pairs(run, workers))
    last = _insist(run, worker, part=part, after=ready[part.name][0])
    if run.own("storm ends") < 0.2:
        last = run.add(worker, "act", action="model_call", content=run.job.phrases.recover.format(part=part.name), after=(last,))
    else:
        run.doomed = {part.name}
        last = run.add(worker, "act", action="model_call", content=run.job.phrases.give_up.format(part=part.name), after=(last,))
    reports = _hand_in(run, workers, ready=ready | {part.name: [last]})
    stop(run, "planner", after=(merge(run, "planner", after=reports),))


def _insist(run: Run, worker: str, *, part: Part, after: str) -> str:
    """Call the tool five to seven times, each time in vain, and wait twice as long after each error."""
    tool, wait_s = run.job.domain.tool, 0
    for n in range(whole(run.own("retries"), 5, 7)):
        content = run.job.phrases.call.format(tool=tool, part=part.name, n=n + 1)
        call = run.add(worker, "act", action="tool_call", name=tool, content=content, after=(after,), wait_s=wait_s)
        wait_s = 2**n
        error = run.job.phrases.storm.format(wait=wait_s)
        after = run.add(worker, "act", action="tool_result", name=tool, after=(call,), error=error)
        run.blame = run.blame or after
    return after


def _play_cyclic_delegation(run: Run) -> None:
    workers, last = _open(run)
    first = run.job.parts[0]
    ready = {p.name: [delegate(run, "planner", to=w, parts=[p], after=last)] for w, p in _pairs(run, workers)[1:]}
    circle = ["planner", workers[0], workers[1]]
    for n in range(3 * whole(run.own("rounds"), 1, 2) + 1):
        to = circle[(n + 1) % 3]
        text = run.job.phrases.pass_on.format(to=to, part=first.name) if n else ""
        last = delegate(run, circle[n % 3], to=to, parts=[first], after=last, text=text)
        if n == 2:
            run.blame = last
    reports = _hand_in(run, workers, ready=ready | {first.name: [last]})
    stop(run, "planner", after=(merge(run, "planner", after=reports),))


TEAMS: dict[str, Team] = {
    team.name: team
    for team in (
        Team("single", _play_single, "One agent does everything: the baseline.", True, 0.95, True),
        Team("parallel", _play_parallel, "Workers side by side, then merged, checked and mended.", True, 1.0, True),
        Team("pipeline", _play_pipeline, "One stage after the other, with a check at the end.", True, 1.0, True),
        Team("hierarchical", _play_hierarchical, "Two leads with workers of their own.", True, 1.0, True),
        Team("serial-collapse", _play_serial_collapse, "Workers are spawned side by side but work one after the other."),
        Team("aggregation-leakage", _play_aggregation_leakage, "The result is a verbatim copy of one worker's summary."),
        Team("incoherent", _play_incoherent, "Each component is consistent alone; together they are not.", skill=0.9),
        Team("verifier-echo", _play_verifier_echo, "The verifier repeats a worker's claim and checks nothing."),
        Team("stopped-early", _play_stopped_early, "The run ends before needed parts are in."),
        Team("false-success", _play_false_success, "Success is claimed although a part fails."),
        Team("pseudo-parallelism", _play_pseudo_parallelism, "All workers do the same part."),
        Team("over-communication", _play_over_communication, "Empty messages from everybody to everybody.", skill=0.85),
        Team("dominant-agent", _play_dominant_agent, "One worker does everything, the others stand by.", skill=0.85),
        Team("retry-storm", _play_retry_storm, "A failing tool is called again and again, with growing waits."),
        Team("cyclic-delegation", _play_cyclic_delegation, "A part goes round in a circle before anybody does it.", skill=0.9),
    )
}
