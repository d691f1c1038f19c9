"""What verifiers refuse: an error of one line that names the setting and its value, or the part of a conversation."""

import json
import random
import socket
import sys
import threading
import types

import numpy as np
import pytest
import torch
from dialogues import Echoing
from openenv_servers import URL
from programs import agent
from refused import check_refused, row
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

from rlenv.tokenizer import character_tokenizer
from rlenv.verifiers import Arith, Dialogue, Isolated, Problem, Reply, Turns, Verdict, Verifier, isolate, make_verifier
from rlenv.verifiers.base import check_inputs, checked, right_turns
from rlenv.verifiers.builtin import Program, RewardModel
from rlenv.verifiers.builtin.json_schema import DEEPEST, MOST_DIGITS, read_json
from rlenv.verifiers.code.harness import decode, encode
from rlenv.verifiers.dialogues import begin, reply_to
from rlenv.verifiers.dialogues.tools import WithTools
from rlenv.verifiers.function import FunctionVerifier
from rlenv.verifiers.lint.report import lint
from rlenv.verifiers.plugins.registry import trusting

NAN, INF = float("nan"), float("inf")
LOCK = threading.Lock()
UNFIT = {
    "reward_range": (1.0, (1.0, 0.0), ("0", "1"), (0, 1, 2), (NAN, 1.0)),
    "success_reward": (None,),
    "levels": ("3", 0),
    "inputs": ("tolerance",),
    "alphabet": (["a"],),
    "part_weights": ([1.0],),
    "does_not_catch": (["echo"],),
}


class Plain(Verifier):
    def verify(self, problem, completion):
        return Verdict(0.0)


class Needing(Plain):
    def __init__(self, pattern, limit=5): ...


def declaring(**attributes):
    return type("Declaring", (Plain,), attributes)()


FIVE = declaring(demonstration=lambda self, problem: 5)


def asking(scorer):
    check_inputs(scorer if isinstance(scorer, Verifier) else FunctionVerifier(scorer), [Problem("a")])


def half(prompts, completions):
    return [0.5 for _ in completions]


def environments(completions, environments):
    return [0.0]


def solved(task, client): ...


def lone(prompt, completion): ...


def positional(x, /):
    return x


def of(name):
    """Return a function that makes the verifier of this name."""

    def make(**arguments):
        return make_verifier(name, **arguments)

    make.__name__ = name
    return make


def made(spec, **arguments):
    return make_verifier(spec, **arguments)


def first_opened(solve):
    Program(solve).opened(Problem("1+1="))


def untrusted(spec):
    with trusting(False):
        make_verifier(spec)


def rewards(value):
    """Judge two completions by a function that returns the value."""
    FunctionVerifier(lambda prompts, completions: value).verify_batch([Problem("a")] * 2, ["", ""])


def judged_by(**metadata):
    make_verifier("code").verify(Problem("p", "", metadata), "def f(): pass")


def tools(tools):
    WithTools(Arith(), tools)


def talk(dialogue=None, reply=None, last=None):
    """Begin a dialogue, take a turn, and ask for its verdict without budget; each returns what is given."""
    talks = type("Talks", (Dialogue,), {"reply": lambda self, turn: reply, "out_of_budget": lambda self: last})()
    opens = type("Opens", (Verifier,), {"dialogue": lambda self, problem: dialogue or talks})()
    begun = begin(opens, Problem("?"))
    reply_to(begun, "" if last is None else None)


def reward_model(**arguments):
    sizes = {"vocab_size": 46, "n_embd": 16, "n_layer": 1, "n_head": 2, **arguments.pop("sizes", {})}
    model = GPT2ForSequenceClassification(GPT2Config(num_labels=2, **sizes))
    tokenizer = character_tokenizer("0123456789+-=<>/|abcdefghijklmnopqrstuvwxyz ")
    return RewardModel(**{"model": model, "tokenizer": tokenizer, "device": "cpu", **arguments})


def environment(name, **methods):
    """Return an environment class as TRL takes them."""
    return type(name, (), {"reset": lambda self: None, "get_reward": lambda self: "much", **methods})


