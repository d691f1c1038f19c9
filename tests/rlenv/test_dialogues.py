"""Episodes of several turns, by hand, tools in them, and demonstrations; batches are in `laws/test_environment.py`."""

from itertools import cycle

import gymnasium as gym
import pytest
from chat_families import chatml, deepseek_r1, llama3, qwen3
from dialogues import LETTERS, Talker

from rlenv.demonstrations import demonstrate
from rlenv.task import TextGenTask
from rlenv.verifiers import Dialogue, Problem, Reply, Turns, Verdict, Verifier
from rlenv.verifiers.dialogues.calls import Call

EOS = 1


class Scripted(Verifier):
    """Answers every turn as the test says, and remembers what it heard and how often dialogues were closed."""

    alphabet = LETTERS
    prompt_length, answer_length, turns = 2, 3, Turns(3, reply_length=4)
    reward_range = (-1.0, 2.0)

    def __init__(self, *replies, closing=None):
        self.replies, self.last, self.closing = replies, Verdict(0.25), closing
        self.heard, self.closed = [], 0

    def sample(self, rng):
        return Problem("ab")

    def dialogue(self, problem):
        return Script(self)


class Script(Dialogue):
    def __init__(self, outer):
        self.outer, self.left = outer, list(outer.replies)

    def reply(self, turn):
        self.outer.heard.append(turn)
        reply = self.left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def out_of_budget(self):
        return self.outer.last

    def close(self):
        self.outer.closed += 1
        if self.outer.closing is not None:
            raise self.outer.closing


def single(verifier, **kwargs):
    settings = {"max_new_tokens": 3, "test_fraction": 0.0, "disable_env_checker": True, **kwargs}
    return gym.make("TextGen-v0", verifier=verifier, **settings).unwrapped


def play(env, text):
    """Take the tokens of a text, "$" for the end token; return what the last step returned."""
    env.reset(seed=0) if env._prompt is None else None
    for letter in text:
        out = env.step(EOS if letter == "$" else env.task.encoding.tokenizer.convert_tokens_to_ids(letter))
    return out


def context(env, obs):
    return env.task.encoding.tokenizer.decode(obs["tokens"][: obs["length"]]).replace("<eos>", "$")


def test_a_reply_is_appended_after_a_turn_and_pays_for_it():
    verifier = Scripted(Reply("dd", 0.5), Reply(reward=0.125, verdict=Verdict(1.0, {"right": 1.0})))
    env = single(verifier)
    obs, reward, over, cut, info = play(env, "c$")
    assert context(env, obs) == "abc$dd" and (reward, over, cut) == (0.5, False, False)
    assert info == {"turn": "c", "reply": "dd", "appended": 2}
    obs, reward, over, cut, info = play(env, "b$")
    assert context(env, obs) == "abc$ddb$" and (reward, over, cut) == (1.125, True, False)
    assert info["completion"] == "b" and info["turns"] == 2 and info["verdict"] == {"right": 1.0} and info["is_success"]
    said = [("user", "ab"), ("assistant", "c"), ("user", "dd"), ("assistant", "b")]
    assert info["messages"] == [{"role": role, "content": content} for role, content in said]
    assert verifier.heard == ["c", "b"] and verifier.closed == 1


def test_a_turn_that_was_cut_off_gets_its_end_token():
    env = single(Scripted(Reply("d"), Reply(), Reply()))
    obs, _, over, _, info = play(env, "ccc")
    assert context(env, obs) == "abccc$d" and not over and info["appended"] == 2
    assert play(env, "c$")[4]["appended"] == 0, "an empty reply"
    over, cut = play(single(Scripted(Reply(verdict=Verdict(1.0)))), "ccc")[2:4]
    assert over and cut, "a verdict on a turn that was cut off"


