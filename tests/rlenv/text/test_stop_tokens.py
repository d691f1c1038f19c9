import json

import pytest
from chat_families import FAMILIES
from textgen_reference import OddVerifier, demonstration

from rlenv.envs.demonstrations import demonstrate
from rlenv.envs.task import TextGenTask
from rlenv.envs.textgen import TextGenEnv
from rlenv.text.tokenizer import character_tokenizer
from verifiers import Problem

USER = [{"role": "user", "content": "1+1="}]
ENDS = {  # the tokenizer's end, and the end of a turn
    "chatml": ("<|endoftext|>", "<|im_end|>"),
    "qwen3": ("<|im_end|>", "<|im_end|>"),
    "llama3": ("<|eot_id|>", "<|eot_id|>"),
    "llama2": ("</s>", "</s>"),
    "mistral": ("</s>", "</s>"),
    "gemma": ("<eos>", "<end_of_turn>"),
    "phi3": ("<|endoftext|>", "<|end|>"),
    "deepseek": ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "deepseek_r1": ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "early_gemma": ("<eos>", "<end_of_turn>"),
    "neox": ("<|endoftext|>", "<|endoftext|>"),
}


def task_with(tokenizer, problems=("a",), **task):
    def nothing(prompts, completions):
        return [0.0] * len(prompts)

    return TextGenTask(nothing, problems=list(problems), tokenizer=tokenizer, test_fraction=0.0, **task)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_end_of_a_turn_is_a_stop_token_and_ends_the_demonstrations_of_conversations(name):
    tokenizer = FAMILIES[name]()
    end, end_of_turn = tokenizer.convert_tokens_to_ids(list(ENDS[name]))
    plain_task = task_with(tokenizer)
    chat_task = task_with(
        tokenizer, [{"prompt": USER, "answer": "2"}, {"prompt": [{**USER[0], "content": "2+0="}], "answer": "two"}]
    )
    assert plain_task.stop_token_ids == chat_task.stop_token_ids == tuple(dict.fromkeys([end, end_of_turn]))
    assert (plain_task.eos_token_id, chat_task.eos_token_id) == (end, end_of_turn)
    assert demonstration(plain_task, Problem("a", "2"))[-1] == end
    assert demonstration(chat_task, Problem(USER, "2"))[-1] == end_of_turn
    shown = demonstrate(chat_task, 0, 4)
    lasts = shown.actions.gather(1, shown.mask.sum(1, keepdim=True) - 1)
    assert set(lasts[:, 0].tolist()) == {end_of_turn}


def test_each_stop_token_ends_an_episode_and_is_no_part_of_the_completion():
    env = TextGenEnv(verifier=OddVerifier(), stop_tokens=["c"], max_new_tokens=5)
    a, c = env.task.tokenizer.convert_tokens_to_ids(["a", "c"])
    for stop in (env.task.tokenizer.eos_token_id, c):
        env.reset(seed=0)
        assert env.step(a)[2] is False
        _, _, terminated, truncated, info = env.step(stop)
        assert (terminated, truncated, info["completion"]) == (True, False, "a")


def test_only_the_last_stop_token_is_cut_from_a_text():
    task = task_with(character_tokenizer("abc"), stop_tokens="b")
    eos, a, b = 1, 2, 3
    assert task.encoding.texts([[a, b], [a, eos], [b], [a, a], [eos, b], [b, b]]) == ["a", "a", "", "aa", "", "b"]


@pytest.mark.parametrize("named", [3, [3], [1, 3, 500], None])
def test_a_generation_config_beside_the_tokenizer_adds_its_end_tokens(tmp_path, named):
    character_tokenizer("abc").save_pretrained(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": named, "temperature": 0.1, "top_k": 5}))
    expected = (1,) if named is None else (1, 3)  # tokens outside the vocabulary cannot be sampled
    assert task_with(str(tmp_path)).stop_token_ids == expected
    assert task_with(tmp_path, stop_tokens=["c", 3]).stop_token_ids == tuple(dict.fromkeys((*expected, 4, 3)))


def test_a_stop_token_may_be_a_text_that_the_tokenizer_spells_with_one_token():
    tokenizer = FAMILIES["chatml"]()
    [line_end] = tokenizer("\n")["input_ids"]
    assert "\n" not in tokenizer.get_vocab()
    assert task_with(tokenizer, stop_tokens="\n").stop_token_ids[-1] == line_end
