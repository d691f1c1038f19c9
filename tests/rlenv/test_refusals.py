"""What rlenv refuses: an error of one line that names the setting and its value, or the place in a file."""

import json
import os
import sys
from functools import partial

import pyarrow
import pyarrow.parquet
import pytest
import torch
from chat_families import chatml, qwen3
from datasets import Dataset, DatasetDict
from dialogues import Echoing, Talker
from refused import check_refused, row
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlenv import trl
from rlenv.chat import read_template
from rlenv.curriculum import Curriculum
from rlenv.demonstrations import demonstrate, turn_tokens
from rlenv.encoder import Encoder
from rlenv.judge import Judge
from rlenv.preference_pairs import Pair, load_pairs, split_pairs
from rlenv.problems import as_problem, load_problems
from rlenv.stream import ProblemStream
from rlenv.task import TextGenTask
from rlenv.textgen import TextGenEnv
from rlenv.tokenizer import character_tokenizer, load_tokenizer, train_tokenizer
from rlenv.vector_env import TextGenVectorEnv, make_vector_env
from rlenv.verifiers import Arith, Problem, Turns, Verdict, Verifier

SUM = {"verifier": "arith", "problems": [{"prompt": "12+34=", "answer": "46"}], "test_fraction": 0.0}


class Silent(Verifier):
    """Makes no problems, and can neither be demonstrated nor replayed."""

    alphabet = "abc"

    def verify(self, problem, completion):
        return Verdict(0.0)


class Chance(Echoing):
    """Has dialogues that draw anew at every replay."""

    def dialogue(self, problem):
        dialogue = super().dialogue(problem)
        dialogue.deterministic = False
        return dialogue


class Counting(Silent):
    """Judges by a column, and demonstrates by it."""

    inputs = ("times",)

    def demonstration(self, problem):
        return "a" * problem.metadata["times"]


def declaring(name, value):
    return type("Declaring", (Echoing,), {name: value})()


def task(**arguments):
    return TextGenTask(**{"verifier": Silent(), "problems": ["abc"], "test_fraction": 0.0, **arguments})


def vector(**arguments):
    return TextGenVectorEnv(**{"num_envs": 2, **SUM, **arguments})


def single(**arguments):
    return TextGenEnv(**{**SUM, **arguments})


def stream(**arguments):
    made = {"verifier": Arith(), "split": "train", **arguments}
    return ProblemStream(**made)[0]


def posing(made):
    class Poses(Verifier):
        def sample(self, rng):
            return made

    task(verifier=Poses(), problems=None)


def noted(**metadata):
    return stream(problems=["a", Problem("b", "", metadata)], curriculum=0.5)


def restored(before=None, **arguments):
    """Restore the state of a stream, by default of listed problems with a curriculum, in another one."""
    problems = [{"prompt": f"{n}", "level": 1 + n % 2} for n in range(4)]
    made = {"verifier": Arith(), "test_fraction": 0.0, "problems": problems}
    state = ProblemStream(**made | (before or {"curriculum": 0.5})).state_dict()
    ProblemStream(**made | arguments).load_state_dict(state)


def started(env):
    env.reset(seed=0)
    return env


def step(action):
    env = started(single())
    try:
        env.step(action)
    finally:
        assert env.step(4)[0]["length"] == 7, "nothing has moved"


def steps(actions):
    env = started(vector())
    try:
        env.step(actions)
    finally:
        assert env.step([4, 4])[0]["length"].tolist() == [7, 7], "nothing has moved"


def reset_mask(mask):
    started(vector(num_envs=3)).reset(options={"reset_mask": mask})


def acting(mask):
    started(vector(num_envs=3)).step([4, 4, 4], acting=mask)


def rendered(template):
    tokenizer = chatml()
    tokenizer.chat_template = template
    Encoder(tokenizer).prompts([[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]])


def demonstration(answer, **arguments):
    made = TextGenTask(**{"verifier": "arith", "max_new_tokens": 4, **arguments})
    return turn_tokens(made.encoding, Problem("12+34=", answer), answer)


def judged(verdicts):
    class Answers(Silent):
        def verify_batch(self, problems, completions):
            return verdicts

    return Judge(Answers())([Problem("a")] * 2, ["a", "b"])


def demonstrated(turns, **arguments):
    class Shown(arguments.pop("of", Talker)):
        def demonstration_turns(self, problem, rng):
            return turns

    return demonstrate(task(**{"verifier": Shown(), "problems": ["aab"], **arguments}), 0, 8)