def test_a_turn_that_ends_with_the_first_token_of_its_reply_has_it_once():
    """As turns of GLM do, whose template has no end of turn."""
    tokenizer = chatml()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|im_end|>' if m.role == 'assistant' else '<|im_start|>' }}{{ m.content }}"
        "{% endfor %}{% if add_generation_prompt %}<|im_end|>{% endif %}"
    )
    asked = "<|im_start|>ab<|im_end|>a"
    for turn, between in (("a$", "<|im_start|>"), ("aaa", "aa<|im_start|>")):
        env = single(Scripted(Reply("d")), tokenizer=tokenizer, chat=True, stop_tokens=1, max_reply_tokens=9)
        assert context(env, play(env, turn)[0]) == f"{asked}{between}d<|im_end|>"


@pytest.mark.parametrize(
    ("limits", "turns", "reward", "read"),
    [
        ({}, 3, 0.75, "aba$dda$dda$"),  # the last reply is not read
        ({"max_context_tokens": 8}, 2, 0.75, "aba$dda$"),
        ({"max_context_tokens": 6}, 1, 0.75, "aba$"),  # no room for a token after the reply
        ({"max_context_tokens": 7}, 2, 0.75, "aba$dda"),  # a turn ends where the context does
        ({"max_reply_tokens": 1}, 1, 0.75, "aba$"),
    ],
)
def test_turns_or_the_context_run_out(limits, turns, reward, read):
    env = single(Scripted(*[Reply("dd", 0.5)] * 3), **limits)
    for letter in cycle("a$"):
        obs, paid, over, cut, info = play(env, letter)
        if over:
            break
    assert (info["turns"], paid, cut, context(env, obs)) == (turns, reward, True, read) and "appended" not in info
    assert env.observation_space.contains(obs)


def test_a_stop_string_ends_a_turn_and_stays_in_its_text():
    verifier = Scripted(Reply("d"), Reply(verdict=Verdict(1.0)))
    env = single(verifier, stop_strings=["bc", "dd"])
    obs, _, over, _, info = play(env, "bc")
    assert context(env, obs) == "abbcd" and info["turn"] == "bc" and not over
    assert play(env, "dd")[2] and verifier.heard == ["bc", "dd"]


@pytest.mark.parametrize(
    ("reply", "error", "named"),
    [(KeyError("lost"), KeyError, "lost"), (Reply("xyz"), ValueError, "xyz")],
    ids=["raises", "cannot be spelled"],
)
def test_failing_replies_are_errors_of_the_verifier(reply, error, named):
    with pytest.raises(error, match=named):
        play(single(Scripted(reply)), "$")
    *_, reward, over, cut, info = play(single(Scripted(reply), flag_errors=True), "$")
    assert (reward, over, cut) == (0, True, False) and info["verdict_status"] == "error"
    assert named in info["verdict_reason"] and info["verifier_failed"]


def ends(turn, fault):
    return Reply(verdict=Verdict(0.75))


def fails(turn, fault):
    raise KeyError("lost")


def leaves(turn, fault):
    raise SystemExit("lost")


@pytest.mark.parametrize(
    ("instead", "reward", "status"), [(ends, 0.75, "ok"), (fails, 0, "error"), (leaves, 0, "error")]
)
@pytest.mark.parametrize(
    ("reply", "settings"), [(Reply("ddddddd", 0.5), {"flag_errors": True}), (OSError(), {"verifier_workers": 1})]
)
def test_a_verdict_in_place_of_a_reply_ends_the_episode_and_a_failure_there_too(
    reply, settings, instead, reward, status
):
    verifier = Scripted(reply)
    verifier.turns = Turns(3, 4, instead=instead)
    env = single(verifier, **settings)
    _, paid, over, _, info = play(env, "a$")
    env.close()
    assert (paid, over, info.get("verdict_status")) == (reward, True, status)
    assert ("lost" in info["verdict_reason"]) == (status == "error")


class Dealing(Scripted):
    """Deals the cards of its problem, one for every turn."""

    def dialogue(self, problem):
        cards = problem.metadata["cards"]
        replies = [Reply("d" * cards.pop()) for _ in range(len(cards))]
        return Script(Scripted(*replies, Reply(verdict=Verdict(1.0))))


