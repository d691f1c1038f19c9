"""Tools in the environments: rendered, called, counted; single and batched alike."""

import gymnasium as gym
import pytest
from chat_families import chatml, deepseek_r1, llama2, llama3, mistral, qwen3

import rlenv  # noqa: F401
from verifiers import Arith, Problem, isolate
from verifiers.dialogues.calls import Call

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


def env_of(**kwargs):
    settings = {"verifier": "arith", "tools": [add, shout], "test_fraction": 0.0, "disable_env_checker": True, **kwargs}
    return gym.make("TextGen-v0", verifier_workers=0, **settings).unwrapped


def say(env, text):
    """Take the tokens of a turn and its end; return the reward, whether it is over, and the infos."""
    tokens = env.task.tokenizer.encode(text, add_special_tokens=False)
    for token in [*tokens, env.task.eos_token_id]:
        obs, reward, over, _, info = env.step(token)
    return obs, reward, over, info


def text_of(env, obs):
    return env.task.tokenizer.decode(obs["tokens"][: obs["length"]])


def test_a_plain_prompt_gets_results_as_lines():
    env = env_of(tools=["calculator", shout])
    _, info = env.reset(seed=0)
    obs, reward, over, info = say(env, "calc(12+34)\ncalc(2*")
    assert (reward, over, info["reply"]) == (0, False, "46")
    assert text_of(env, obs).endswith("calc(2*<eos>46\n"), "the second line is no call"
    *_, info = say(env, "shout(chinese)")
    assert info["reply"] == "Error: the reply has characters that cannot be written here"
    assert [message["role"] for message in env._exchange.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    _, reward, over, info = say(env, env.problem.answer)
    assert (reward, over) == (1, True) and info["is_success"]
    assert {key: info[key] for key in ("turns", "tool_calls", "tool_errors")} == {
        "turns": 3, "tool_calls": 2, "tool_errors": 1,
    }  # fmt: skip


HERMES = '<tool_call>{"name": "add", "arguments": {"a": 12, "b": 34}}</tool_call>'
SHOWS = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "<|im_start|>user{% endif %}{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_template_shows_the_tools_and_their_results():
    tokenizer = qwen3()
    tokenizer.chat_template = SHOWS
    env = env_of(problems=PROBLEMS, tokenizer=tokenizer, max_new_tokens=200)
    obs, info = env.reset(seed=0)
    assert '"name": "add"' in info["prompt"] and "The second." in info["prompt"] and info["prompt"].count("system") == 1
    obs, _, over, info = say(env, HERMES + HERMES.replace("34", "x", 1).replace("x", '"x"'))
    results = "<tool_response>\n46\n</tool_response>\n<tool_response>\nError: the argument b must be int, got 'x'\n"
    asked = f"<|im_end|>\n<|im_start|>user\n{results}</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert text_of(env, obs).endswith(asked) and not over
    assert info["reply"].startswith("tool: 46\ntool: Error")


@pytest.mark.parametrize("family", [chatml, llama3])
def test_a_template_without_tools_says_them_in_the_system_message(family):
    env = env_of(problems=PROBLEMS, tokenizer=family(), system_prompt="Be brief.")
    _, info = env.reset(seed=0)
    assert "Be brief.\n\nYou may call functions" in info["prompt"] and '"name": "shout"' in info["prompt"]
    plain = env_of(problems=PROBLEMS, tokenizer=family(), tools=[])
    assert "You may call" not in plain.reset(seed=0)[1]["prompt"]


@pytest.mark.parametrize(("family", "ends"), [(llama2, "[INST] 46 [/INST]"), (mistral, "[INST]  46[/INST]")])
def test_a_template_without_results_shows_them_as_the_users(family, ends):
    """These families write every other role as the assistant's."""
    tokenizer = family()
    tokenizer.chat_template = "{% if tools %}{{ tools | tojson }}{% endif %}" + tokenizer.chat_template
    env = env_of(problems=PROBLEMS, tokenizer=tokenizer)
    env.reset(seed=0)
    obs, *_ = say(env, HERMES)
    assert text_of(env, obs).rstrip().endswith(ends)
    obs, *_ = say(env, HERMES)
    assert text_of(env, obs).count("46") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [("long", "allowed: 300"), ("half", "cannot be written here"), ("chinese", "allowed: 300")],
)
def test_a_result_that_cannot_be_read_is_a_message(text, message):
    tokenizer = qwen3()
    tokenizer.chat_template = SHOWS
    env = env_of(problems=PROBLEMS, tokenizer=tokenizer, max_reply_tokens=300)
    env.reset(seed=0)
    *_, over, info = say(env, f'<tool_call>{{"name": "shout", "arguments": {{"text": "{text}"}}}}</tool_call>')
    assert not over
    assert info["reply"].startswith("Error: ") and message in info["reply"]
    *_, info = say(env, "46")
    assert (info["tool_calls"], info["tool_errors"]) == (1, 1)


