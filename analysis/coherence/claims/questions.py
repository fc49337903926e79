"""Input claims whose proposition is a free question, linked to the proposition that the question asks about.

The quote stays what it was: who gave it, when, from how many samples. What is not one question about one proposition is
left for review, with the nearest one. Samples that are all the same placeholder are marked here, where a reader kept them.
"""

from __future__ import annotations

import msgspec

from analysis.coherence.claims.linking import Texts
from analysis.coherence.claims.records import Extracted, Unlinked, is_placeholder
from analysis.coherence.claims.team import Team
from analysis.coherence.claims.verbalised import MAX_TEXT
from analysis.model import Claim, Trace

ASKED, SAMPLES = "asked-in-words", "samples-all-alike"
_MAX_ID = 512


def asked(trace: Trace, team: Team, texts: Texts) -> tuple[list[Extracted], list[Unlinked]]:
    """Return the claims on questions that could be linked, and those that could not."""
    links = {name: texts.meant(text) for name, text in team.questions.items()} if team.targets else {}
    claims, unlinked = list[Extracted](), list[Unlinked]()
    for n, claim in enumerate(trace.claims):
        if (link := links.get(claim.proposition)) is None:
            continue
        text = team.questions[claim.proposition][:MAX_TEXT]
        if link.reason is None and link.proposition is not None:
            derived = _derived(claim, n, proposition=link.proposition, rule=ASKED)
            claims.append(Extracted(claim=derived, score=link.score, text=text, replaces=claim.claim_id))
            continue
        row = Unlinked(
            event_id=claim.event_id,
            component=claim.component,
            text=text,
            p=claim.p,
            reason=link.reason or "no proposition",
            nearest=link.proposition,
            score=link.score,
        )
        unlinked.append(row)
    return claims, unlinked


def placeholders(trace: Trace) -> list[Extracted]:
    """Return, marked as placeholders, the input claims whose samples (a list of numbers in their event) are all 0.5."""
    contents = {event.event_id: event.content for event in trace.events if (event.content or "").startswith("[")}
    found = []
    for n, claim in enumerate(trace.claims):
        text = contents.get(claim.event_id or "")
        samples = _samples(text) if text and not claim.is_placeholder else []
        if samples and len(samples) == claim.n_samples and is_placeholder(samples):
            derived = _derived(claim, n, is_placeholder=True, rule=SAMPLES)
            found.append(Extracted(claim=derived, score=1.0, text=(text or "")[:MAX_TEXT], replaces=claim.claim_id))
    return found


def _derived(claim: Claim, n: int, **changes: object) -> Claim:
    claim_id = f"x:{claim.claim_id}" if len(claim.claim_id) < _MAX_ID - 2 else f"x:claims[{n}]"
    return msgspec.structs.replace(claim, claim_id=claim_id, basis="derived", **changes)


def _samples(text: str) -> list[float]:
    try:
        return msgspec.json.decode(text, type=list[float])
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return []
