"""The README, the changelog and the help texts say what is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import typer.main

from analysis import model
from analysis.cli import app
from analysis.readers import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_every_command_is_in_the_readme_and_has_a_help_text() -> None:
    for name, command in COMMANDS.items():
        assert f"counterpoint {name}" in README
        assert (command.help or "").strip()


def test_every_command_of_the_readme_exists() -> None:
    assert set(re.findall(r"^counterpoint (\w+)", README, re.MULTILINE)) <= set(COMMANDS)


def test_every_format_is_in_the_readme() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE)) == set(FAMILIES)


def test_the_example_of_the_native_format_is_a_trace() -> None:
    example = re.search(r"```json\n(.*?)```", README, re.DOTALL)
    assert example is not None
    trace = model.decode(example[1].encode())
    assert [event.kind for event in trace.events] == ["spawn", "act", "stop"]
    assert model.decode(model.encode(trace)) == trace


def test_only_trace_id_and_world_are_required() -> None:
    required = [field.encode_name for field in msgspec.structs.fields(model.Trace) if field.required]
    assert required == ["trace_id", "world"]


def test_every_part_of_the_house_is_in_the_readme() -> None:
    tree = README[README.index("## Where things are") :]
    parts = [p.name for p in (ROOT / "analysis").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()]
    for part in sorted(set(parts) - {"__init__.py"}):
        assert part in tree, part


def test_help_names_no_traceback_and_the_version_is_printed() -> None:
    result = subprocess.run([sys.executable, "-m", "analysis.cli", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0.1.0"
    assert "## 0.1.0" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_link_to_a_file_of_the_project_points_to_one() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
