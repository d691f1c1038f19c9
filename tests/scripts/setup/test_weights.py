"""A large model is announced before it is loaded; small ones and presets are not."""

import pytest
from _rlenv_scripts.main import main
from _rlenv_scripts.setup import weights
from click.testing import CliRunner
from tiny_models import ALPHABET, tiny_model

from rlenv.text.tokenizer import character_tokenizer


@pytest.fixture
def folder(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path / "model", max_shard_size="8KB")
    character_tokenizer(ALPHABET).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_parameters_of_a_folder_are_counted_over_all_its_files(folder):
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert weights.count_parameters(folder) == sum(weight.numel() for weight in tiny_model("llama").parameters())
    next(folder.glob("*.safetensors")).write_bytes(b"damaged")
    assert weights.count_parameters(folder) == 0


@pytest.mark.parametrize(("large", "lines"), [(None, 0), (1000, 1)])
def test_one_line_on_stderr_before_a_large_folder_is_loaded(large, lines, folder, tmp_path, monkeypatch):
    if large is not None:
        monkeypatch.setattr(weights, "LARGE", large)
    problems = tmp_path / "problems.jsonl"
    problems.write_text("".join(f'{{"prompt": "{text}", "answer": "a"}}\n' for text in ("ab", "cd", "ef", "gh")))
    task = ["--verifier", "exact", "--problems", str(problems), "--sft-steps", "0", "--max-new-tokens", "4"]
    size = ["--episodes", "8", "--episodes-per-update", "8", "--eval-episodes", "4", "--device", "cpu"]
    run = ["train", "--model", str(folder), *task, *size, "--log-dir", str(tmp_path / "run"), "--json"]
    outcome = CliRunner().invoke(main, run)
    assert outcome.exit_code == 0, outcome.output
    said = [line for line in outcome.stderr.splitlines() if line.startswith("loading ")]
    assert len(said) == lines, outcome.stderr
    if lines:
        assert said[0].endswith("0 M parameters, 0.0 GiB of files")


@pytest.mark.parametrize(("model", "said"), [("tiny", ""), ("somebody/model", "loading somebody/model; the first ")])
def test_presets_are_not_announced_and_ids_are(model, said, capsys):
    weights.announce(model)
    line = capsys.readouterr().err
    assert line.startswith(said) if said else line == ""
