"""The teams: four that are well led, and eleven of which each shows one known failure of coordination."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from analysis.simulation.moves import (
    begin, check, delegate, finish, hire, merge, plan, rivals, spawn, stop, tell,
)  # fmt: skip
from analysis.simulation.run import Run
from analysis.streams import pick, whole


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


def _open(run: Run, *others: str, split: str = "by part") -> tuple[list[str], str]:
    """Hire the planner, plan, and spawn one worker a part beside the `others`; return the workers and the spawn."""
    hire(run, "planner", "planner")
    workers = _workers(run)
    team = dict.fromkeys(workers, run.job.domain.worker) | {other: other for other in others}
    names = [part.name if split != "same part" else run.job.parts[0].name for part in run.job.parts]
    assignment = dict(zip(workers, names, strict=True))
    return workers, spawn(run, "planner", team, split=split, assignment=assignment, after=plan(run, "planner"))


def _side_by_side(run: Run, workers: list[str], spawned: str, after: dict[str, list[str]] | None = None) -> list[str]:
    """Let each worker do one part, after it was delegated or after the events of `after`; return the reports."""
    pairs = list(zip(workers, run.job.parts, strict=True))
    ready = after or {part.name: [delegate(run, "planner", worker, [part], after=spawned)] for worker, part in pairs}
    return [finish(run, worker, part, after=ready[part.name], to="planner") for worker, part in pairs]


def _take_up(run: Run, workers: list[str], spawned: str) -> dict[str, list[str]]:
    """Delegate one part to each worker and let all begin; return part -> the event in which it was taken up."""
    return {
        part.name: [begin(run, worker, part, after=(delegate(run, "planner", worker, [part], after=spawned),))]
        for worker, part in zip(workers, run.job.parts, strict=True)
    }


def _tell_needs(run: Run, workers: list[str], begun: dict[str, list[str]]) -> dict[str, list[str]]:
    """Let each worker that others build on tell them what it hands over; return part -> events to wait for."""
    run.shares = True
    owner = {part.name: (worker, part) for worker, part in zip(workers, run.job.parts, strict=True)}
    ready = dict(begun)
    for name, needed in run.job.needs.items():
        teller, part = owner[needed]
        text = run.job.phrases.hand_over.format(to=owner[name][0], part=needed, form=part.form)
        told = tell(run, teller, (owner[name][0],), text, after=begun[needed], message_type="interface")
        ready[name] = [*begun[name], told]
    return ready


def _check_and_mend(run: Run, merged: str, owners: dict[str, str]) -> str:
    """Check the whole; send parts that fail back to their owners once, merge and check again."""
    verdict = check(run, run.job.domain.verifier, after=merged)
    mended = []
    for part in run.job.parts:
        if part.name in run.broken():
            owner = owners[part.name]
            text = run.job.phrases.mend.format(to=owner, part=part.name, poor=part.poor)
            handed = delegate(run, "planner", owner, [part], after=verdict, text=text)
            mended.append(finish(run, owner, part, after=(handed,), to="planner"))
    if not mended:
        return verdict
    merged = merge(run, "integrator", run.job.parts, after=[merged, *mended])
    return check(run, run.job.domain.verifier, after=merged)


def _play_single(run: Run) -> None:
    hire(run, "solo", "solo")
    run.shares = True
    last = plan(run, "solo")
    for part in run.job.parts:
        run.merged = last = finish(run, "solo", part, after=(last,))
    last = check(run, "solo", after=last, to="solo")
    if broken := [part for part in run.job.parts if part.name in run.broken()]:
        for part in broken:
            run.merged = last = finish(run, "solo", part, after=(last,))
        last = check(run, "solo", after=last, to="solo")
    stop(run, "solo", after=(last,))


def _play_parallel(run: Run) -> None:
    workers, spawned = _open(run, "integrator", run.job.domain.verifier)
    begun = _take_up(run, workers, spawned)
    reports = _side_by_side(run, workers, spawned, _tell_needs(run, workers, begun))
    merged = merge(run, "integrator", run.job.parts, after=reports)
    owners = dict(zip(begun, workers, strict=True))
    stop(run, "planner", after=(_check_and_mend(run, merged, owners),))


def _play_pipeline(run: Run) -> None:
    worker, verifier = f"{run.job.domain.worker}-1", run.job.domain.verifier
    run.shares = True
    hire(run, "planner", "planner")
    team = {worker: run.job.domain.worker, "integrator": "integrator", verifier: verifier, "critic": "critic"}
    assignment = {worker: "work", "integrator": "join", verifier: "check", "critic": "read"}
    spawned = spawn(run, "planner", team, split="by stage", assignment=assignment, after=plan(run, "planner"))
    last = delegate(run, "planner", worker, run.job.parts, after=spawned)
    reports = [last := finish(run, worker, part, after=(last,), to="integrator") for part in run.job.parts]
    merged = merge(run, "integrator", run.job.parts, after=reports)
    verdict = _check_and_mend(run, merged, dict.fromkeys([part.name for part in run.job.parts], worker))
    read = tell(run, "critic", ("planner",), run.job.phrases.review, after=(verdict,), message_type="review")
    stop(run, "planner", after=(read,))


def _play_hierarchical(run: Run) -> None:
    run.shares = True
    parts, verifier = run.job.parts, run.job.domain.verifier
    half = (len(parts) + 1) // 2
    hire(run, "planner", "planner")
    halves = {"lead-1": parts[:half], "lead-2": parts[half:]}
    team = {"lead-1": "lead", "lead-2": "lead", "integrator": "integrator", verifier: verifier}
    comma = run.job.phrases.comma
    assignment = {lead: comma.join([part.name for part in mine]) for lead, mine in halves.items()}
    spawned = spawn(run, "planner", team, split="by half", assignment=assignment, after=plan(run, "planner"))
    owners = dict(zip([part.name for part in parts], _workers(run), strict=True))
    joined = []
    for lead, mine in halves.items():
        handed = delegate(run, "planner", lead, mine, after=spawned)
        crew = {owners[part.name]: part.name for part in mine}
        started = spawn(run, lead, dict.fromkeys(crew, run.job.domain.worker), split="by part", assignment=crew, after=handed)
        given = {part.name: delegate(run, lead, owners[part.name], [part], after=started) for part in mine}
        reports = [finish(run, owners[part.name], part, after=(given[part.name],), to=lead) for part in mine]
        joined.append(merge(run, lead, mine, after=reports))
    merged = merge(run, "integrator", parts, after=joined)
    stop(run, "planner", after=(_check_and_mend(run, merged, owners),))


def _play_serial_collapse(run: Run) -> None:
    workers, run.blame = _open(run)
    last, reports = run.blame, []
    for worker, part in zip(workers, run.job.parts, strict=True):
        last = finish(run, worker, part, after=(delegate(run, "planner", worker, [part], after=last),), to="planner")
        reports.append(last)
    stop(run, "planner", after=(merge(run, "planner", run.job.parts, after=reports),))


def _play_dominant_agent(run: Run) -> None:
    workers, spawned = _open(run)
    chosen, *idle = workers
    last = run.blame = delegate(run, "planner", chosen, run.job.parts, after=spawned)
    for worker in idle:
        tell(run, worker, ("planner",), run.job.phrases.idle, after=(spawned,), message_type="status")
    reports = [last := finish(run, chosen, part, after=(last,), to="planner") for part in run.job.parts]
    stop(run, "planner", after=(merge(run, "planner", run.job.parts, after=reports),))


def _play_over_communication(run: Run) -> None:
    workers, spawned = _open(run)
    heard = {p.name: [delegate(run, "planner", w, [p], after=spawned)] for w, p in zip(workers, run.job.parts, strict=True)}
    for n in range(3):
        sent = {}
        for worker, part in zip(workers, run.job.parts, strict=True):
            others = [w for w in workers if w != worker]
            wording = pick(run.own("chatter", worker, n), run.job.phrases.chatter)
            text = wording.format(to=run.job.phrases.comma.join(others), part=part.name)
            sent[part.name] = tell(run, worker, others, text, after=heard[part.name], message_type="status")
            run.blame = run.blame or sent[part.name]
        heard = dict.fromkeys(heard, list(sent.values()))
    stop(run, "planner", after=(merge(run, "planner", run.job.parts, after=_side_by_side(run, workers, spawned, heard)),))


def _play_aggregation_leakage(run: Run) -> None:
    workers, spawned = _open(run)
    reports = _side_by_side(run, workers, spawned)
    kept = pick(run.own("kept"), range(len(reports)))
    content = next(fields["content"] for _, fields in run.events if fields["event_id"] == reports[kept])
    run.blame = merge(run, "planner", run.job.parts, after=reports, content=content, strategy="copy one summary")
    for part in run.job.parts:
        if part != run.job.parts[kept] and run.own("lost", part.name) < 0.5:
            run.sound[part.name] = False
    stop(run, "planner", after=(run.blame,))


def _play_pseudo_parallelism(run: Run) -> None:
    workers, run.blame = _open(run, split="same part")
    part, *others = run.job.parts
    text = run.job.phrases.same_part.format(part=part.name)
    reports = []
    for n, worker in enumerate(workers, 1):
        handed = delegate(run, "planner", worker, [part], after=run.blame, text=text)
        reports.append(finish(run, worker, part, after=(handed,), to="planner", subtask_id=f"{part.name}-{n}"))
    for other in others:  # the planner writes them in passing
        run.sound[other.name] = run.luck("part", other.name, 0) < 0.6
    stop(run, "planner", after=(merge(run, "planner", run.job.parts, after=reports, strategy="keep one"),))


def _play_verifier_echo(run: Run) -> None:
    verifier, phrases = run.job.domain.verifier, run.job.phrases
    workers, spawned = _open(run, verifier)
    reports = _side_by_side(run, workers, spawned)
    merged = merge(run, "planner", run.job.parts, after=reports)
    last = run.job.parts[-1].name
    text = run.say(verifier, run.said[last], {run.job.domain.verdict: run.quoted.get(f"{last}_ok", 0)})
    run.blame = tell(run, verifier, ("planner",), text, after=(merged, reports[-1]), message_type="verdict")
    stop(run, "planner", after=(run.blame,), condition="the verifier agrees", final_state="unchecked", text=phrases.stop_unchecked)


def _play_stopped_early(run: Run) -> None:
    workers, spawned = _open(run)
    begun = _take_up(run, workers, spawned)
    n_in = whole(run.own("reports in"), 1, len(workers) - 1)
    pairs = list(zip(workers, run.job.parts, strict=True))
    reports = [finish(run, worker, part, after=begun[part.name], to="planner") for worker, part in pairs[:n_in]]
    missing = run.job.phrases.comma.join([worker for worker, _ in pairs[n_in:]])
    text = run.job.phrases.stop_early.format(names=missing)
    run.blame = stop(run, "planner", after=reports, condition="good enough", final_state="partial", text=text)


def _play_false_success(run: Run) -> None:
    run.doomed = {pick(run.own("doomed"), run.job.parts).name}
    workers, spawned = _open(run)
    reports = _side_by_side(run, workers, spawned)
    merged = merge(run, "planner", run.job.parts, after=reports)
    text = run.job.phrases.stop_false
    run.blame = stop(run, "planner", after=(merged,), condition="all checks pass", final_state="solved", text=text)


def _play_retry_storm(run: Run) -> None:
    workers, spawned = _open(run)
    ready = {p.name: [delegate(run, "planner", w, [p], after=spawned)] for w, p in zip(workers, run.job.parts, strict=True)}
    part = pick(run.own("storm"), run.job.parts)
    worker = workers[run.job.parts.index(part)]
    tool, phrases = run.job.domain.tool, run.job.phrases
    (last,), wait_s = ready[part.name], 0
    for n in range(whole(run.own("retries"), 5, 7)):
        content = phrases.call.format(tool=tool, part=part.name, n=n + 1)
        last = run.add(worker, "act", action="tool_call", name=tool, content=content, after=(last,), wait_s=wait_s)
        wait_s = 2**n
        error = phrases.storm.format(wait=wait_s)
        last = run.add(worker, "act", action="tool_result", name=tool, content="", after=(last,), error=error)
        run.blame = run.blame or last
    if run.own("storm ends") < 0.8:
        run.doomed = {part.name}
        text = phrases.give_up.format(part=part.name)
        last = run.add(worker, "act", action="model_call", content=text, after=(last,))
    reports = _side_by_side(run, workers, spawned, ready | {part.name: [last]})
    stop(run, "planner", after=(merge(run, "planner", run.job.parts, after=reports),))


def _play_cyclic_delegation(run: Run) -> None:
    workers, spawned = _open(run)
    part, *others = run.job.parts
    circle = ["planner", workers[0], workers[1]]
    last = spawned
    for n in range(3 * whole(run.own("rounds"), 1, 2) + 1):
        to = circle[(n + 1) % 3]
        text = run.job.phrases.pass_on.format(to=to, part=part.name) if n else ""
        last = delegate(run, circle[n % 3], to, [part], after=last, text=text)
        if n == 2:
            run.blame = last
    given = {o.name: delegate(run, "planner", w, [o], after=spawned) for w, o in zip(workers[1:], others, strict=True)}
    reports = [finish(run, workers[0], part, after=(last,), to="planner")]
    reports += [finish(run, w, o, after=(given[o.name],), to="planner") for w, o in zip(workers[1:], others, strict=True)]
    stop(run, "planner", after=(merge(run, "planner", run.job.parts, after=reports),))


def _play_incoherent(run: Run) -> None:
    run.states = True
    domain, phrases = run.job.domain, run.job.phrases
    hire(run, "planner", "planner")
    workers = _workers(run)
    team = dict.fromkeys(workers, domain.worker) | {"integrator": "integrator", domain.verifier: domain.verifier}
    assignment = dict(zip(workers, [part.name for part in run.job.parts], strict=True))
    spawned = spawn(run, "planner", team, split="by part", assignment=assignment, after=plan(run, "planner", n_rivals=2))
    reports = _side_by_side(run, workers, spawned)
    # Sure of the parts together, sure of the checks, and yet doubtful of the whole, which is nothing but both.
    text = phrases.aggregate.format(names=phrases.comma.join([part.name for part in run.job.parts]))
    quotes = {domain.product: whole(run.own("product"), 84, 88)}
    merged = merge(run, "integrator", run.job.parts, after=reports, content=run.say("integrator", text, quotes, "pre-aggregation"))
    third = {name: quote + whole(run.own("rival"), 35, 50) for name, quote in list(rivals(run).items())[2:]}
    quotes = {domain.verdict: whole(run.own("verdict"), 88, 95), **third}
    partial = run.say(domain.verifier, phrases.partial_check, quotes)
    verdict = tell(run, domain.verifier, ("planner",), partial, after=(merged,), message_type="verdict")
    text = run.say("planner", phrases.stop_doubtful, {"solved": whole(run.own("solved"), 18, 35)}, "final")
    run.blame = stop(run, "planner", after=(verdict,), condition="time is up", final_state="unchecked", text=text)


TEAMS: dict[str, Team] = {
    team.name: team
    for team in (
        Team("single", _play_single, "One agent does everything: the baseline.", True, 0.95, True),
        Team("parallel", _play_parallel, "Workers side by side, then merged, checked and mended.", True, 1.0, True),
        Team("pipeline", _play_pipeline, "One stage after the other, with a check at the end.", True, 1.0, True),
        Team("hierarchical", _play_hierarchical, "Two leads with workers of their own.", True, 1.0, True),
        Team("serial-collapse", _play_serial_collapse, "Workers are spawned side by side but work one after the other."),
        Team("aggregation-leakage", _play_aggregation_leakage, "The result is a verbatim copy of one worker's summary."),
        Team("incoherent", _play_incoherent, "Each component is consistent alone; together they contradict each other.", skill=0.9),
        Team("verifier-echo", _play_verifier_echo, "The verifier repeats a worker's claim and checks nothing."),
        Team("stopped-early", _play_stopped_early, "The run ends before needed parts are in."),
        Team("false-success", _play_false_success, "Success is claimed although a part fails."),
        Team("pseudo-parallelism", _play_pseudo_parallelism, "All workers do the same part."),
        Team("over-communication", _play_over_communication, "Messages without content, from everybody to everybody.", skill=0.85),
        Team("dominant-agent", _play_dominant_agent, "One worker does everything, the others stand by.", skill=0.85),
        Team("retry-storm", _play_retry_storm, "A failing tool is called again and again, with growing waits."),
        Team("cyclic-delegation", _play_cyclic_delegation, "A part goes round in a circle before anybody does it.", skill=0.9),
    )
}