def test_a_refusal_that_is_too_long_ends_the_episode_and_is_counted():
    env = env_of(max_reply_tokens=5)
    env.reset(seed=0)
    *_, over, info = say(env, "shout(long)")
    assert over and (info["tool_calls"], info["tool_errors"]) == (1, 1)


def test_special_tokens_of_calls_are_read_and_not_shown():
    turn = '<|python_tag|>{"name": "add", "parameters": {"a": 12, "b": 34}}'
    tokenizer = llama3()
    env = env_of(problems=PROBLEMS, tokenizer=tokenizer)
    tag = tokenizer.convert_tokens_to_ids("<|python_tag|>")
    body = tokenizer.encode(turn.removeprefix("<|python_tag|>"), add_special_tokens=False)
    env.reset(seed=0)
    for token in [tag, *body, env.task.eos_token_id]:
        *_, info = env.step(token)
    assert info["turn"] == turn.removeprefix("<|python_tag|>") and info["reply"] == "46"


def test_a_stop_token_may_be_the_end_of_a_call():
    tokenizer = qwen3()
    env = env_of(problems=PROBLEMS, tokenizer=tokenizer, stop_tokens="</tool_call>")
    env.reset(seed=0)
    tokens = tokenizer.encode(HERMES, add_special_tokens=False)
    for token in tokens:
        *_, info = env.step(token)
    assert info["turn"] == HERMES.removesuffix("</tool_call>") and info["reply"] == "46"


def test_a_tokenizer_may_say_how_calls_are_written():
    tokenizer = chatml()
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "tool_calls": {
                "open_pattern": r"@(?P<name>\w+)",
                "close": "@",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            },
            "content": {"close": "<|im_end|>", "content": "text"},
        },
    }
    env = env_of(problems=PROBLEMS, tokenizer=tokenizer)
    env.reset(seed=0)
    assert env.task.encoding.texts([tokenizer.encode('@add{"a": 1, "b": 2}@')], [True])[0].calls == [
        Call("add", {"a": 1, "b": 2})
    ]
    assert say(env, '@add{"a": 12, "b": 34}@@shout{"text": "ok"}@')[3]["reply"] == "tool: 46\ntool: OK"
    assert "arguments" in say(env, '@add{"a": 12}@')[3]["reply"]
    _, _, over, info = say(env, "@add{broken@ 46")
    assert over and info["tool_calls"] == 3


def test_a_call_in_a_thought_that_the_template_began_is_none():
    env = env_of(problems=PROBLEMS, tokenizer=deepseek_r1(), max_new_tokens=300)
    env.reset(seed=0)
    for thought in ("I could say", 'After "</think>" I would say'):
        _, _, over, info = say(env, f"{thought} {HERMES}")
        assert over and info["tool_calls"] == 0 and info["turns"] == 1
        env.reset(seed=0)
    _, _, over, info = say(env, f"Hm.</think>{HERMES}")
    assert not over and info["reply"] == "46"


def test_tools_need_a_schema_for_templates_only():
    def bare(a):
        return a

    assert env_of(tools=[bare]).reset(seed=0)
    tokenizer = chatml()  # its template and its form of calls are for conversations
    tokenizer.response_template = {"defaults": {"role": "assistant"}, "fields": {"content": {"content": "text"}}}
    env = env_of(tools=[bare], problems=[Problem("12+34=", "46")], tokenizer=tokenizer)
    env.reset(seed=0)
    assert say(env, "bare(1)")[3]["reply"] == "1"
    with pytest.raises(ValueError, match=r"tool 'bare': .*docstring"):
        env_of(tools=[bare], problems=PROBLEMS, tokenizer=chatml())


def test_tools_run_in_the_workers_of_an_isolated_verifier():
    inner = isolate(Arith(), workers=1)
    env = gym.make("TextGen-v0", verifier=inner, tools=[add], disable_env_checker=True).unwrapped
    assert env.task.judge.pool is not None and env.task.judge.pool.workers == 1
    env.reset(seed=0)
    assert say(env, "add(1, 2)")[3]["reply"] == "3"
    env.close()
    assert inner.verify(Problem("1+1=", "2"), "2").reward == 1, "the caller's verifier stays open"
    inner.close()
