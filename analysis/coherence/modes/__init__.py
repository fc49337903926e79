"""Failure modes: profiles of what went wrong, groups of alike ones, their names, what people make of them, a library.

Start with `residual_profiles` or `orchestration_profiles`, then `find_modes`; `breakdown` says where a mode occurs.
"""

from analysis.coherence.modes.clustering import Mode, Modes, find_modes
from analysis.coherence.modes.decisions import apply_decisions, carry_over
from analysis.coherence.modes.naming import breakdown
from analysis.coherence.modes.profiles import orchestration_profiles, residual_profiles

__all__ = [
    "Mode", "Modes", "apply_decisions", "breakdown", "carry_over", "find_modes", "orchestration_profiles", "residual_profiles",
]  # fmt: skip
