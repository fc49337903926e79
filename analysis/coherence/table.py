"""Many small cliques at once: quotes as columns of a table in, residuals and energies out, no Python object per clique."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.coherence.cliques import Clique

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]


class QuoteTable(NamedTuple):
    """One row a quote, in any order: which clique, its template, the place of the quote there, who said it, the quote."""

    clique: Integers
    template: Integers
    slot: Integers
    component: Integers
    quote: Floats


class TableResiduals(NamedTuple):
    """For each clique the proven interval of ε* (NaN where a slot has no quote) and the energy by component (n, k)."""

    lower: Floats
    upper: Floats
    energy: Floats


def project_table(table: QuoteTable, templates: Sequence[Clique]) -> TableResiduals:
    """Return the residuals of all cliques; those of one template are projected in one batch.

    A template is a clique whose quotes name the propositions of its slots; cliques and components are numbered from 0.
    Quotes are joined by clique and slot, so the order of the rows never matters.
    """
    n, k = int(table.clique.max(initial=-1)) + 1, int(table.component.max(initial=-1)) + 1
    lower, upper = np.full(n, np.nan), np.full(n, np.nan)
    energy = np.zeros(n * k)
    template_of = np.full(n, -1)
    template_of[table.clique] = table.template
    place = np.zeros(n, np.intp)  # of a clique among those of its template
    row_template = template_of[table.clique]
    for number, template in enumerate(templates):
        members = np.flatnonzero(template_of == number)
        place[members] = np.arange(len(members))
        rows = np.flatnonzero(row_template == number)
        at = (place[table.clique[rows]], table.slot[rows])
        quotes = np.full((len(members), len(template.quotes)), np.nan)
        quotes[at] = table.quote[rows]
        whole = ~np.isnan(quotes).any(axis=1)
        if not whole.any():
            continue
        found = template.project(quotes[whole])
        lower[members[whole]], upper[members[whole]] = found.lower, found.upper
        squares = np.full(quotes.shape, np.nan)
        squares[whole] = found.pulls**2
        cell = table.clique[rows].astype(np.int64) * k + table.component[rows]
        energy += np.bincount(cell, squares[at], n * k)
    return TableResiduals(lower, upper, energy.reshape(n, k))
