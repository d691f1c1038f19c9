"""Reward models: with a LoRA adapter, what is trained, written and read again; from preferences, what is learned."""

import json
from functools import partial

import torch
from refused import refusal
from tiny_models import ALPHABET, tiny_model, write_model

from rlenv.agents.language.reward_head import make_reward_model, save_reward_model
from rlenv.agents.training import reward_model
from rlenv.agents.training.reward_model import Preferences, rewards_of
from rlenv.tokenizer import character_tokenizer
from rlenv.verifiers import RewardModel

TOKENIZER = character_tokenizer(ALPHABET)
VOCAB, PAD = len(TOKENIZER), TOKENIZER.pad_token_id
TEXTS = ["abc", "h", "gfedcba", "aabb"]
ROWS = TOKENIZER(TEXTS)["input_ids"]


def preferences(count, seed=0):
    """Return pairs of texts, of which the chosen one ends in g and the other in h."""
    generator = torch.Generator().manual_seed(seed)
    starts = [torch.randint(2, 8, (2 + n % 4,), generator=generator).tolist() for n in range(count)]
    return Preferences([[*start, 8] for start in starts], [[*start, 9] for start in starts], PAD)


def fit(model, pairs, steps=40, rate=3e-3, **settings):
    return reward_model.train_reward_model(model, pairs, steps, 16, rate, torch.Generator().manual_seed(0), **settings)


@torch.no_grad()
def rates_of_texts(model):
    return rewards_of(model, ROWS, PAD).tolist()


def test_only_adapter_and_head_are_trained_and_learn_a_preference(tmp_path):
    base = write_model(tmp_path)
    model, plain = (make_reward_model(base, VOCAB, 16, PAD, lora_rank=rank) for rank in (4, None))
    assert rates_of_texts(model) == rates_of_texts(plain), "B starts at 0"
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    fit(model, preferences(64), 15, 2e-2)
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if ".lora_" in name} | {"score.weight"}
    assert reward_model.preference_figures(model, preferences(64, seed=1))["accuracy"] == 1.0


def test_an_adapter_that_is_damaged_or_has_lost_its_base_is_one_line(tmp_path):
    base, folder = write_model(tmp_path / "base"), tmp_path / "judge"
    save_reward_model(make_reward_model(base, VOCAB, 16, PAD, lora_rank=4), folder)
    TOKENIZER.save_pretrained(folder)
    rated, trained = (lambda: RewardModel(folder, device="cpu"), lambda: make_reward_model(folder, VOCAB, 16, PAD))
    weights, settings = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    whole, said = weights.read_bytes(), json.loads(settings.read_text())
    weights.write_bytes(b"\x00" * 100)
    refusal(rated, f"'{folder}' cannot be loaded")
    refusal(trained, f"the adapter in '{weights}' cannot be read")
    weights.write_bytes(whole)
    base.rename(tmp_path / "moved")
    refusal(rated, f"its base model '{base}' is gone; put it back, or a link to it")
    refusal(trained, f"the base model '{base}' of the adapter in '{folder}' is gone")
    (tmp_path / "moved").rename(base)
    for read, key, value, message in (
        (rated, "modules_to_save", None, f"neither it nor its base model '{base}' has score.weight"),
        (rated, "base_model_name_or_path", None, "adapter_config.json names no base model"),
        (trained, "task_type", "CAUSAL_LM", "the adapter of a language model; merge it before: rlenv export"),
    ):
        settings.write_text(json.dumps({**said, key: value}))
        refusal(read, message)


# From preferences: the loss, the rewards, what is learned, and where the trunk comes from.


def test_a_reward_depends_neither_on_padding_nor_on_the_other_rows():
    model = make_reward_model("tiny", 10, 16, PAD).double()
    texts = preferences(5).chosen
    alone = torch.cat([rewards_of(model, [text], PAD) for text in texts])
    assert torch.allclose(rewards_of(model, texts, PAD), alone, atol=1e-6)
    assert len(set(alone.tolist())) == 5


def test_every_pair_is_seen_once_before_any_again_and_a_callback_ends_it():
    seen, pairs = [], preferences(20)

    class Spy(Preferences):
        def select(self, rows):
            seen.append(sorted(rows.tolist()))
            return super().select(rows)

    spy, model = Spy(pairs.chosen, pairs.rejected, PAD), make_reward_model("tiny", 10, 16, PAD)
    fit(model, spy, 4)
    assert [len(batch) for batch in seen] == [16, 4, 16, 4]
    assert sorted(seen[0] + seen[1]) == sorted(seen[2] + seen[3]) == list(range(20))
    assert len(fit(model, spy, on_step=lambda step, loss: step < 1)) == 2


def test_the_trunk_is_that_of_the_language_model(tmp_path):
    language = tiny_model("llama")
    language.save_pretrained(tmp_path / "model")
    made = make_reward_model(tmp_path / "model", language.config.vocab_size, 16, PAD)
    for name, weight in language.model.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], weight), name
    assert made.config.num_labels == 1
    make = partial(make_reward_model, tmp_path / "model", max_length=16, pad=PAD)
    refusal(partial(make, 999), "the tokenizer's vocabulary (999) does not fit the model's")
    refusal(partial(make_reward_model, "nowhere", 10, 16, PAD), "model 'nowhere' cannot be made a reward model: ")
    made.config.quantization_config = {"quant_method": "fp8"}
    made.config.save_pretrained(tmp_path / "model")
    refusal(partial(make, 10), "cannot be made a reward model: ", " are quantized (fp8)")