def breaks(self):
    raise OSError("no disk")


def opened(cls, columns=None, turn=None):
    """Begin an episode of an environment class, and take a turn."""
    verifier = make_verifier(cls)
    problem = verifier.sample(random.Random(0)) if columns is None else Problem("-", metadata=columns)
    verifier.dialogue(problem).reply(turn)


NEEDS = environment("Needs", reset=lambda self, needed: None)
STUMBLES = environment("Stumbles", reset=lambda self: self.nothing)
ASKED = {"role": "user", "content": "1+1="}
SYSTEM = {"role": "system", "content": "Add."}


def called(name, arguments, **more):
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]}


CALLING = called("add", '{"a": 1, "b": 2}', id="call00001", type="function")
RESULT = {"role": "tool", "content": "3", "tool_call_id": "call00001"}
CONVERSATIONS = [
    *((prompt, "prompt", "list of messages") for prompt in (None, ASKED)),
    ([], "empty"),
    (["a"], "message 1", "'a'"),
    ([SYSTEM, {"role": "user", "content": None}], "message 2", "content"),
    ([{"role": ["user"], "content": "a"}], "message 1", "['user']", "system, user"),
    ([{"role": "tool", "content": "2"}], "message 1", "tool"),
    ([CALLING, RESULT], "one message of the user"),
    ([ASKED, {**CALLING, "tool_calls": [{}]}], "call 1 of message 2", '"name"', '"arguments"'),
    ([ASKED, {**CALLING, "tool_calls": "f"}], "tool_calls of message 2", "'f'"),
    ([ASKED, called("add", "{")], "arguments of call 1 of message 2", "'{'"),
    ([ASKED, called("", {})], "name of call 1 of message 2", "''"),
    ([ASKED, CALLING, {**RESULT, "name": 3}], "name of message 3", "3"),
    *(([{"role": "user", "content": text}], "message 1", repr(text)) for text in (" \n", [{"type": "text"}])),
    ([{**ASKED, "tool_calls": [1]}], "message 1", "'tool_calls'"),
    ([ASKED, SYSTEM], "first message", "'system'"),
    ([SYSTEM, ASKED, {"role": "assistant", "content": "2"}], "last message", "'assistant'"),
]
NO_TESTS = (
    "assert f(1) and f(2)", "assert not not f(1)", "assert f(1) == Fraction(1, 0)", "assert f(1) == Fraction(x)",
    "assert f(1) == open('x')", "assert f(1) != 2", "assert f(x) == 2", "assert f(1) == g(1)", "assert f(*[1]) == 1",
    "assert f(**{}) == 1", "assert f.g(1) == 1", "assert f(1) is 1", "assert f(1) == 1 == 1", "assert f(1) == b'bytes'",
    "assert f(1) == 1\nassert f(2) == 2", "import os", "assert", "", "assert f(1) == " + "[" * 60 + "]" * 60,
    "assert f(1) == " + "9" * 5000, "\0", None, 3, "assert f(1) == 9 ** 9 ** 9", "assert f(1) == 'a' * 3",
    "assert True", "assert abs(f(1) - 'a') < 1", "assert math.isclose(f(1), 1, rel_tol=-1)", "assert open(f(1)) == 2",
)  # fmt: skip
DEEP = json.loads("[" * 52 + "]" * 52)
NO_JSON = ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "9" * (MOST_DIGITS + 1), "-1e400", "[NaN]", *(
    text * 50_000 for text in ('"', '\\"', '"\\', "[]", "{", "9")
))  # fmt: skip
SCHEMAS = [
    ({"type": "objekt"}, "$.type", "'objekt'"),
    ({"properties": {"a": {"minLength": "x"}}}, "$.properties.a.minLength"),
    *(({"$schema": schema}, "$schema", repr(schema)) for schema in ("http://example.com/mine", 7)),
    *((schema, "mapping") for schema in ([], True)),
    ({"const": float}, "no JSON"),
]
NO_PATTERNS = ("(", "(?<=a*)b", "x{99999999999999}")
NUMBERS = {  # one per check, and those whose bounds depend on another setting
    "arith": {"digits": (0, 10, 2.5, "2", True), "levels": (3,)},
    "length": {"maximum": ("many", "٣"), "minimum": (1000,)},
    "code": {"timeout": (0, True, NAN)},
    "numeric": {"tolerance": (-1, "0.1", INF)},
    "exact": {"ignore_case": ("yes",)},
}
NO_ORDER = ({0: 1.0, 1: 0.0}, {0.0, 1.0}, frozenset({0.0, 1.0}), {0: 1.0, 1: 0.0}.keys(), bytearray(b"ab"))
ROWS = [
    *(row(Verdict, {"reward": reward}, "float32", repr(reward)) for reward in (NAN, -INF, 1e39, "1")),
    *(row(Verdict, {"reward": reward}, "a verdict's reward") for reward in (np.ones(2), torch.ones(2), 1j, None)),
    *(row(Verdict, {"reward": 0.0, "parts": parts}, "parts", repr(parts)) for parts in ("late", None, {"a": "late"})),
    *(row(Verdict, {"reward": 0.0, "reason": reason}, "reason", repr(reason)) for reason in (None, ValueError("late"))),
    row(Verdict, {"reward": 0.0, "success": "no"}, "success", "'no'"),
    row(asking, {"scorer": solved}, "'task'", "solve(problem, client)"),
    row(asking, {"scorer": lone}, "'prompt'", "takes lists"),
    row(asking, {"scorer": declaring(inputs=["completion.tokens"])}, "['completion.tokens']", "completion.token_ids"),
    row(Verdict, {"reward": 0.0, "status": "failed"}, "status 'failed'", "ok, timeout, error, not_applicable"),
    row(Plain().verify_batch, {"problems": [Problem("a")] * 2, "completions": ["a"]}, "shorter"),
    *(row(rewards, {"value": value}, "list of numbers") for value in (None, "11")),
    *(row(rewards, {"value": value}, "<lambda>", type(value).__name__, "list of numbers") for value in NO_ORDER),
    *(row(rewards, {"value": [1.0] * count}, f"{count} rewards for 2") for count in (1, 3)),
    *(row(rewards, {"value": [thing, 1.0]}, "not a number") for thing in ([1.0], b"1", "x" * 10**6)),
    row(FunctionVerifier, {"function": max}, "not a reward function"),
    row(FunctionVerifier, {"function": environments}, "environments", "environments"),
    *(row(of(name), {each: value}) for name, given in NUMBERS.items() for each in given for value in given[each]),
    row(of("exact"), {"unicode": "NFK"}, "unicode", "'NFK'", "allowed: NFC"),
    row(of("countdown"), {"operators": "-"}),
    *(row(of("arith"), {"operators": value}, "+-*", repr(value)) for value in ("", "+/", None)),
    *(row(of("format"), {"tags": tags}, "tag") for tags in ([], 3, ["a", "a"], [1], "a,,b")),
    *(row(of("exact"), {"inside": tag}, "tag") for tag in ("/", "//think", "think/", "<a>", "1a", "ä", 3)),
    *(row(of("choice"), {"labels": labels}, "labels") for labels in ("", "Aa", "A,B")),
    *(row(of("regex"), {"pattern": pattern}, repr(pattern), "pattern") for pattern in NO_PATTERNS),
    *(row(of("regex"), {"pattern": pattern}, "pattern") for pattern in ("", 3)),
    *(row(of("json_schema"), {"schema": schema}, "json_schema", *names) for schema, *names in SCHEMAS),
    row(of("json_schema"), {"schema": "missing.json"}, "'missing.json'"),
    row(of("json_schema"), {"schema": "/dev/null"}, "pipe"),
    *(row(read_json, {"text": text}, "") for text in NO_JSON),
    row(encode, {"value": DEEP}, "50 deep"),
    row(decode, {"data": DEEP}, "50 deep"),
    row(judged_by, {}, "'tests'", "'cases'"),
    row(judged_by, {"tests": ["assert f() == 1"], "cases": [{"input": "", "output": "1"}]}, "'tests'", "'cases'"),
    *(row(judged_by, {"tests": tests}, "'tests'", "list") for tests in ([], "assert f() == 1")),
    *(row(judged_by, {"cases": [case]}, "case") for case in (("1", "2"), {"input": "1", "output": 1})),
    row(judged_by, {"cases": [{"input": "1", "output": " \n"}]}, "some output"),
    *(row(judged_by, {"tests": [test]}, "assert f") for test in NO_TESTS),
    *(row(judged_by, {"test": test, "entry_point": "f"}, "check(candidate)") for test in ("def check(:", "x = 1", 3)),
    row(judged_by, {"test": "def check(f):\n    for x in [1]:\n        assert f(x)", "entry_point": "f"}, "for x in"),
    row(of("reasoning_gym:leg_countin"), {}, "'leg_countin'", "leg_counting"),
    row(of("reasoning_gym:chain_sum"), {"min_terms": 9, "max_terms": 2}, "min_terms=9", "max_terms=2"),
    *(row(of("weighted"), {"parts": parts}, "parts", "weights") for parts in ({}, ["arith"])),
    row(of("weighted"), {}, "parts", "--verifier arith,length=0.1"),
    *(row(of("weighted"), {"parts": {"arith": each}}, "'arith'", repr(each)[:5]) for each in ("1", NAN, 10**400)),
    row(of("weighted"), {"parts": {"talk": {"verifier": Echoing(), "weight": 1}}}, "'talk'", "dialogues"),
    row(made, {"spec": [half, "arith"], "reward_weights": [1.0]}, "reward_weights", "2"),
    row(made, {"spec": "arith,length:3=0.5", "reward_weights": [1, 2]}, "weights", "twice"),
    row(made, {"spec": ["arith", half], "digits": 3}, "'digits'", "list"),
    row(made, {"spec": Plain(), "reward": 0.5}, "'reward'", "finished"),
    row(made, {"spec": "arith", "digit": 2}, "arith", "'digit'"),
    row(made, {"spec": "reasoning_gym"}, "reasoning_gym:TASK", "--verifier-arg task="),
    row(made, {"spec": "reward_model", "device": "cpu"}, "reward_model:MODEL", "--verifier-arg model="),
    row(made, {"spec": Needing, "limit": 3}, "Needing", "--verifier-arg pattern="),
    row(made, {"spec": declaring(turns=4)}, "Declaring.turns", "Turns", "4"),
    row(made, {"spec": declaring(execution=True)}, "Declaring.execution", "Execution", "True"),
    *(
        row(made, {"spec": declaring(**{name: value})}, f"Declaring.{name} must be", f"got {value!r}")
        for name, values in UNFIT.items()
        for value in values
    ),
    row(made, {"spec": "arit"}, "'arit'", "did you mean 'arith'"),
    row(made, {"spec": "palindrome"}, "'palindrome'", "package of plugins"),
    row(made, {"spec": f"{Arith.__module__}:Missing"}, f"'{Arith.__module__}:Missing'", "'Missing'"),
    row(made, {"spec": "nowhere.py:f"}, "nowhere.py", "does not exist"),
    row(made, {"spec": "program:nowhere.py:solve"}, "nowhere.py", "does not exist"),
    row(checked, {"verifier": Arith(), "verdicts": [1.0], "count": 1}, "Arith: verify", "got 1: [1.0]"),
    row(first_opened, {"solve": 7}, "(problem, client)", "not callable"),
    row(first_opened, {"solve": int}, "int(problem, client)"),
    row(first_opened, {"solve": lambda problem: 0}, "(problem, client)", "1 positional argument"),
    row(Program, {"solve": agent, "turns": 0}, "turns", "0"),
    row(Program, {"solve": agent, "timeout": -1}, "timeout", "-1"),
    row(made, {"spec": "my.rewards.py"}, "my.rewards.py:my_function"),
    *(row(made, {"spec": spec}, "verifier", "name", "function") for spec in (None, {"arith": 1})),
    *(row(untrusted, {"spec": spec}, "--trust") for spec in (f"openenv:{URL}", "gym:my:Count-v0", "a.py:f")),
    row(isolate, {"verifier": Arith(), "workers": -1}, "verifier_workers", "-1"),
    row(isolate, {"verifier": Arith(), "timeout": INF}, "verifier_timeout", "inf"),
    row(
        Isolated, {"verifier": FunctionVerifier(lambda prompts, lock=LOCK: []), "workers": 1}, "<lambda>", "lock", "=0"
    ),
    *(row(Reply, {"content": "", "reward": reward}, "a reply's reward", "float32") for reward in (NAN, 1e39, None)),
    row(Reply, {"content": []}, "text or a list of messages"),
    row(Reply, {"content": [{"role": "assistant", "content": "x"}]}, "message 1", "'assistant'"),
    *(row(Reply, {"counts": each}, "counts") for each in ({"turns": 1}, {"appended": 1}, {"a": True}, {7: 1})),
    row(Turns(instead=lambda turn, fault: fault).in_place, {"turn": "", "fault": "late"}, "Turns.instead", "'late'"),
    row(talk, {"dialogue": "yes"}, "Opens.dialogue", "'yes'"),
    row(talk, {"reply": "yes"}, "Talks.reply", "'yes'"),
    row(talk, {"reply": Reply(verdict=2.0)}, "Reply", "Verdict", "2.0"),
    row(talk, {"last": 0.0}, "Talks.out_of_budget", "0.0"),
    row(tools, {"tools": "calculator"}, "tools", "functions or names"),
    row(tools, {"tools": ["calculater"]}, "'calculater'", "mean 'calculator'?"),
    row(tools, {"tools": ["file.py"]}, "file.py:my_function"),
    row(tools, {"tools": ["nowhere.py:f"]}, "nowhere.py:f"),
    *(row(tools, {"tools": [value]}, "a tool is a function") for value in (7, lambda x: x)),
    row(tools, {"tools": [positional]}, "'positional'", "x"),
    row(tools, {"tools": [half, half]}, "half, half"),
    row(made, {"spec": environment("Unpaid", get_reward=None)}, "Unpaid", "get_reward"),
    row(made, {"spec": environment("Broken", __init__=breaks)}, "Broken: __init__", "OSError: no disk", "refusals.py:"),
    row(made, {"spec": environment("NotAMethod", reset=5)}, "NotAMethod", "no method reset(**columns)"),
    row(opened, {"cls": STUMBLES}, "Stumbles.reset", "AttributeError", "test_refusals.py:"),
    row(opened, {"cls": NEEDS}, "Needs.reset", "'needed'"),
    row(opened, {"cls": NEEDS, "columns": {"needed": 1}, "turn": "done"}, "Needs.get_reward", "'much'"),
    row(of("gym:CartPole-v1"), {}, "gymnasium.spaces.Text"),
    row(of("gym:CartPole-v1"), {"pole": 1}, "TypeError", "'pole'"),
    row(of("gem:Coun-v0"), {}, "Count-v0"),
    row(of("textarena:GuesTheNumber-v0"), {}, "GuessTheNumber"),
    row(of("textarena:Chess-v0"), {}, "Chess-v0 is not supported", "Sudoku-v0"),
    *(row(of("openenv"), {"url": url}, "address", "http://127") for url in ("127.0.0.1:8000", "http://")),
    row(of("openenv:http://127.0.0.1:9"), {}, "http://127.0.0.1:9", "start the server"),
    row(reward_model, {"label": 2}),
    row(reward_model, {"success_reward": "high"}),
    row(reward_model, {"chat": True}, "chat=True", "tokenizer="),
    row(reward_model, {"device": "abacus"}),
    row(reward_model, {"tokenizer": "no/such/tokenizer"}, "'no/such/tokenizer'"),
    row(reward_model, {"tokenizer": None}, "tokenizer="),
    row(reward_model, {"sizes": {"vocab_size": 45}}, "46 tokens", "45"),
    row(reward_model, {"model": 3}, "classification head", "3"),
    row(right_turns, {"poser": Echoing(), "problem": Problem("a", "", {"turns": "abc"}), "rng": None}, "'turns'"),
    row(lint, {"verifier": FunctionVerifier(half), "name": "half"}, "half", "--problems"),
    row(lint, {"verifier": Arith(), "problems": []}, "Arith", "problems"),
    *(row(Problem, {"prompt": prompt}, *names) for prompt, *names in CONVERSATIONS),
    row(Problem, {"prompt": "1+4=", "answer": 5}, "answer", "got 5", "str(answer)"),
    row(right_turns, {"poser": FIVE, "problem": Problem("a"), "rng": None}, "Declaring.demonstration must", "got 5"),
    row(Problem, {"prompt": "1+4=", "answer": "5", "metadata": [1]}, "metadata", "got [1]"),
]


