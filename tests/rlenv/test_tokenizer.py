"""Tokenizers: of characters, trained on the problems, or of any family; what ends a turn, and what is shown of it."""

import json

import pytest
from chat_families import FAMILIES, chatml
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

from rlenv.chat import control_tokens
from rlenv.demonstrations import demonstrate, turn_tokens
from rlenv.task import TextGenTask
from rlenv.textgen import TextGenEnv
from rlenv.tokenizer import CHATML_TOKENS, SMALLEST, character_tokenizer, train_tokenizer
from rlenv.vector_env import TextGenVectorEnv
from rlenv.verifiers import Problem

PAD, EOS = 0, 1
DIGITS = "0123456789+="
SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}


def encode(tokenizer, text):
    return tokenizer([text], split_special_tokens=True)["input_ids"][0]


def decode(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def digits(pad):
    """Return a tokenizer of characters with another padding token."""
    tokenizer = character_tokenizer(DIGITS)
    tokenizer.pad_token = pad
    return tokenizer


def holed():
    """Return a tokenizer of characters without tokens for some ids, whose end token is beyond its number of tokens."""
    state = json.loads(character_tokenizer(DIGITS).backend_tokenizer.to_str())
    state["model"]["vocab"]["<eos>"] = 40
    state["added_tokens"] = []
    backend = Tokenizer.from_str(json.dumps(state))
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>")


def pairs(post_processor=None):
    """A tokenizer whose tokens are not characters: "12" and "46" are one token each, and also two."""
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *DIGITS, "12", "46"])}
    backend = Tokenizer(models.BPE(vocabulary, [("1", "2"), ("4", "6")]))
    backend.decoder = decoders.Fuse()
    if post_processor is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=post_processor, special_tokens=[("<eos>", 1), ("<pad>", 0)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")


def exact(tokenizer=None, problems=("a",), **task):
    return TextGenTask("exact", **{"problems": problems, "tokenizer": tokenizer, "test_fraction": 0.0, **task})


CHAT = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|object_ref_start|>"]


@pytest.mark.parametrize("tokenizer", [None, chatml()], ids=["characters", "byte pairs"])
@drawn(20, report_multiple_bugs=False)
@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from([*CHAT, "<pad>", "<eos>"])), max_size=5).map("".join))
def test_any_text_survives_and_has_no_control_token(tokenizer, text):
    text += "-"
    task = exact(tokenizer, [Problem(text, text)])
    control = set(control_tokens(task.encoding.tokenizer).values())
    (prompt,) = task.prompts([0])
    *answer, end = turn_tokens(task.encoding, prompt.problem, text)
    assert end == task.encoding.eos_token_id and not control & {*prompt.tokens, *answer}
    assert decode(task.encoding.tokenizer, prompt.tokens) == decode(task.encoding.tokenizer, answer) == text


@pytest.mark.parametrize(
    "tokenizer",
    [digits("<eos>"), digits(None), pairs(), holed(), character_tokenizer("=+9876543210")],
    ids=["padded with its end", "without padding", "pairs", "holed", "in another order"],
)
def test_any_tokenizer_can_be_answered_in_by_any_tokens_and_padding_with_the_end_token_ends_nothing(tokenizer):
    """The answer is said in tokens that its text may not be cut into, and which are kept."""
    env, alone = TextGenVectorEnv(2, tokenizer=tokenizer, **SUM), TextGenEnv(tokenizer=tokenizer, **SUM)
    observation, _ = env.reset(seed=0)
    alone.reset(seed=0)
    length, end = int(observation["length"][0]), tokenizer.eos_token_id
    assert decode(tokenizer, observation["tokens"][0, :length].tolist()) == "12+34="
    pad = end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    assert observation["tokens"][:, length:].eq(pad).all()
    said = [*(tokenizer.get_vocab()[digit] for digit in "46"), end]
    for token, other in zip(said, [end, 2, 2], strict=True):
        observation, reward, *_, info = env.step([token, other])
        seen, paid, *_ = alone.step(token)
    assert reward.tolist() == [1.0, 0.0] and info["completion"].tolist() == ["46", None] and paid == 1.0
    assert observation["length"].tolist() == [length + 3, length + 1]
    for tokens in (observation["tokens"][0], seen["tokens"]):
        assert tokens[length : length + 3].tolist() == said


