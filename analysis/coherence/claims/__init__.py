"""Claims that no field states: numbers in texts, log-probabilities of verdicts, free questions, shares over trials.

`extract` reads one trace, `over_trials` the verdicts of repeated runs. Everything found is `derived` by a named rule, with
a score of how surely it is linked; what could not be linked is kept for review. Nothing is imputed, clipped or midpointed.
"""

from __future__ import annotations

from analysis.coherence.claims.linking import Texts
from analysis.coherence.claims.logprobs import verdicts_of
from analysis.coherence.claims.own import own_proposition
from analysis.coherence.claims.questions import asked, placeholders
from analysis.coherence.claims.records import Extracted, Extraction, Unlinked, is_placeholder
from analysis.coherence.claims.said import said
from analysis.coherence.claims.team import team_of
from analysis.coherence.claims.trials import Trial, over_trials
from analysis.model import Trace

__all__ = ["Extracted", "Extraction", "Trial", "Unlinked", "extract", "is_placeholder", "over_trials", "own_proposition"]


def extract(trace: Trace) -> Extraction:
    """Return the claims that can be read out of `trace` beside those it states, and what was stated but not linked.

    >>> from analysis.model import Agent, Event
    >>> done = Event(event_id="e", kind="stop", agent_id="a", content="The fix is in. I am 90% confident.", condition="done")
    >>> run = Trace(trace_id="t:1", world="recorded", agents=(Agent(agent_id="a", component="coder"),), events=(done,))
    >>> [(x.claim.component, x.claim.proposition, x.claim.p, x.claim.level) for x in extract(run).claims]
    [('coder', 'solved', 0.9, 'final')]
    """
    team = team_of(trace)
    texts = Texts(team.targets or team.questions)
    found = [asked(trace, team, texts), said(trace, team, texts), verdicts_of(trace, team, texts)]
    claims = [claim for part, _ in found for claim in part]
    replaced = {claim.replaces for claim in claims}
    claims += [claim for claim in placeholders(trace) if claim.replaces not in replaced]
    return Extraction(tuple(claims), tuple(row for _, rows in found for row in rows))