@pytest.mark.parametrize("start", range(0, len(ROWS), 25))
def test_a_setting_that_cannot_be_used_is_named_with_its_value(monkeypatch, start):
    """With small libraries in the places of gem and textarena."""
    for package, names in (("gem", ["Count-v0"]), ("textarena", ["GuessTheNumber-v0", "Chess-v0"])):
        monkeypatch.setitem(sys.modules, package, types.SimpleNamespace())
        registration = types.SimpleNamespace(ENV_REGISTRY=dict.fromkeys(names))
        monkeypatch.setitem(sys.modules, f"{package}.envs.registration", registration)
    monkeypatch.setitem(sys.modules, "websockets", threading)
    for each in ROWS[start : start + 25]:
        assert len(check_refused(*each.values)) < 600


NEEDED = {
    "math_verify": ("math", "math"),
    "reasoning_gym": ("reasoning_gym:leg_counting", "reasoning-gym"),
    "gem": ("gem:game:GuessTheNumber-v0", "gem"),
    "textarena": ("textarena:GuessTheNumber-v0", "textarena"),
    "websockets": (f"openenv:{URL}", "openenv"),
}


@pytest.mark.parametrize("package", NEEDED)
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    spec, extra = NEEDED[package]
    check_refused(make_verifier, {"spec": spec}, (f"pip install 'rlenv-lm[{extra}]'",))