@pytest.mark.parametrize("template", ["$A <eos>", "<pad> $A", "<pad> $A <eos>", "<eos> $A", "<eos> $A <eos>"])
def test_a_prompt_keeps_its_start_token_and_loses_the_end_token_that_a_tokenizer_adds(template):
    tokenizer = pairs(template)
    if template.startswith("<eos>"):  # as where one token is unknown, start and end
        tokenizer.unk_token = tokenizer.bos_token = tokenizer.eos_token
    env = TextGenEnv(tokenizer=tokenizer, **SUM)
    observation, _ = env.reset(seed=0)
    prompt = observation["tokens"][: observation["length"]].tolist()
    start = {"<pad>": [PAD], "<eos>": [EOS]}.get(template.split(" ")[0], [])
    assert prompt == start + encode(pairs(), "12+34=")
    said = turn_tokens(env.task.encoding, Problem("12+34=", "46"), "46")
    assert said == [*encode(pairs(), "46"), EOS], "with one end token"


# One that is trained on the problems.


WORDS = "What is the sum of these two numbers, and how did you work it out? The answer is one more than that.\n"
LISTED = [
    {"prompt": f"{WORDS}{n}+{n}=", "answer": f"twice {n} is {2 * n}", "split": "test" if n % 5 == 0 else "train"}
    for n in range(50)
]
OTHER = "entirely other words for testing "


def trained_on(problems, tokenizer="train:300", **task):
    return exact(tokenizer, problems, **task).encoding.tokenizer


def test_it_has_the_size_that_was_asked_for_and_spells_every_text():
    tokenizer = trained_on(LISTED)
    assert len(tokenizer) == 300
    assert control_tokens(tokenizer) == {"<pad>": 0, "<eos>": 1, CHATML_TOKENS[0]: 2, CHATML_TOKENS[1]: 3}
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    for text in (WORDS, "e\u0301 é 字 🙂 \x00 \u2028 <eos><|im_end|> 12+34\t  x"):
        ids = encode(tokenizer, text)
        assert tokenizer.decode(ids) == text and not set(ids) & {0, 1, 2, 3}
    assert len(tokenizer(WORDS)["input_ids"]) < len(WORDS) / 2
    assert len(tokenizer("1234567890")["input_ids"]) == 10


def test_messages_keep_their_roles_in_the_template_of_a_trained_tokenizer():
    asked = [row | {"prompt": [{"role": "user", "content": row["prompt"]}]} for row in LISTED]
    task = exact("train:300", asked)
    assert task.encoding.tokenizer.chat_template == trained_on(LISTED).chat_template
    assert task.encoding.eos_token_id == task.encoding.tokenizer.convert_tokens_to_ids(CHATML_TOKENS[1])


def test_it_depends_on_the_training_problems_alone():
    vocabulary = trained_on(LISTED).get_vocab()
    changed = [row | {"prompt": OTHER} if row["split"] == "test" else row for row in LISTED]
    assert trained_on(changed).get_vocab() == trained_on(LISTED, split="test").get_vocab() == vocabulary
    assert trained_on([row | {"prompt": OTHER + row["prompt"]} for row in LISTED]).get_vocab() != vocabulary
    one, other = (TextGenTask("arith", verifier_kwargs={"digits": 4}, tokenizer=f"train:{SMALLEST}") for _ in range(2))
    assert one.encoding.tokenizer.get_vocab() == other.encoding.tokenizer.get_vocab(), "of problems that are sampled"


# What ends a turn, and what is shown and judged of it: the text without special tokens.


