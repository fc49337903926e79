"""Run programs of strangers in a sandbox, and judge them from outside it."""

from analysis.counterfactual.sandbox.launcher import Layers, Limits, Sandbox, layers, open_sandbox
from analysis.counterfactual.sandbox.verdict import Case, Job, Verdict, assert_suite, judge, judge_many, tier_of

__all__ = [
    "Case", "Job", "Layers", "Limits", "Sandbox", "Verdict", "assert_suite", "judge", "judge_many", "layers", "open_sandbox",
    "tier_of",
]  # fmt: skip
