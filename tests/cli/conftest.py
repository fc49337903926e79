"""The command line run in this process: what tests of commands start from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from analysis.cli import main


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process, in an empty folder, on a workspace of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_WORKSPACE", str(tmp_path / "store"))

    def command(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["counterpoint", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int | None)
        return Ran(code or 0, *capsys.readouterr())

    return command