class Hand:
    def reset(self, cards, **columns):
        self.cards = cards
        return f"{self.cards.pop()}"

    def get_reward(self):
        return len(self.cards)


def deal(problem, client):
    messages, cards = problem.prompt, problem.metadata["cards"]
    while cards:
        client.chat.completions.create(model="-", messages=messages)
        messages += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "d" * cards.pop()}]
    return float(len(messages))


@pytest.mark.parametrize("verifier", [Dealing(), Hand, deal], ids=["dialogue", "environment class", "program"])
def test_what_an_episode_changes_in_its_problem_is_as_before_in_the_next_one(verifier):
    asked = [{"role": "user", "content": "ab"}] if verifier is deal else "ab"
    problems = [{"prompt": asked, "cards": [1, 3, 2]}]
    env, ends = single(verifier, problems=problems, verifier_workers=0, max_reply_tokens=20), []
    for _ in range(2):
        env.reset()
        over, seen = False, []
        while not over:
            obs, reward, over, _, info = play(env, "a$")
            seen.append((context(env, obs), reward, info.get("verdict_status")))
        ends.append(seen)
    assert ends[0] == ends[1] and seen[-1][2] == "ok"


def test_a_dialogue_is_closed_when_it_is_given_up_and_if_that_fails_it_is_an_error_or_a_warning():
    verifier = Scripted(Reply("d"), closing=OSError("gone"))
    env = single(verifier, flag_errors=True)
    for give_up in (env.reset, env.close):
        play(env, "c$")
        with pytest.warns(UserWarning, match=r"^Script\.close failed: OSError: gone"):
            give_up()
    assert verifier.closed == 2
    with pytest.raises(OSError, match="gone"):
        play(single(Scripted(Reply(verdict=Verdict(1.0)), closing=OSError("gone"))), "a$")


@pytest.mark.parametrize(("second", "verdict", "status"), [(1.0, 0.0, "error"), (0.0, -2.0, "ok")])
def test_the_reward_of_all_turns_must_be_in_the_declared_range(second, verdict, status):
    replies = Reply("d", 1.5), Reply(reward=second, verdict=Verdict(verdict))
    info = play(single(Scripted(*replies)), "a$a$")[4]
    assert info["verdict_status"] == status
    assert status == "ok" or "the reward 2.5 (of its turns: 2.5)" in info["verdict_reason"]


# Tools: rendered, called, counted.


PROBLEMS = [Problem([{"role": "user", "content": "12+34="}], "46"), Problem([{"role": "user", "content": "1+1="}], "2")]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def shout(text: str) -> str:
    """Say it louder.

    Args:
        text: What to say.
    """
    return {"long": "x" * 400, "half": "\ud800", "chinese": "数" * 200}.get(text, text.upper())


def env_of(tokenizer=None, **kwargs):
    """Return an environment with tools whose first episode has begun, and the infos of its start."""
    chat = {} if tokenizer is None else {"problems": PROBLEMS, "tokenizer": tokenizer}
    settings = {"verifier": "arith", "tools": [add, shout], "verifier_workers": 0, **chat, **kwargs}
    env = gym.make("TextGen-v0", disable_env_checker=True, **settings).unwrapped
    return env, env.reset(seed=0)[1]


def say(env, turn):
    """Take the tokens of a turn and its end; return the context's text, whether it is over, and the infos."""
    if isinstance(turn, str):
        turn = [*env.task.encoding.tokenizer.encode(turn, add_special_tokens=False), env.task.encoding.eos_token_id]
    for token in turn:
        obs, _, over, _, info = env.step(token)
    return env.task.encoding.tokenizer.decode(obs["tokens"][: obs["length"]]), over, info


