"""The benchmarks of SmolLM2 on a small model with its kind of tokenizer; seconds mean nothing here."""

import io
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from _rlenv_benchmarks import generate_smollm2, measure, smollm2, trl_smollm2, worlds
from _rlenv_benchmarks.measure import Side
from chat_families import chatml
from transformers import LlamaConfig, LlamaForCausalLM

SMALL = {
    "trl-smollm2": smollm2.Job("small", smollm2.sums, smollm2.right_number, 2, 4, 3, updates=4, steps=2),
    "trl-smollm2-story": smollm2.Job("small", smollm2.stories, smollm2.short_words, 2, 4, 8, updates=4, steps=2),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a model of random weights that reads conversations."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), chatml()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=256, tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def small(place, monkeypatch):
    for module in (smollm2, trl_smollm2, generate_smollm2):
        monkeypatch.setattr(module, "model_place", lambda: str(place))
        monkeypatch.setattr(module, "JOBS", SMALL)


def test_sums_and_stories_are_distinct_and_differ_by_seed():
    for job in smollm2.JOBS.values():
        count = job.groups * job.updates
        first, again, other = (job.problems(count, seed) for seed in (0, 0, 1))
        assert first == again != other and len({each.text for each in first}) == count
    assert smollm2.sums(1, 0)[0].answer.isdigit()


def test_the_last_number_counts_and_short_words_are_counted_by_letters():
    said = lambda *texts: [[{"role": "assistant", "content": text}] for text in texts]  # noqa: E731
    assert smollm2.right_number(said("12", "It is 7 + 5 = 12.", "12 or 13", "", "x"), ["12"] * 5) == [1, 1, 0, 0, 0]
    assert smollm2.short_words(said("a dog runs", "elephants", "", "tiny elephants")) == [1, 0, 0, 4 / 13]


class FakeSide:
    """Answers as a process would: ours takes 1, 2, ... seconds, the peer three times as many."""

    started: list = []

    def __init__(self, module, side, *arguments):
        name, _, updates, _ = arguments
        self.side, self.turns, self.planned = side, 0, int(updates) // SMALL[name].steps
        self.started.append((side, *arguments[:3]))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def turn(self):
        self.turns += 1
        factor = 1 if self.side == "ours" else 3
        if self.turns <= self.planned:
            return {"seconds": factor * self.turns, "floor": self.turns / 2, "peak": factor}
        made = {"rewards": [0.0, *[0.5] * 3], "lengths": [4.0] * 4, "peak": 1.5 * factor}
        return made | ({"trained": [0.0, 1.0, 1.0, 1.0], "gap": 1e-6} if self.side == "ours" else {})


def test_a_pair_gives_time_reward_memory_and_floor(small, monkeypatch, tmp_path):
    monkeypatch.setattr(trl_smollm2, "Side", FakeSide)
    monkeypatch.setattr(trl_smollm2, "require_trl", lambda: None)
    [row] = trl_smollm2.run("trl-smollm2", 2, tmp_path)
    assert (row.ours, row.peer, row.pairs, row.ratio["median"]) == (2, 6, 2, 3), "the first turn is not timed"
    for words in ("reward 0.00", "TRL 0.38 (0.38 to 0.38) after 4 updates", "ours 1.5, TRL 4.5 GB", "100% of the"):
        assert words in row.quality
    assert row.details["floor"] == 1.0 and "floor / ours 0.50" in row.quality


def test_seeds_that_were_measured_are_kept(small, monkeypatch, tmp_path):
    monkeypatch.setattr(trl_smollm2, "Side", FakeSide)
    monkeypatch.setattr(trl_smollm2, "require_trl", lambda: None)
    monkeypatch.setattr(FakeSide, "started", [])
    trl_smollm2.run("trl-smollm2", 1, tmp_path)
    [row] = trl_smollm2.run("trl-smollm2", 3, tmp_path, resume=True)
    assert [seed for side, _, seed, _ in FakeSide.started if side == "trl"] == ["0", "1", "2"] and row.pairs == 3
    trl_smollm2.run("trl-smollm2", 1, tmp_path, updates=8, resume=True)
    assert FakeSide.started[-1] == ("trl", "trl-smollm2", "0", "8"), "those of fewer updates are no measure of more"
    trl_smollm2.run("trl-smollm2", 1, tmp_path)
    assert len((tmp_path / "trl-smollm2.jsonl").read_text().splitlines()) == 1, "without it, everything is new"


@pytest.mark.parametrize("updates", [2, 5])
def test_updates_that_make_no_turns_are_refused(updates, small, monkeypatch, tmp_path):
    monkeypatch.setattr(trl_smollm2, "require_trl", lambda: None)
    with pytest.raises(ValueError, match=f"updates={updates} is not a multiple of 2, from 4 on"):
        trl_smollm2.run("trl-smollm2", 1, tmp_path, updates=updates)


def turns_of(monkeypatch, count):
    """Let a process be asked for so many turns; return what it answers to."""
    answers = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n" * count))
    monkeypatch.setattr(sys, "stdout", answers)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    return answers


def test_our_side_answers_each_turn_and_then_what_it_learned(small, monkeypatch):
    answers = turns_of(monkeypatch, 3)
    monkeypatch.setattr(trl_smollm2, "product_speed", lambda model: 1e9)
    trl_smollm2._our_side(SMALL["trl-smollm2-story"], 0, 4)
    ready, *turns, end = map(json.loads, answers.getvalue().splitlines())
    assert ready == {} and all(turn["seconds"] > 0 and turn["floor"] > 0 and turn["peak"] > 0 for turn in turns)
    assert len(turns) == 2 and {len(end[name]) for name in ("rewards", "lengths", "trained")} == {4}
    assert end["gap"] < 1e-5


def test_their_side_gets_our_prompts_and_waits_for_its_turns(small, monkeypatch):
    answers, given = turns_of(monkeypatch, 3), {}

    def trainer(kind, model, task, batch, reward, callback, place, **settings):
        given.update(task=task, batch=batch, settings=settings)
        control = SimpleNamespace()

        def train():
            callback.on_train_begin(None, None, control)
            for step in range(1, 5):
                callback.on_step_end(None, SimpleNamespace(global_step=step), control)
                callback.on_log(None, None, control, {"reward": step / 4, "completions/mean_length": 2.0})
            assert control.should_training_stop

        return SimpleNamespace(train=train)

    monkeypatch.setattr(trl_smollm2, "peer_trainer", trainer)
    trl_smollm2._their_side(SMALL["trl-smollm2"], 3, 4)
    ready, first, second, end = map(json.loads, answers.getvalue().splitlines())
    assert ready == {} and min(first["seconds"], second["seconds"]) > 0
    assert end["rewards"] == [0.25, 0.5, 0.75, 1.0] and end["lengths"] == [2.0] * 4 and end["peak"] > 0
    assert given["batch"] == 8 and given["task"].group_size == 4
    assert given["settings"]["seed"] == 3 and given["settings"]["learning_rate"] == smollm2.RATE


def test_a_side_is_asked_in_turn_and_says_why_it_failed(tmp_path, monkeypatch):
    lines = ["import sys, json", "print('{}', flush=True)", "for i, _ in enumerate(sys.stdin):"]
    lines += ["    if i == 2: sys.exit('no more')", "    print(json.dumps({'turn': i}), flush=True)"]
    (tmp_path / "one_side.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="one_side a failed with status 1: no more"), Side("one_side", "a") as side:
        assert [side.turn(), side.turn()] == [{"turn": 0}, {"turn": 1}]
        side.turn()
    assert side.process.poll() is not None
    assert measure.peak_memory() > 0.05


def test_generate_is_timed_with_and_without_an_adapter(small, monkeypatch):
    monkeypatch.setattr(generate_smollm2, "acting_floor", lambda *sizes: 1.0)
    plain, adapted = generate_smollm2._compare("float32", 3, 1)
    assert plain.name == "float32, batch 3" and adapted.name == "float32, batch 3, adapter of rank 16"
    assert plain.unit == "tokens/s" and "ours without it" in adapted.quality
    for row in (plain, adapted):
        assert float(row.quality.split("at most ")[1].split(";")[0]) < 1e-4


def test_a_head_that_never_ends_keeps_the_other_logits(place):
    model = LlamaForCausalLM.from_pretrained(place)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        before, after = model(ids).logits, worlds.never_ends(model, [2, 4])(ids).logits
    others = [token for token in range(before.shape[-1]) if token not in (2, 4)]
    torch.testing.assert_close(after[..., others], before[..., others])
    assert (after[..., [2, 4]] < -9e3).all()
