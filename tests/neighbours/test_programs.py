"""Agents of other libraries learn through the endpoint, as they are: openai-agents 0.24.0, verifiers 0.4.0.

The two libraries need different versions of OpenAI's client, and others of transformers than ours, so each has an
environment of its own, from where it sees those of .venv:

    python -m venv /tmp/theirs && /tmp/theirs/bin/pip install openai-agents==0.24.0  # then verifiers==0.4.0
    /tmp/theirs/bin/pip uninstall --yes transformers tokenizers huggingface_hub safetensors numpy
    echo "import site; site.addsitedir('$PWD/.venv/lib/python3.11/site-packages')" \\
        > /tmp/theirs/lib/python3.11/site-packages/rlenv.pth
    PYTHONSAFEPATH=1 /tmp/theirs/bin/python -m pytest -n0 -m neighbours tests/neighbours/test_programs.py
"""

import asyncio
import sys
import types
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from rlenv.agents import RLOO
from rlenv.verifiers.builtin import Program

pytestmark = [pytest.mark.neighbours, pytest.mark.filterwarnings("ignore")]  # of the libraries
PROBLEMS = [{"prompt": text, "answer": "b"} for text in ("a", "ab")]


def needs(name, version):
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = "none"
    return pytest.mark.skipif(found != version, reason=f"needs {name} {version}, found {found}")


def outside(name):
    """Import a library whose name a folder of this checkout has, too."""
    here = {"", str(Path.cwd())}
    path, sys.path[:] = list(sys.path), [each for each in sys.path if each not in here]
    ours = {key: sys.modules.pop(key) for key in list(sys.modules) if key.partition(".")[0] == name}
    assert not ours, f"{name} is ours"
    try:
        return __import__(name, fromlist=["*"])
    finally:
        sys.path[:] = path


def check_learns(solve, updates=20, size=16):
    """Check that the share of right answers rises from the first three updates to the last three."""
    program = Program(solve, alphabet="ab\n", turns=2)
    envs = gym.make_vec(
        "TextGen-v0", size, verifier=program, problems=PROBLEMS, max_new_tokens=2, group_size=size // 2,
        test_fraction=0.0, verifier_workers=0, max_reply_tokens=8,
    )  # fmt: skip
    agent = RLOO(tiny_policy("gpt2", envs), envs, device="cpu", episodes_per_update=size, learning_rate=0.02)
    means, collect = [], agent.collector.collect

    def kept(*args, **kwargs):
        rollout = collect(*args, **kwargs)
        means.append(rollout.rewards.sum(1).mean().item())
        return rollout

    agent.collector.collect = kept
    torch.manual_seed(0)
    agent.learn(total_episodes=updates * size)
    envs.close()
    print("means", *(f"{each:.2f}" for each in means))
    assert sum(means[:3]) / 3 < 0.5 and sum(means[-3:]) / 3 > 0.8, means


@needs("openai-agents", "0.24.0")
def test_an_agent_of_openai_agents_learns():
    agents = outside("agents")
    models = outside("agents.models.openai_provider")
    from openai import AsyncOpenAI

    agents.set_default_openai_api("chat_completions")
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="b")

    async def run(problem, client):
        async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as api:
            config = agents.RunConfig(model_provider=models.OpenAIProvider(openai_client=api, use_responses=False))
            result = await agents.Runner.run(agent, problem.text, run_config=config)
        return float(problem.answer in result.final_output)

    check_learns(lambda problem, client: asyncio.run(run(problem, client)))


HARNESS = '''
from openai import AsyncOpenAI
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]


class ChatHarness(Harness[HarnessConfig]):
    """Chats in this process: verifiers' own `null` starts uv, which downloads packages."""

    APPENDS_SYSTEM_PROMPT, EXECUTES_CODE, NEEDS_CONTAINER = True, False, False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        messages = [{"role": "user", "content": data.prompt}]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as api:
            await api.chat.completions.create(model=ctx.model, messages=messages)
        return ProgramResult(0, "", "")
'''


@needs("verifiers", "0.4.0")
def test_a_task_of_verifiers_learns(tmp_path, monkeypatch):
    vf = outside("verifiers.v1")
    from verifiers.v1.clients import EvalClientConfig

    harness = types.ModuleType("rlenv_chat_harness")
    exec(HARNESS, harness.__dict__)
    monkeypatch.setitem(sys.modules, "rlenv_chat_harness", harness)
    harness.__spec__ = types.SimpleNamespace()

    class BData(vf.TaskData):
        answer: str

    class BTask(vf.Task[BData, vf.State, vf.TaskConfig]):
        @vf.reward
        async def right(self, trace) -> float:
            return float(self.data.answer in trace.last_reply)

    def solve(problem, client):
        monkeypatch.setenv("RLENV_EPISODE_KEY", client.api_key)
        endpoint = EvalClientConfig(base_url=client.base_url, api_key_var="RLENV_EPISODE_KEY")
        config = vf.AgentConfig(
            harness={"id": "rlenv_chat_harness"}, runtime={"type": "subprocess"}, model="policy", client=endpoint
        )
        task = BTask(BData(prompt=problem.text, answer=problem.answer), vf.TaskConfig())
        trace = asyncio.run(vf.Agent(config).run(task))
        if trace.errors:
            raise RuntimeError(str(trace.errors[0]))
        return float(trace.reward)

    check_learns(solve)
