"""Which task comes at which place: subject, parts, what builds on what, how hard. Drawn once per task."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from analysis.model import Task
from analysis.streams import pick, uniform

from .phrases import CHINESE, ENGLISH, Phrases
from .subjects import DOMAINS, Domain, Part, Subject


class Job(NamedTuple):
    """A task as the simulation knows it. `needs` names for each part the earlier one it builds on, if any."""

    task: Task
    task_id: str
    domain: Domain
    subject: Subject
    parts: tuple[Part, ...]
    needs: dict[str, str]
    difficulty: float  # 0 to 1; half from the structure, half the part's own
    phrases: Phrases

    @property
    def n_checks(self) -> int:
        """How many tests decide about the whole: two for each part, one for the parts together."""
        return 2 * len(self.parts) + 1


def draw_job(seed: int, index: int) -> Job:
    """Return the task at place `index` (0, 1, ...) of the sequence that belongs to `seed`.

    >>> job = draw_job(7, 0)
    >>> job.task_id, job.subject.title, len(job.parts), draw_job(7, 0) == job
    ('software-1', 'Bank import', 3, True)
    """
    draw = partial(uniform, seed, "task", index)
    domain = DOMAINS[index % len(DOMAINS)]
    turn = index // len(DOMAINS)
    subject = domain.subjects[turn % len(domain.subjects)]
    chosen = sorted(subject.parts, key=lambda part: draw("part", part.name))[: pick(draw("n_parts"), (3, 3, 3, 4, 4, 5))]
    parts = tuple(part for part in subject.parts if part in chosen)
    needs = {
        part.name: pick(draw("needs what", part.name), parts[:k]).name
        for k, part in enumerate(parts)
        if k and draw("needs", part.name) < draw("coupling")
    }
    depth = max(_depth(part.name, needs) for part in parts)
    structure = (depth / (depth + 2) + len(parts) / (len(parts) + 4) + len(needs) / (len(needs) + 4)) / 3
    difficulty = round((structure + draw("own difficulty")) / 2, 2)
    task_id = f"{domain.name}-{turn + 1}"
    phrases = CHINESE if domain.name == "support" else ENGLISH
    task = Task(
        task_id=task_id,
        text=subject.text + phrases.space + domain.settings[turn % len(domain.settings)],
        domain=domain.name,
        requirements=tuple(part.name for part in parts),
        extra={"difficulty": difficulty, "depth": depth, "branching": len(parts), "cross_dependencies": len(needs)},
    )
    return Job(task, task_id, domain, subject, parts, needs, difficulty, phrases)


def _depth(name: str, needs: dict[str, str]) -> int:
    return 1 + _depth(needs[name], needs) if name in needs else 0
