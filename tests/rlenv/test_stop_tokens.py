import json

import pytest
from chat_families import FAMILIES
from textgen_reference import OddVerifier, demonstration

from rlenv.demonstrations import demonstrate
from rlenv.task import TextGenTask
from rlenv.textgen import TextGenEnv
from rlenv.tokenizer import character_tokenizer, control_tokens, train_tokenizer
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


# What is shown and judged is without special tokens; calls and stop strings are found with them.


OWN = {
    "characters": lambda: character_tokenizer("abdenop<>_"),
    "trained": lambda: train_tokenizer(270, ["a few words, and a few more of them"] * 9),
}


def task_of(tokenizer, **settings):
    return TextGenTask("exact", problems=[{"prompt": "a", "answer": "b"}], tokenizer=tokenizer, **settings)


@pytest.mark.parametrize("name", [*OWN, *FAMILIES])
def test_texts_have_no_special_tokens_as_in_transformers(name):
    tokenizer = (OWN | FAMILIES)[name]()
    task = task_of(tokenizer, test_fraction=0.0)
    word = tokenizer.encode("ab", add_special_tokens=False)
    special = [token for token in control_tokens(tokenizer).values() if token not in task.stop_token_ids]
    assert set(tokenizer.all_special_ids) <= task.special_token_ids
    assert task.metadata["hidden_token_ids"] == tuple(sorted(special))
    others = [token for token, added in tokenizer.added_tokens_decoder.items() if not added.special]
    said = [*special, *word, *special, *word, *others, *special]
    expected = tokenizer.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert task.encoding.texts([said]) == [expected] and all(tokenizer.decode([token]) in expected for token in others)


@pytest.mark.parametrize("name", OWN)
def test_stop_strings_are_found_where_special_tokens_are_spelled_out_and_the_rest_of_a_token_is_cut(name):
    task = task_of(OWN[name](), test_fraction=0.0, stop_strings=["<pad>a"])
    a = task.encoder.ids(["a few" if name == "trained" else "ab"])[0]
    assert task.encoding.at_stop_string([[0, *a], a]) == [True, False]
    assert task.encoding.texts([[*a, 0, *a], a]) == [f"{task.tokenizer.decode(a)}a", task.tokenizer.decode(a)]