def tokenizer_without_end(tokenizer=None):
    return load_tokenizer(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a"))), "")


def tokenizer_of_whole_words():
    backend = Tokenizer(models.WordPiece({"a": 0, "b": 1, "?": 2, ".": 3}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", eos_token=".")


def tokenizer_that_reads_e_as_its_end(text):
    vocabulary = {token: index for index, token in enumerate(["<", "e", ">", "<e", "<e>"])}
    backend = Tokenizer(models.BPE(vocabulary, [("<", "e"), ("<e", ">")]))
    task(problems=[text], tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>", pad_token="<e>"))


USER = {"role": "user", "content": "1+1="}
ANSWER = {"role": "assistant", "content": "2"}
REFUSING = {"long_prompts": "error"}
ALL = {"test_fraction": 0.0}
EIGHT = {"problems": ["aab"] * 8}
CHAT = {"problems": ["a"], "tokenizer": chatml()}
TALKING = {"verifier": Echoing(), "problems": None, "max_new_tokens": 3}
VERDICTS = ([Verdict(1.0)] * 3, [Verdict(1.0), None])
MASKS = [True, [True, False], [[True, False, True]], [1, 0, 1], torch.ones(4).bool()]
BOTH = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% set first, second = messages[0].content, messages[1].content %}"
)
ROWS = [
    *(row(vector, {"num_envs": value}) for value in (0, 1.5, True)),
    row(make_vector_env, {"autoreset_mode": "Never"}, "autoreset_mode 'Never'", "NextStep", "SameStep", "Disabled"),
    row(vector, {"device": "abacus"}),
    row(vector, {"render_mode": "human"}, "render_mode 'human'", "ansi", "rgb_array"),
    row(single, {"render_mode": "svg"}, "render_mode 'svg'", "ansi", "human", "rgb_array"),
    row(vector, {"split": "dev"}, "split 'dev'", "train", "test"),
    row(reset_mask, {"mask": [False, False, False]}, "reset_mask", "3"),
    row(vector().reset, {"options": {"reset_maks": [True]}}, "'reset_maks'", "did you mean 'reset_mask'", "groups"),
    row(TextGenEnv(verifier="arith").reset, {"options": {"groups": [0]}}, "'groups'", "allowed: progress"),
    row(TextGenEnv, {"verifer": "arith"}, "'verifer'", "did you mean 'verifier'"),
    row(TextGenEnv, {}, "verifier", "None"),
    *(
        row(posing, {"made": made}, "Poses", "Problem(prompt, answer)", repr(made))
        for made in (("a:", "b"), "a:", None)
    ),
    row(TextGenEnv, {"task": "gsm8"}, "'gsm8'", "did you mean 'gsm8k'"),
    row(TextGenEnv, {"task": "zzzz"}, "allowed: gsm8k, math,"),
    *(row(reset_mask, {"mask": mask}, "reset_mask", "3") for mask in MASKS),
    row(acting, {"mask": [1, 0, 1]}, "acting", "3"),
    *(row(steps, {"actions": given}, "actions", "2") for given in ([2], 2, [[2], [2]], [2.0, 2.5], [True, False])),
    *(row(steps, {"actions": [4, action]}, f"action {action}", "0 to 13") for action in (-1, 14)),
    *(row(step, {"action": action}, f"action {action}", "0 to 13") for action in (-1, 14)),
    *(row(step, {"action": action}, "action") for action in (1.5, "3", [3], torch.tensor([3, 4]))),
    *(row(task, {"group_size": value}) for value in (0, 2.5, True)),
    row(task, {"max_new_tokens": 10_000_000}),
    row(task, {"verifier": declaring("prompt_length", "6"), "problems": None}, "Declaring.prompt_length", "'6'"),
    row(task, {"verifier": declaring("answer_length", 2.5)}, "Declaring.answer_length", "2.5"),
    row(task, {"verifier": declaring("turns", Turns(2, "8"))}, "Turns.reply_length", "'8'"),
    row(task, {"problems": ["b", "a" * 1025], **REFUSING}, "problem 2", "1024", "--max-prompt-tokens", "skip", "..."),
    row(task, {"problems": ["aa", "bbb"], "max_prompt_tokens": 1}, "all 2", "max_prompt_tokens"),
    row(task, {"problems": ["a", ""]}, "prompt ''", "0 tokens", "max_prompt_tokens"),
    row(task, {"problems": ["a\ud83d"]}, "problem", "Unicode"),
    row(task, {"problems": []}, "problems", "empty"),
    row(task, {"problems": {"prompt": ["a", "b"], "answer": ["b", "a"]}}, "problems", "dict", "rows"),
    row(task, {"problems": DatasetDict(train=Dataset.from_list([]))}, "problems", "DatasetDict", "split"),
    row(task, {"problems": iter("ab")}, "problems", "str_ascii_iterator", "list(...)"),
    row(task, {"problems": {"a", "b"}}, "problems", "got a set", "sorted(...)"),
    row(task, {"problems": None}, "Silent", "--problems"),
    row(task, {"problems": ["ax"], "tokenizer": character_tokenizer("abc")}, "prompt 'ax'", "alphabet", "'x'"),
    row(
        task, {"problems": ["a ab"], "tokenizer": tokenizer_of_whole_words()}, "prompt 'a ab'", "cannot spell", "['ab']"
    ),
    row(task, {"prompt_template": "{q}"}, "prompt_template", "file"),
    row(task, {"long_prompts": "cut"}, "long_prompts 'cut'", "error", "skip"),
    row(task, {"tokenizer": "nowhere/at/all"}, "tokenizer 'nowhere/at/all'", "folder"),
    *(row(task, {"tokenizer": f"train:{size}"}, f"train:{size}", "260", "100000") for size in ("259", "100001", "2e3")),
    row(task, {"tokenizer": "train:2000"}, "'train:2000'", "pass train:"),
    row(character_tokenizer, {"alphabet": ""}, "alphabet"),
    row(tokenizer_without_end, {}, "end-of-sequence token", "eos_token"),
    row(tokenizer_that_reads_e_as_its_end, {"text": "e<e>"}, "prompt 'e<e>'", "control token"),
    row(task, {"stop_tokens": [5]}, "stop token 5", "0 to 4"),
    *(row(task, {"stop_tokens": [stop]}, "stop token", repr(stop)) for stop in (-1, True, "")),
    row(task, {"stop_tokens": ["ab"]}, "stop token 'ab'", "2; pass", "--stop-string"),
    row(task, {"stop_tokens": ["x"]}, "stop token 'x'", "vocabulary"),
    row(task, {"system_prompt": " ", **CHAT}),
    row(task, {"chat": "yes", **CHAT}),
    row(task, {"chat_template": "nowhere.jinja", **CHAT}, "nowhere.jinja'", "No such file"),
    row(task, {"chat": True, "tokenizer": character_tokenizer("abc")}, "tokenizer", "chat template", "pass"),
    row(task, {"problems": [[USER]], "tokenizer": character_tokenizer("1+=")}, "tokenizer", "chat template", "pass"),
    row(
        task, {"chat_template": "{{ messages[0].content }}!", "tokenizer": character_tokenizer("abc")}, "'abc!'", "'!'"
    ),
    row(task, {**CHAT, "problems": [[{**USER, "content": "\U0010fffd1\U0010fffd"}]]}, "control token"),
    row(rendered, {"template": "{{ messages[0].content }}{{ messages }}"}, "repeats message 1", "system"),
    row(rendered, {"template": BOTH + "{% if 'b' in messages[1].content %}<|im_end|>{% endif %}"}, "message 2", "'b'"),
    row(rendered, {"template": BOTH + "{% if 'a' in first and 'b' in second %}c{% endif %}"}, "what the messages"),
    row(rendered, {"template": "{{ raise_exception('no system role\nhere') }}"}, "system, user", "no system role"),
    row(demonstrated, {"turns": ("abc",), "max_new_tokens": 3, **EIGHT}, "8 of 8", "3 tokens", "max_new_tokens=4"),
    row(demonstrated, {"turns": ("ab", "abcd"), "max_new_tokens": 3, **EIGHT}, "8 of 8", "max_new_tokens=5"),
    row(demonstration, {"answer": ""}, "Arith", "demonstration", "12+34="),
    row(demonstration, {"answer": "x6", "tokenizer": character_tokenizer(Arith().alphabet)}, "demonstration 'x6'"),
    row(demonstration, {"answer": "a</think>b", "tokenizer": qwen3(), "stop_tokens": "</think>"}, "stop token"),
    row(demonstrated, {"turns": ("a", "a", "d"), "max_turns": 2}, "3 turns", "max_turns=2"),
    row(demonstrated, {"turns": ("abc", "d"), "max_reply_tokens": 5}, "1", "max_reply_tokens=5"),
    row(demonstrated, {"turns": ("a", "ab"), "max_context_tokens": 8, "max_prompt_tokens": 3}, "8 tokens of context"),
    row(demonstrated, {"turns": ()}, "Shown has no demonstration"),
    row(task, {"verifier": Counting(), "problems": [{"prompt": "a", "time": 2}]}, "['times']", "answer, time"),
    *(row(demonstrated, {"turns": turns}, "list of texts", repr(turns)) for turns in ("ab", [7])),
    row(demonstrated, {"turns": ("cba", "d"), "stop_strings": ["b"]}, "'cba'", "stop string"),
    row(demonstrated, {"turns": ("a", "b"), "of": Silent, "problems": ["a"]}, "2 turns", "Shown", "one completion"),
    row(task, {"max_turns": 400_000, **TALKING}, "400000 turns of 3 tokens", "1048576"),
    row(task, {"max_context_tokens": 6, **TALKING}),
    row(task, {**TALKING, "verifier": Chance(), "verifier_workers": 1}, "Hashing", "deterministic", "verifier_workers"),
    row(single, {"max_turns": 9}, "max_turns=9", "Arith"),
    *(row(as_problem, {"item": item}, "prompt") for item in ({"answer": "2"}, {"prompt": 3}, None)),
    row(stream, {"split": "test", "problems": ["a", "b"], **ALL}, "2 problems", "test", "test_fraction=0.0"),
    row(stream, {"split": "test", **ALL}, "none was in the test split", "(test_fraction=0.0)", "0 and 1 leave"),
    row(stream, {"encode": lambda problems: [None] * len(problems)}, "10000 problems", "train", "short enough"),
    *(row(task, {"test_fraction": value}) for value in (-0.1, float("nan"))),
    *(row(noted, {"split": each}, "train, test, validation", repr(each)) for each in ("dev", ["train"])),
    *(row(noted, {"level": level}, "level", repr(level)) for level in ("hard", 0, 1.5, True)),
    row(task, {"prompt_choice": "best"}, "prompt_choice 'best'", "thompson"),
    row(stream, {"prompt_choice": "thompson", "curriculum": 0.8}, "prompt_choice='thompson'", "curriculum=0.8"),
    row(stream, {"prompt_choice": "thompson", "problems": ["a"], "test_fraction": 0.0}, "thompson", "1"),
    *(row(task, {"curriculum": value}, "curriculum", repr(value)) for value in (0, 1.01, "0.8")),
    row(Curriculum, {"levels": [3, 3], "threshold": 0.8}, "levels=2", "[3]"),
    row(restored, {}, "another curriculum"),
    row(restored, {"problems": [{"prompt": "other"}], "curriculum": None}, "changed", "use the file"),
    row(restored, {"before": {"problems": None}}, "changed", "its verifier made them: pass no problems"),
    row(split_pairs, {"pairs": [Pair("a", "b", "c", "test")], "test_fraction": 0.0}, "1 pairs", "train"),
    *(row(judged, {"verdicts": given}, "Answers: verify", "each of 2 completions") for given in VERDICTS),
    row(task, {"ask": True}, "Silent has no place"),
    row(TextGenTask, {"verifier": "countdown", "ask": True}, "request", "outside the tokenizer's alphabet"),
    row(trl.environment, {"verifier": "arith"}, "Arith", "reward_function"),
    row(trl.reward_function, {"verifier": "guess"}, "Guess", "environment"),
    row(trl.rows, {"verifier": "exact", "count": 1}, "Exact", "problems"),
    row(trl.environment("guess")().reset, {"prompt": [{**USER, "content": ""}]}, "problem_seed"),
    row(trl.environment("guess")().say, {"text": "1"}, "no episode"),
    row(task, {"problems": [{"messages": [USER, ANSWER]}]}, "assistant"),
]


@pytest.mark.parametrize("start", range(0, len(ROWS), 25))
def test_a_setting_that_cannot_be_used_is_named_with_its_value(start):
    for each in ROWS[start : start + 25]:
        check_refused(*each.values)


def rows_of(*rows):
    return "".join(f"{json.dumps(each)}\n" for each in rows)


TYPO, OF_Q = {"prompt_template": "{qestion}"}, {"prompt_template": "{q}?"}
NO_TEMPLATES = ("{}", "{q!r}", "{q:>999999999}", "{q:{width}}", "{q", "no field", "{{q}}", 3)
PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}
NAMED = rows_of({"prompt": "p", "good": "a", "rejected": "b"})
BAD_PAIRS = [
    ({**PAIR, "chosen": ["a"]}, "chosen", "['a']"),
    ({**PAIR, "prompt": [{"role": "user"}]}, "message 1", "content"),
    ({**PAIR, "rejected": [ANSWER, ANSWER]}, "rejected"),
    ({"chosen": [USER, ANSWER], "rejected": [ANSWER, ANSWER]}, "the same conversation"),
    ({**PAIR, "chosen": "b"}, "chosen", "rejected", "same"),
    ({"chosen": "a"}, "rejected", "None"),
    ({**PAIR, "split": "dev"}, "split", "train, test"),
    ({"chosen": "", "rejected": "b"}, "empty"),
    (7, "object"),
]
FILES = [  # the file's name, its contents, arguments beside it, and what is named
    *(
        ("p.jsonl", rows_of({"prompt": "a", "answer": answer}), {}, "line 1", "answer", repr(answer))
        for answer in (None, True, ["2"], float("nan"))
    ),
    *(
        ("p.jsonl", rows_of({"prompt": "a"}, {"prompt": prompt}), {}, "line 2", "prompt", "list of messages")
        for prompt in (None, "", {"role": "user", "content": "a"})
    ),
    *(
        ("p.jsonl", rows_of({"prompt": "a", "level": level}), {}, "line 1", "level", repr(level))
        for level in (0, 1.5, "٣", float("inf"))
    ),
    ("p.jsonl", rows_of({"prompt": "a", "part": "dev"}), {"columns": {"split": "part"}}, "line 1", "train", "'dev'"),
    ("p.jsonl", '{"prompt": "\\ud83d"}\n{"prompt": "\\ud83d\\ude42"}\n', {}, "1 malformed row", "line 1", "Unicode"),
    ("p.jsonl", '{"prompt": "a"}\n{\n\n"text"\n{"promp": "c"}\n[]\n', {}, "4", "line 2", "line 4", "'text'", "1 more"),
    ("p.jsonl", '{"prompt": "a", "x": ' + "[" * 100_000, {}, "line 1", "not JSON"),
    ("p.jsonl", rows_of({"prompt": "a", "answer": "2"}, {"prompt": "b"}), {}, "line 2", "'answer'"),
    (
        "p.jsonl",
        rows_of(*({"prompt": each} for each in ([USER], [USER, {"content": "a"}], [], [{**USER, "content": 3}]))),
        {}, "3 malformed rows", "line 2: message 2 has no role", "line 3", "empty", "line 4",
    ),
    ("p.csv", 'prompt,answer\n"two\nlines",2\n1+1=\n1,2,3\n"a"b,1\n2+3=,5\n"open,1\n', {}, "4", "line 4", "line 5"),
    ("p.csv", "prompt,answer\na,b\nc,d\0\n", {}, "NUL", "line 3"),
    ("p.tsv", "prom\0pt\tanswer\na\tb\n", {}, "NUL", "line 1"),
    ("p.csv", "prompt,prompt\na,b\n", {}, "more than one column 'prompt'"),
    ("p.csv", "promt,target\na,b\n", {}, "column 'prompt'", "did you mean 'promt'", "--column prompt=promt"),
    ("p.csv", "q,target\na,b\n", {"columns": {"prompt": "q", "answer": "x"}}, "column 'x'", "--column answer="),
    *(("p.csv", "a\nb\n", {"columns": given}, "columns must be") for given in ({"prompt": 3}, ["a"])),
    ("p.csv", b"\xef\xbb\xbfprompt\nfine\n\xefve\n", {}, "UTF-8", "line 3", "0xef"),
    ("p.jsonl", b"prompt\nfine\n\xefve\n", {}, "UTF-8", "line 3", "0xef"),
    ("p.json", b"", {}, "empty"),
    *((name, text, {}, "no rows")
      for name, text in {"p.jsonl": "\n \n", "p.csv": "prompt,answer\n", "p.tsv": "\n", "p.json": "[]"}.items()),
    ("p.json", "nonsense\nand more", {}, "not JSON"),
    ("p.json", '{"prompt": "a"}\n{"prompt": "b"}\n', {}, "not JSON", "line 2", ".jsonl"),
    ("p.json", '{"prompt": "a"}', {}, "list of objects", "{'prompt': 'a'}"),
    ("p.json", '[{"prompt": "a"}, {"prompt": ""}, 3]', {}, "2", "row 2", "''", "row 3", "object"),
    ("p.parquet", "nonsense", {}, "cannot be read"),
    ("p.xlsx", "x", {}, "'.xlsx'", ".jsonl", ".csv", ".parquet"),
    ("p.jsonl", rows_of({"question": "a"}), {"prompt_template": "{question.__class__}"}, "no column", "'question'"),
    ("p.jsonl", rows_of({"question": "a"}), TYPO, "did you mean 'question'", "--prompt-template"),
    *(("p.jsonl", rows_of({"q": "1+1="}), {"prompt_template": template}, "template") for template in NO_TEMPLATES),
    ("p.jsonl", rows_of({"q": "a"}, {"q": None}, {"r": "b"}), OF_Q, "2", "line 2", "'q'", "line 3"),
    *(("pairs.jsonl", rows_of(PAIR, bad), {}, "1 malformed row", "line 2", *names) for bad, *names in BAD_PAIRS),
    ("pairs.jsonl", NAMED, {}, "column 'chosen'", "'good'", "--column chosen="),
    ("pairs.jsonl", NAMED, {"columns": {"answer": "good"}}, "column 'answer'", "prompt"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "arguments", "names"), [(*each[:3], each[3:]) for each in FILES])
def test_what_is_wrong_with_a_file_is_named_with_its_place(tmp_path, name, content, arguments, names):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    check_refused(load_pairs if name == "pairs.jsonl" else load_problems, {"path": path, **arguments}, names)


def test_a_damaged_folder_of_another_library_is_named_in_one_line(tmp_path):
    Dataset.from_list([{"prompt": "a"}]).save_to_disk(tmp_path / "rows")
    train_tokenizer(260, ["a"]).save_pretrained(tmp_path / "tokenizer")
    read_tokenizer = partial(load_tokenizer, alphabet="")
    for folder, file, read in (("rows", "state", load_problems), ("tokenizer", "tokenizer", read_tokenizer)):
        (tmp_path / folder / f"{file}.json").write_text("[" * 100_000)
        with pytest.raises(ValueError, match=rf"\A[^\n]*'{tmp_path / folder}' cannot be [^\n]+\Z"):
            read(tmp_path / folder)


def test_files_of_other_libraries_are_refused_by_row(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"prompt": pyarrow.array([], pyarrow.string())}), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a", None]}), tmp_path / "b.parquet")
    latin = pyarrow.array([b"\xe9"], pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a"], "more": latin}), tmp_path / "d.parquet")
    DatasetDict(train=Dataset.from_dict({"prompt": []})).save_to_disk(tmp_path / "set")
    other = {name: Dataset.from_dict({"prompt": ["a"]}) for name in ("extra", "more")}
    DatasetDict(other).save_to_disk(tmp_path / "other")
    (tmp_path / "folder").mkdir()
    found = {"a.parquet": "no rows", "b.parquet": "row 2", "set": "no rows", "other": "row 1 of 'extra'"}
    found |= {"folder": "cannot be read", "x.jsonl": "no file", "d.parquet": "Invalid UTF8"}
    os.mkfifo(tmp_path / "p.csv")
    found["p.csv"] = "pipe"
    for name, part in found.items():
        check_refused(lambda path: list(load_problems(path)), {"path": tmp_path / name}, (name, part))
    Dataset.from_list([{"prompt": "a"}]).to_parquet(tmp_path / "c.parquet")
    check_refused(task, {"problems": tmp_path / "c.parquet"}, ("c.parquet", "--tokenizer train:2000"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    for name in ("c.parquet", "other"):
        check_refused(load_problems, {"path": tmp_path / name}, ("pip install 'rlenv-lm[data]'",))


def test_other_files_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "t.jinja").write_text("hello")
    check_refused(read_template, {"template": tmp_path / "t.jinja"}, ("chat template",))
    character_tokenizer("abc").save_pretrained(tmp_path)
    for content in ("[", '{"eos_token_id": [true]}'):
        (tmp_path / "generation_config.json").write_text(content)
        check_refused(task, {"tokenizer": str(tmp_path)}, ("generation_config.json",))
