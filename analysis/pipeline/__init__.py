"""The stages over a workspace: import what came in, analyse what is there."""

from __future__ import annotations

from analysis.pipeline.analysing import StageReport, analyse
from analysis.pipeline.claim_files import import_claims
from analysis.pipeline.importing import import_paths
from analysis.pipeline.load_report import FileReport, ImportReport

__all__ = ["FileReport", "ImportReport", "StageReport", "analyse", "import_claims", "import_paths"]
