"""Compositional coherence: how far a team's claims are from any coherent ones, with proof, and who that comes from.

`residuals` takes the claims and relations of a trace; `measure`, `attribute` and `report` one set of quotes;
`project_table` hundreds of thousands of small cliques. It hides how the nearest coherent point is found.
"""

from analysis.coherence.attribution import attribute
from analysis.coherence.cliques import Quote
from analysis.coherence.levels import residuals
from analysis.coherence.relations import parse
from analysis.coherence.report import report
from analysis.coherence.residual import Measured, measure
from analysis.coherence.table import project_table

__all__ = ["Measured", "Quote", "attribute", "measure", "parse", "project_table", "report", "residuals"]
