"""Training for real: steps of TRL on a small model made here, from views, through the plan that a person would start."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import TrainingError, UnknownNameError
from analysis.training import environment
from analysis.training.formats import views
from analysis.training.plan import prepare, read_plan, trainable
from analysis.training.running import cancel, run, status
from tests.training.rows import CHAT, pair, plain, row

CPU: dict[str, Any] = {
    "max_steps": 2, "per_device_train_batch_size": 2, "logging_steps": 1, "save_strategy": "no", "report_to": "none",
    "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "learning_rate": 1e-3, "seed": 7,
}  # fmt: skip
SCRIPTS = Path(__file__).parent / "in_trainer"


def exported(folder: Path, name: str, *, tokenizer: str | None = None) -> Path:
    """Write a view of eight rows, two of each task, or of pairs."""
    view = views(tokenizer=tokenizer)[name]
    if view.takes == "pairs":
        given: list[Any] = [pair(pair_id=f"p{n}") for n in range(8)]
    elif name == "trl-grpo":
        given = [row(row_id=f"r{n}", reward=float(n % 2), messages=_chat(n)) for n in range(8)]
    else:
        given = [row(row_id="r0"), *[plain(n) for n in range(1, 8)]]
    assert [problem for one in given for problem in view.check(one)] == []
    view.write(iter(given), folder / "views" / name)
    return folder


def _chat(n: int) -> list[dict[str, Any]]:
    return [CHAT[0], {"role": "user", "content": f"Task {n // 2}."}, *CHAT[2:4], {"role": "assistant", "content": f"Joined {n}."}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    interpreter = environment.python()
    if interpreter is None:
        pytest.skip("the training environment is not installed: `make test-train` installs it")
    folder = tmp_path_factory.mktemp("model")
    code = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import tiny, pathlib; tiny.save(pathlib.Path({str(folder)!r}))"
    subprocess.run([str(interpreter), "-c", code], check=True, capture_output=True)
    return str(folder)


@pytest.mark.parametrize("name", ["trl-sft", "trl-dpo", "trl-grpo", "trl-tokenized"])
def test_a_view_trains_in_two_real_steps(name: str, model: str, tmp_path: Path) -> None:
    export = exported(tmp_path / "export", name, tokenizer=model)
    sizes: dict[str, Any] = {"num_generations": 2, "max_completion_length": 256} if name == "trl-grpo" else {}
    prepare(export, name, tmp_path / "run", model=model, arguments=CPU | sizes)
    seen: list[int] = []
    found = run(tmp_path / "run", progress=lambda n, values: seen.append(n))
    assert found.state == "done", (tmp_path / "run" / "log.txt").read_text()[-2000:]
    losses = [entry["loss"] for entry in found.metrics if "loss" in entry]
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))
    assert any((tmp_path / "run" / "out").glob("*.safetensors"))
    assert seen == list(range(1, found.n_logged + 1))
    if name == "trl-grpo":
        assert [entry["orch/weight"] for entry in found.metrics if "orch/weight" in entry] == [0.3, 0.15]


def test_a_run_is_followed_stopped_and_gone_on_with(model: str, tmp_path: Path) -> None:
    export = exported(tmp_path / "export", "trl-sft")
    place = tmp_path / "run"
    prepare(
        export, "trl-sft", place, model=model, arguments=CPU | {"max_steps": 100_000, "save_strategy": "steps", "save_steps": 5}
    )
    trainer = threading.Thread(target=run, args=(place,))
    trainer.start()
    until(lambda: any((place / "out").glob("checkpoint-*")) or status(place).state == "failed")
    assert status(place).state == "running"
    assert status(place).n_logged > 0
    with pytest.raises(TrainingError, match="another process trains there"):
        run(place)
    assert cancel(place)
    trainer.join(60)
    assert status(place).state == "cancelled"
    assert not cancel(place)
    before = status(place).n_logged
    again = threading.Thread(target=run, args=(place,), kwargs={"resume": True})
    again.start()
    until(lambda: status(place).n_logged > before or status(place).state == "failed")
    assert status(place).metrics[-1]["epoch"] > status(place).metrics[0]["epoch"]
    cancel(place)
    again.join(60)


def until(is_so: Any, seconds: float = 180.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.2)


def test_a_plan_is_whole_and_names_no_place_outside_its_folder(tmp_path: Path) -> None:
    export = exported(tmp_path / "export", "trl-grpo")
    plan = prepare(export, "trl-grpo", tmp_path / "run", model="org/model", arguments={"max_steps": 3}, orch_weight=0.5)
    assert plan.command == ("python", "-m", "objective.trl_grpo", "config.json")
    assert plan == read_plan(tmp_path / "run")
    texts = [p.read_text() for p in (tmp_path / "run").rglob("*") if p.suffix in (".json", ".sh", ".yaml", ".py")]
    assert not any(str(tmp_path) in text for text in texts)
    assert {"slurm.sh", "ray.sh", "kubernetes.yaml", "objective", "trajectories"} <= {
        p.name for p in (tmp_path / "run").iterdir()
    }
    assert "python -m objective.trl_grpo config.json" in (tmp_path / "run/slurm.sh").read_text()
    assert plan.environment == tuple(environment.requirements())


def test_equal_inputs_give_an_equal_plan_and_others_another_one(tmp_path: Path) -> None:
    export = exported(tmp_path / "export", "trl-sft")
    a = prepare(export, "trl-sft", tmp_path / "a", model="m")
    assert prepare(export, "trl-sft", tmp_path / "b", model="m") == a
    assert prepare(export, "trl-sft", tmp_path / "a", model="m") == a
    with pytest.raises(TrainingError, match="the folder holds another run - take an empty one, or resume that run"):
        prepare(export, "trl-sft", tmp_path / "a", model="other")


@pytest.mark.parametrize("name", ["axolotl", "llama-factory", "ms-swift", "openrlhf", "trl-sft"])
def test_the_command_names_the_model(name: str, tmp_path: Path) -> None:
    view = views()[name]
    view.write(iter([plain(1)]), tmp_path / "views" / name)
    command = prepare(tmp_path, name, tmp_path / "run", model="org/model").command
    assert command[command.index("org/model") - 1].startswith("--")


def test_what_cannot_be_trained_says_why(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="target: no command trains this view"):
        prepare(tmp_path, "csv", tmp_path / "run", model="m")
    with pytest.raises(TrainingError, match="no rows to train on - export it with `counterpoint export --format trl-dpo`"):
        prepare(tmp_path, "trl-dpo", tmp_path / "run", model="m")
    with pytest.raises(TrainingError, match="no run there - make one with `counterpoint train --export DIR`"):
        run(tmp_path)
    assert set(trainable()) <= set(views())


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("./nowhere", "model: there is no such folder (got ./nowhere) - correct the path"),
        ("../nowhere", "model: there is no such folder (got ../nowhere)"),
        ("~/nowhere", "model: there is no such folder (got ~/nowhere) - correct the path"),
        ("a/b/c", "model: neither a folder nor a name at a hub (got a/b/c, expected a folder, or owner/name or name of letters"),
        *[(name, "model: neither a folder nor a name at a hub") for name in (
            "my model", "-a", "a.", "a--b", "a..b", "a/b.git", "", "Modèle", "x" * 97, "https://huggingface.co/a/b")],
    ],
)  # fmt: skip
def test_a_model_that_can_be_nowhere_is_refused_without_asking_a_hub(model: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as error:
        prepare(exported(tmp_path / "export", "trl-sft"), "trl-sft", tmp_path / "run", model=model)
    assert str(error.value).startswith(line)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["m", "org/model", "Qwen/Qwen2.5-0.5B_Instruct", "x" * 96, "/models/of/another/machine"])
def test_a_name_that_a_hub_or_another_machine_could_have_is_planned_with(model: str, tmp_path: Path) -> None:
    assert prepare(exported(tmp_path / "export", "trl-sft"), "trl-sft", tmp_path / "run", model=model).model == model


def test_a_folder_is_named_so_that_a_run_elsewhere_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = prepare(exported(tmp_path / "export", "trl-sft"), "trl-sft", tmp_path / "run", model="./model")
    assert plan.model == str((tmp_path / "model").resolve())


def test_a_trainer_of_another_environment_is_not_started_here(tmp_path: Path) -> None:
    prepare(exported(tmp_path / "export", "axolotl"), "axolotl", tmp_path / "run", model="m")
    with pytest.raises(TrainingError, match="axolotl: the trainer is not installed here"):
        run(tmp_path / "run")


def test_the_command_plans_says_how_far_and_tells_what_is_missing(tmp_path: Path) -> None:
    export = exported(tmp_path / "export", "trl-sft")

    def counterpoint(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "analysis.cli", "train", str(tmp_path / "run"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    missing = counterpoint("--export", str(export))
    assert missing.returncode == 2
    assert "a plan needs a model" in missing.stderr
    planned = counterpoint("--export", str(export), "--model", "m", "--argument", "max_steps=3", "--plan-only", "--json")
    assert (planned.returncode, planned.stdout.strip().splitlines()[1].strip()) == (0, '"state": "planned",')
    assert read_plan(tmp_path / "run").arguments == {"max_steps": 3}