def test_a_verifier_without_a_method_says_what_to_write_or_pass():
    with pytest.raises(NotImplementedError, match="Verifier does not make problems: pass problems"):
        Verifier().sample(random.Random(0))
    with pytest.raises(NotImplementedError, match="Verifier implements neither"):
        Verifier().verify(Problem("a"), "a")


def test_a_schema_or_pattern_of_a_problem_is_an_error_of_its_verdict(monkeypatch):
    monkeypatch.setattr(socket, "socket", None)  # nothing may be looked up
    for name, column, values in (
        ("json_schema", "schema", [schema for schema, *_ in SCHEMAS]),
        ("regex", "pattern", NO_PATTERNS),
    ):
        for value in values:
            verdict = make_verifier(name).verify(Problem("p", metadata={column: value}), "3")
            said = check_refused(of(name), {column: value}, ())
            assert (verdict.reward, verdict.status, verdict.reason) == (0.0, "error", said)
        assert make_verifier(name).verify(Problem("p"), "3").status == "error", "there is none"
    nowhere = ({"items": {"$ref": ref}} for ref in ("http://a.com/s.json", "file:///etc/x", "#/x/y", "#z"))
    for schema, said in (('{"type":', "no JSON"), *((each, "has no part") for each in nowhere)):
        cut = make_verifier("json_schema").verify(Problem("p", metadata={"schema": schema}), "[3]")
        assert (cut.reward, cut.status) == (0.0, "error") and said in cut.reason


def test_a_folder_that_is_no_reward_model_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    shape = GPT2Config(vocab_size=46, n_embd=16, n_layer=1, n_head=2)
    for folder in ("bare", "torn"):
        GPT2ForSequenceClassification(shape).save_pretrained(tmp_path / folder)
    GPT2LMHeadModel(shape).save_pretrained(tmp_path / "writer")
    (tmp_path / "torn" / "model.safetensors").write_bytes(b"\x00" * 100)
    named = dict.fromkeys(("none", "empty", "torn"), "cannot be loaded")
    for folder, part in (named | {"bare": "tokenizer=", "writer": "score.weight"}).items():
        check_refused(RewardModel, {"model": tmp_path / folder, "device": "cpu"}, (folder, part))