ENDS = {  # the tokenizer's end, and the end of a turn
    "chatml": ("<|endoftext|>", "<|im_end|>"),
    "qwen3": ("<|im_end|>", "<|im_end|>"),
    "llama3": ("<|eot_id|>", "<|eot_id|>"),
    "llama2": ("</s>", "</s>"),
    "mistral": ("</s>", "</s>"),
    "gemma": ("<eos>", "<end_of_turn>"),
    "phi3": ("<|endoftext|>", "<|end|>"),
    "deepseek_r1": ("<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_end_of_a_turn_is_a_stop_token_and_ends_the_demonstrations_of_conversations(name):
    tokenizer = FAMILIES[name]()
    end, end_of_turn = tokenizer.convert_tokens_to_ids(list(ENDS[name]))
    asked = [{"prompt": [{"role": "user", "content": text}], "answer": "2"} for text in ("1+1=", "2+0=")]
    for task, last in ((exact(tokenizer, [Problem("a", "2")]), end), (exact(tokenizer, asked), end_of_turn)):
        ends = tuple(dict.fromkeys([end, end_of_turn]))
        assert (task.encoding.stop_token_ids, task.encoding.eos_token_id) == (ends, last)
        shown = demonstrate(task, 0, 3)
        lasts = shown.actions.gather(1, shown.mask.sum(1, keepdim=True) - 1)
        assert set(lasts[:, 0].tolist()) == {last}


def test_only_the_last_stop_token_is_cut_from_a_text():
    task = exact(character_tokenizer("abc"), stop_tokens="b")
    eos, a, b = 1, 2, 3
    assert task.encoding.texts([[a, b], [a, eos], [b], [a, a], [eos, b], [b, b]]) == ["a", "a", "", "aa", "", "b"]


@pytest.mark.parametrize("given", [range(2, 4), {2: 0, 3: 0}.keys(), iter([2, 3])])
def test_stop_tokens_are_any_series_of_them(given):
    assert exact(character_tokenizer("abc"), stop_tokens=given).encoding.stop_token_ids == (1, 2, 3)


@pytest.mark.parametrize("named", [3, [3], [1, 3, 500], None])
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_the_configs_beside_the_tokenizer_add_their_end_tokens(tmp_path, file, named):
    character_tokenizer("abc").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')  # of no effect beside a generation_config.json
    (tmp_path / file).write_text(json.dumps({"eos_token_id": named, "temperature": 0.1, "top_k": 5}))
    expected = (1,) if named is None else (1, 3)  # tokens outside the vocabulary cannot be sampled
    assert exact(str(tmp_path)).encoding.stop_token_ids == expected
    assert exact(tmp_path, stop_tokens=["c", 3]).encoding.stop_token_ids == tuple(dict.fromkeys((*expected, 4, 3)))


def test_a_stop_token_may_be_a_text_that_the_tokenizer_spells_with_one_token():
    tokenizer = chatml()
    [line_end] = tokenizer("\n")["input_ids"]
    assert "\n" not in tokenizer.get_vocab()
    assert exact(tokenizer, stop_tokens="\n").encoding.stop_token_ids[-1] == line_end


OWN = {
    "characters": lambda: character_tokenizer("abdenop<>_"),
    "trained": lambda: train_tokenizer(270, ["a few words, and a few more of them"] * 9),
}


@pytest.mark.parametrize("name", [*OWN, *FAMILIES])
def test_texts_have_no_special_tokens_as_in_transformers(name):
    tokenizer = (OWN | FAMILIES)[name]()
    task = exact(tokenizer)
    word = tokenizer.encode("ab", add_special_tokens=False)
    special = [token for token in control_tokens(tokenizer).values() if token not in task.encoding.stop_token_ids]
    assert set(tokenizer.all_special_ids) <= task.encoding.special_token_ids
    assert task.metadata["hidden_token_ids"] == tuple(sorted(special))
    others = [token for token, added in tokenizer.added_tokens_decoder.items() if not added.special]
    said = [*special, *word, *special, *word, *others, *special]
    expected = tokenizer.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert task.encoding.texts([said]) == [expected] and all(tokenizer.decode([token]) in expected for token in others)


@pytest.mark.parametrize("name", OWN)
def test_stop_strings_are_found_where_special_tokens_are_spelled_out_and_the_rest_of_a_token_is_cut(name):
    task = exact(OWN[name](), stop_strings=["<pad>a"])
    a = task.encoding.encoder.ids(["a few" if name == "trained" else "ab"])[0]
    assert task.encoding.at_stop_string([[0, *a], a]) == [True, False]
    text = task.encoding.tokenizer.decode(a)
    assert task.encoding.texts([[*a, 0, *a], a]) == [f"{text}a", text]