def test_a_plain_prompt_gets_results_as_lines():
    env, _ = env_of(tools=["calculator", shout])
    text, over, info = say(env, "calc(12+34)\ncalc(2*")
    assert (over, info["reply"]) == (False, "46")
    assert text.endswith("calc(2*<eos>46\n"), "the second line is no call"
    assert say(env, "shout(chinese)")[2]["reply"] == "Error: the reply has characters that cannot be written here"
    _, over, info = say(env, env.problem.answer)
    assert over and info["is_success"]
    assert [each["role"] for each in info["messages"]] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert [info[key] for key in ("turns", "tool_calls", "tool_errors")] == [3, 2, 1]


HERMES = '<tool_call>{"name": "add", "arguments": {"a": 12, "b": 34}}</tool_call>'
SHOWS = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "<|im_start|>user{% endif %}{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(tokenizer, template):
    tokenizer.chat_template = template
    return tokenizer


def test_a_template_shows_the_tools_and_their_results():
    env, info = env_of(with_template(qwen3(), SHOWS), max_new_tokens=200)
    assert '"name": "add"' in info["prompt"] and "The second." in info["prompt"] and info["prompt"].count("system") == 1
    text, over, info = say(env, HERMES + HERMES.replace("34", '"x"'))
    results = "<tool_response>\n46\n</tool_response>\n<tool_response>\nError: the argument b must be int, got 'x'\n"
    asked = f"<|im_end|>\n<|im_start|>user\n{results}</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert text.endswith(asked) and not over
    assert info["reply"].startswith("tool: 46\ntool: Error")


@pytest.mark.parametrize("family", [chatml, llama3])
def test_a_template_without_tools_says_them_in_the_system_message(family):
    _, info = env_of(family(), system_prompt="Be brief.")
    assert "Be brief.\n\nYou may call functions" in info["prompt"] and '"name": "shout"' in info["prompt"]
    assert "You may call" not in env_of(family(), tools=[])[1]["prompt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("long", "allowed: 300"), ("half", "cannot be written here"), ("chinese", "allowed: 300")],
)
def test_a_result_that_cannot_be_read_is_a_message(text, message):
    env, _ = env_of(with_template(qwen3(), SHOWS), max_reply_tokens=300)
    _, over, info = say(env, f'<tool_call>{{"name": "shout", "arguments": {{"text": "{text}"}}}}</tool_call>')
    assert not over and info["reply"].startswith("Error: ") and message in info["reply"]
    info = say(env, "46")[2]
    assert (info["tool_calls"], info["tool_errors"]) == (1, 1)


def test_special_tokens_of_calls_are_read_and_not_shown_also_as_stop_tokens():
    call = '{"name": "add", "parameters": {"a": 12, "b": 34}}'
    env, _ = env_of(llama3())
    tag = env.task.encoding.tokenizer.convert_tokens_to_ids("<|python_tag|>")
    *_, info = say(env, [tag, *env.task.encoding.encoder.ids([call])[0], env.task.encoding.eos_token_id])
    assert info["turn"] == call and info["reply"] == "46"
    env, _ = env_of(qwen3(), stop_tokens="</tool_call>")
    *_, info = say(env, env.task.encoding.tokenizer.encode(HERMES, add_special_tokens=False))
    assert info["turn"] == HERMES.removesuffix("</tool_call>") and info["reply"] == "46"


def test_a_tokenizer_may_say_how_calls_are_written():
    tokenizer = chatml()
    function = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
    calls = {"open_pattern": r"@(?P<name>\w+)", "close": "@", "repeats": True, "content": "json", "transform": function}
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"tool_calls": calls, "content": {"close": "<|im_end|>", "content": "text"}},
    }
    env, _ = env_of(tokenizer)
    [text] = env.task.encoding.texts([tokenizer.encode('@add{"a": 1, "b": 2}@')], [True])
    assert text.calls == [Call("add", {"a": 1, "b": 2})]
    assert say(env, '@add{"a": 12, "b": 34}@@shout{"text": "ok"}@')[2]["reply"] == "tool: 46\ntool: OK"
    assert "arguments" in say(env, '@add{"a": 12}@')[2]["reply"]
    _, over, info = say(env, "@add{broken@ 46")
    assert over and info["tool_calls"] == 3


