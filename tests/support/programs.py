"""Programs that call a chat API: a good one, and hostile ones, each with its status and what its one line has to name.

Hostile ones talk to `client` as a user's would; the model says "2", then "3".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from typing import Any

from dialogues import Hashing

ASK = [{"role": "user", "content": "1+1="}]
TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Compute.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "Such as 1+1."}},
            "required": ["expression"],
        },
    },
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def say(client: Any, messages: Any = ASK, **request: Any) -> Any:
    return client.chat.completions.create(model="any", messages=messages, **request).choices[0].message


def agent(problem: Any, client: Any) -> Any:
    """Answer with a calculator."""
    messages: list[Any] = [user(problem.text)]
    for calls in range(5):
        answer = say(client, messages, tools=[TOOL])
        if not answer.tool_calls:
            return float((answer.content or "").strip() == problem.answer), {"calls": calls}
        messages.append(answer)
        for call in answer.tool_calls:
            left, right = json.loads(call.function.arguments)["expression"].split("+")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(int(left) + int(right))})
    return 0.0


def hashing(problem: Any, client: Any) -> Any:
    """Play `Hashing` from the other side, and return what all of its turns pay."""
    game, messages, total = Hashing(problem), [user(problem.text)], 0.0
    while True:
        try:
            turn = client.chat.completions.create(messages=messages).choices[0].message.content
        except Exception:  # the turns are used up
            return total + game.out_of_budget().reward
        reply = game.reply(turn)
        total += reply.reward
        if reply.verdict is not None:
            return total + reply.verdict.reward, dict(reply.verdict.parts)
        messages += [{"role": "assistant", "content": turn}, user(f"{reply.content}.")]


def twice(change: Any = None, **request: Any) -> Any:
    """Return a program whose second call has other messages or arguments."""

    def solve(problem: Any, client: Any) -> float:
        said = say(client, ASK, tools=[TOOL], max_tokens=8, stop=["\n"])
        messages = [*ASK, {"role": "assistant", "content": said.content}, user("sure?")]
        given = {"tools": [TOOL], "max_tokens": 8, "stop": ["\n"], **request}
        say(client, messages if change is None else change(messages), **given)
        return 1.0

    return solve


def calling(messages: Any = ASK, **request: Any) -> Any:
    def solve(problem: Any, client: Any) -> float:
        client.chat.completions.create(messages=messages, **request)
        return 1.0

    return solve


def then(act: Any, *arguments: Any) -> Any:
    """Return a program that calls once, then does this, and returns what that returns."""

    def solve(problem: Any, client: Any) -> Any:
        say(client)
        return act(*arguments)

    return solve


def returning(value: Any) -> Any:
    return then(lambda: value)


def fail(error: BaseException) -> None:
    raise error


def for_ever(act: Any, *arguments: Any) -> None:
    while True:
        act(*arguments)


def raises_at_once(problem: Any, client: Any) -> float:
    return float(problem.nothing)


def never_calls(problem: Any, client: Any) -> float:
    return 1.0


def hangs_at_once(problem: Any, client: Any) -> float:
    while True:
        pass


def ignores_interrupts(problem: Any, client: Any, seconds: float = 0.5) -> float:
    say(client)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            time.sleep(0.005)
    return 1.0


def insists(problem: Any, client: Any) -> float:
    """Repeat a refused call whatever it raises."""
    for _ in range(20):
        with contextlib.suppress(BaseException):
            say(client, n=2)
    return 1.0


def in_a_thread(client: Any) -> threading.Thread:
    """Start a call, and return its thread."""

    def call() -> None:
        with contextlib.suppress(BaseException):
            say(client)

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def calls_at_once(problem: Any, client: Any) -> float:
    for thread in [in_a_thread(client) for _ in range(2)]:
        thread.join()
    return 1.0


async def gathers(problem: Any, client: Any) -> float:
    await asyncio.gather(*(client.chat.completions.create(messages=ASK) for _ in range(2)))
    return 1.0


def ends_while_it_calls(problem: Any, client: Any) -> float:
    in_a_thread(client)
    while not client._ask.__self__._calling.locked():
        time.sleep(0.001)
    return 1.0


def forks() -> float:
    if os.fork() == 0:
        for_ever(time.sleep, 60)
    return 1.0


sleeps = then(time.sleep, 3600)


def draws_another(problem: Any, client: Any) -> float:
    said = say(client, ASK).content
    say(client, [*ASK, {"role": "assistant", "content": said}, user(f"{time.monotonic_ns()} {os.getpid()}")])
    return 1.0


AT_ONCE = calls_at_once, gathers, ends_while_it_calls
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
HOSTILE = [  # program, status, words
    (raises_at_once, "error", "AttributeError", "programs.py:"),
    (then(fail, OSError("no disk")), "error", "OSError: no disk"),
    (then(fail, SystemExit(3)), "error", "SystemExit"),
    (then(fail, KeyboardInterrupt()), "error", "KeyboardInterrupt"),
    (never_calls, "error", "never_calls never calls"),
    (then(for_ever, time.sleep, 0.005), "timeout", "0.2 s", "call 1"),
    (hangs_at_once, "timeout", "0.2 s", "call 0"),
    (ignores_interrupts, "timeout", "0.2 s", "call 1"),
    (insists, "error", "call 1", "n=2"),
    (calls_at_once, "error", "two calls"),
    (gathers, "error", "two calls"),
    (ends_while_it_calls, "error", "another call"),
    (returning(None), "error", "None", "reward"),
    (returning("1"), "error", "'1'"),
    (returning(float("nan")), "error", "nan"),
    (returning(1e39), "error", "1e+39"),
    (returning((1.0, 2.0)), "error", "2.0", "parts"),
    (returning((1.0, {"a": "b"})), "error", "'b'"),
    (calling("1+1="), "error", "list of messages"),
    (calling([]), "error", "empty"),
    (calling([7]), "error", "7", "role"),
    (calling([{"role": "wizard", "content": "x"}]), "error", "'wizard'"),
    (calling([{"role": "user", "content": " "}]), "error", "content"),
    (calling(IMAGE), "error", "not text"),
    (calling([*ASK, {"role": "assistant", "content": "2"}]), "error", "'user' or 'tool'"),
    (calling(n=2), "error", "call 1", "n=2", "1"),
    (calling(stream=True), "error", "stream=True"),
    (calling(logit_bias={}), "error", "'logit_bias'", "messages"),
    (calling(tools=["calculator"]), "error", "'calculator'"),
    (calling(max_tokens=0), "error", "max_tokens=0"),
    (calling(stop=[""]), "error", "stop="),
    (calling(response_format={"type": "json_object"}), "error", "json_object"),
    (twice(lambda said: [user("2+2="), *said[1:]]), "error", "call 2 begins anew"),
    (
        twice(lambda said: [said[0], {"role": "assistant", "content": "4"}, said[2]]),
        "error",
        "call 2 changes message 2",
    ),
    (twice(lambda said: [said[0], said[2]]), "error", "call 2 changes message 2"),
    (twice(lambda said: said[:1]), "error", "call 2 leaves out message 2"),
    (twice(lambda said: said[:2]), "error", "call 2 adds no message"),
    (twice(lambda said: [*said, {"role": "assistant", "content": "x"}]), "error", "call 2", "'assistant'"),
    (twice(lambda said: [*said, {"role": "system", "content": "x"}]), "error", "call 2", "'system'"),
    (twice(tools=[]), "error", "call 2", "tools"),
    (twice(max_tokens=4), "error", "call 2", "max_tokens"),
    (twice(stop=["!"]), "error", "call 2", "stop"),
]
HOSTILE_PROCESSES = [  # that only worker processes survive
    (then(forks), "ok", ""),
    (then(os._exit, 7), "error", "code 7"),
    (then(bytearray, 1 << 40), "error", "MemoryError"),
    (then(for_ever, os.write, 1, b"x" * 65536), "error", "printed"),
    (sleeps, "timeout", "s"),
    (draws_another, "error", "call 2", "verifier_workers=0"),
]
