"""What the model wrote is shown and judged without special tokens; calls and stop strings are found with them."""

import pytest
from chat_families import FAMILIES

from rlenv.envs.task import TextGenTask
from rlenv.text.tokenizer import character_tokenizer, control_tokens, train_tokenizer

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
