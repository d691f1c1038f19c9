"""vLLM in this process: `engine="vllm"`. Several processes ask one that runs elsewhere, see `server.py`.

The engine gets the model's configuration and no weights; they are sent before each rollout. Its log-probabilities are
of the distribution that tokens were drawn from (`processed_logprobs`).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from rlenv._checks import first_line

from .. import processes
from ..devices import HALVES
from ..errors import EngineError
from ..language.adapters import NAME
from .base import Engine, Request, Written, weights_of

VERSION = "0.32.0"  # the only one that is tested: its interfaces for training change from month to month
HELP = f"pip install 'rlenv-lm[vllm]' (without a GPU: see docs/scaling.md), version {VERSION}"
SHARE = 0.4  # of the memory of the GPU that it takes; the rest is for training
KV_CACHE = 2**30  # bytes, on a CPU
COLDEST, HOTTEST = 0.01, 2.0  # temperatures: it raises smaller ones, and refuses larger ones
ADAPTER = "rlenv"  # name of an adapter in the engine


def check_vllm() -> None:
    """Check that vLLM can run in this process, without importing it.

    Raises:
        ValueError: if there are several processes, or it is not installed.
    """
    if processes.size() > 1:
        raise ValueError(f"{processes.size()} processes need one engine that all of them ask: pass engine_url")
    if find_spec("vllm") is None:
        raise ValueError(f"engine='vllm' needs vllm: {HELP}")


def check_temperature(temperature: float) -> None:
    """Check that vLLM draws at this temperature.

    Raises:
        ValueError: naming the allowed ones.
    """
    if not COLDEST <= temperature <= HOTTEST:
        raise ValueError(f"temperature={temperature:g} is not one that vllm takes; use {COLDEST:g} to {HOTTEST:g}")


def library() -> Any:
    """Return vllm.

    Raises:
        ValueError: if it is not installed, or another version.
    """
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # weights are handed over in memory
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # training has its threads in the same process
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        found = import_module("vllm")
    except ImportError as error:
        raise ValueError(f"engine='vllm' needs vllm: {HELP} ({first_line(error)})") from error
    if found.__version__.partition("+")[0] != VERSION:
        raise ValueError(f"engine='vllm' is tested with one version, and this is {found.__version__}: {HELP}")
    return found


class VllmEngine(Engine):
    """vLLM's `LLM` in this process.

    Args:
        policy: of language; what its model and adapter are.
        arguments: further ones of `vllm.LLM`, such as tensor_parallel_size=4.

    Raises:
        ValueError: if vLLM cannot run this model with these arguments.
    """

    def __init__(self, policy: Any, **arguments: Any) -> None:
        vllm, model = library(), policy.model
        self._params, self._adapter = vllm.SamplingParams, None
        self._adapters = 0  # sent so far
        self._errors = (import_module("vllm.exceptions").VLLMError, RuntimeError, ValueError)
        on_gpu = policy.device.type == "cuda"
        usual: dict[str, Any] = {
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "logprobs_mode": "processed_logprobs",
            "hf_overrides": {"vocab_size": policy.vocab_size},
            "dtype": str(model.dtype).removeprefix("torch."),
            "max_model_len": policy.max_length,
            "enforce_eager": not on_gpu,
            "gpu_memory_utilization": SHARE,
            **({"enable_lora": True, "max_lora_rank": _rank(policy)} if keeps_adapter(policy) else {}),
        }
        if not on_gpu:
            usual["kv_cache_memory_bytes"] = KV_CACHE
        set_threads = torch.set_num_threads
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
            model.config.save_pretrained(folder)
            try:
                self.llm = vllm.LLM(model=folder, **usual | arguments)
            except (TypeError, ValueError) as error:
                raise ValueError(f"vllm cannot run this model: {' '.join(str(error).split())}") from error
            finally:
                torch.set_num_threads = set_threads  # in place of it vLLM puts a function that does nothing

    @override
    def write(self, requests: Sequence[Request]) -> Iterator[Written]:
        params = [self._params(**sampling(request)) for request in requests]
        prompts = [{"prompt_token_ids": request.context} for request in requests]
        try:
            outputs = self.llm.generate(prompts, params, use_tqdm=False, lora_request=self._adapter)
        except self._errors as error:
            raise EngineError(f"vllm ended with an error: {first_line(error)}") from error
        for place, output in enumerate(outputs):
            (answer,) = output.outputs
            log_probs = answer.logprobs.logprobs if answer.logprobs is not None else []
            yield Written(place, list(answer.token_ids), log_probs)

    @override
    @torch.no_grad()
    def load(self, policy: Any) -> None:
        keeps = keeps_adapter(policy)
        if not (keeps and self._adapters):  # under an adapter the base stays as it was
            whole = weights_of(policy, merges=not keeps, cuts=True)
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": whole})
        if keeps:
            self._adapters += 1
            with tempfile.TemporaryDirectory() as folder:
                policy.adapter.save(Path(folder), with_base=False)
                request = import_module("vllm.lora.request").LoRARequest(ADAPTER, self._adapters, folder)
                self.llm.llm_engine.add_lora(request)
            if self._adapter is not None:
                self.llm.llm_engine.remove_lora(self._adapter.lora_int_id)
            self._adapter = request
        if not self.llm.reset_prefix_cache():
            raise EngineError("vllm did not drop its cache of prefixes, which is of old weights: a request is open")


def sampling(request: Request) -> dict[str, Any]:
    """Return vLLM's sampling parameters of a request."""
    return {
        "temperature": request.temperature,
        "max_tokens": request.most,
        "stop_token_ids": list(request.stop_token_ids),
        "ignore_eos": True,  # the environment says what ends a turn
        "seed": request.seed,
        "logprobs": 0 if request.temperature else None,  # of the drawn token alone
        "flat_logprobs": True,
        "detokenize": False,
    }


def keeps_adapter(policy: Any) -> bool:
    """Return whether the engine gets an adapter beside the base: merged into 16 bits it would be rounded away."""
    return policy.adapter is not None and policy.model.dtype in HALVES


def _rank(policy: Any) -> int:
    """Return the smallest rank that vLLM can be started with for a policy's adapter."""
    rank = policy.model.peft_config[NAME].r
    return next(each for each in (8, 16, 32, 64, 128, 256, 320, 512) if each >= rank)