def test_a_call_in_a_thought_that_the_template_began_is_none():
    env, _ = env_of(deepseek_r1(), max_new_tokens=300)
    for thought in ("I could say", 'After "</think>" I would say'):
        _, over, info = say(env, f"{thought} {HERMES}")
        assert over and info["tool_calls"] == 0 and info["turns"] == 1
        env.reset(seed=0)
    _, over, info = say(env, f"Hm.</think>{HERMES}")
    assert not over and info["reply"] == "46"


def test_tools_need_a_schema_for_templates_only():
    def bare(a):
        return a

    assert env_of(tools=[bare])
    tokenizer = chatml()  # its template and its form of calls are for conversations
    tokenizer.response_template = {"defaults": {"role": "assistant"}, "fields": {"content": {"content": "text"}}}
    env, _ = env_of(tokenizer, tools=[bare], problems=[Problem("12+34=", "46")])
    assert say(env, "bare(1)")[2]["reply"] == "1"
    with pytest.raises(ValueError, match=r"tool 'bare': .*docstring"):
        env_of(chatml(), tools=[bare])


# Demonstrations: the turns are the verifier's, the replies are what the environment answers.


@pytest.mark.parametrize(
    "settings",
    [{}, {"tokenizer": chatml(), "chat": True}, {"stop_strings": ["c"]}, {"verifier_workers": 1}],
    ids=["plain", "chat", "stop strings", "workers"],
)
def test_playing_the_turns_back_gives_the_same_context(settings):
    env = single(Talker("ab", "c", "d"), max_new_tokens=None, **settings)
    env.reset(seed=3)
    shown = demonstrate(env.task, 0, 1)
    tokens, actions, positions = shown.observations["tokens"][0], shown.actions[0], shown.positions[0]
    assert shown.mask.all() and tokens[positions].tolist() == actions.tolist()
    steps = [env.step(action) for action in actions.tolist()]
    length = int(positions[-1]) + 1
    assert steps[-1][0]["tokens"][:length].tolist() == tokens[:length].tolist() and steps[-1][2]
    turns = [(info["turn"], info["reply"]) for *_, info in steps if "reply" in info]
    assert turns == [("ab", "abab"), ("c", "cc")] and int(shown.observations["length"][0]) == int(positions[0])
    env.close()


def test_dialogues_of_demonstrations_are_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(Dialogue, "close", lambda self: closed.append(1))
    demonstrate(TextGenTask(Talker("ab", "c", "d")), 0, 3)
    assert len(closed) == 3


def test_the_turns_in_a_column_of_listed_problems_are_shown():
    problems = [{"prompt": "a", "answer": "d", "turns": turns} for turns in (["abcabc", "d"], ["d"])]
    task = TextGenTask(Talker("c", "d"), problems=problems, test_fraction=0.0, max_reply_tokens=12)
    shown = demonstrate(task, 0, 2)
    rows = zip(shown.actions, shown.mask, strict=True)
    said = [task.encoding.tokenizer.decode(row[keep].tolist()) for row, keep in rows]
    assert sorted(said) == ["abcabc<eos>d<eos>", "d<eos>"] and task.encoding.max_new_tokens == 7


def test_all_demonstrations_that_are_too_long_are_counted():
    """One is as long as is allowed: with its end token, four tokens."""
    problems = [{"prompt": "+", "answer": answer} for answer in ("1234567", "12", "123", "1234", "12345")]
    settings = {"problems": problems, "test_fraction": 0.0}
    with pytest.raises(ValueError, match=r"3 of 5 .* 4 tokens, .* 8.*max_new_tokens=8"):
        demonstrate(TextGenTask("exact", **settings, max_new_tokens=4), 0, 5)
    demonstrate(TextGenTask("exact", **settings, max_new_tokens=8), 0, 5)
