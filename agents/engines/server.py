"""vLLM's server, on other devices or machines: `engine="vllm", engine_url="http://..."`; `START` says how it starts.

All processes of a job ask the same server; the main one sends the weights as files in a folder that both see. Each set
of weights has a version, which every answer names: a server that was started again has another. It is set before they
are sent, so that no server has it without them; and no prefix of another is read.
"""

from __future__ import annotations

import tempfile
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from typing_extensions import override

from rlenv._checks import check_number, first_line
from rlenv._http import BUSY, Response, ask, bearer, is_address, printable
from rlenv._loop import in_threads, results

from .. import processes
from ..errors import EngineError
from ..fsdp import full
from ..language.adapters import WEIGHTS, Adapter
from .base import Engine, Request, StaleEngineError, Written, weights_of
from .vllm import keeps_adapter, sampling

TOKEN = "RLENV_ENGINE_TOKEN"  # of the environment's variables
START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs"
FOR_ADAPTERS = "--enable-lora, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
GENERATE = "inference/v1/generate"
LOADS = RELOAD, ADD_ADAPTER = "collective_rpc", "v1/load_lora_adapter"  # a server reads files for these
AT_ONCE = 256  # requests that are sent before an answer comes
MOST_BYTES, MOST_PER_TOKEN = 2**18, 2**10  # of an answer


class ServerEngine(Engine):
    """A `vllm serve` that runs elsewhere.

    Args:
        url: of the server.
        policy: of language; whether its vocabulary is a part of the model's counts.
        folder: that the server sees, too, for weights as files; None for a temporary one on this machine.
        patience: seconds for which an answer is waited for, and for which a server that is away is asked again.
        others: none; they are arguments of the server itself.

    Raises:
        ValueError: for an address or a patience that is none, or other arguments.
    """

    def __init__(
        self, url: str, policy: Any, folder: str | None = None, patience: float = 600.0, **others: Any
    ) -> None:
        if others:
            raise ValueError(f"engine argument {min(others)!r} is of vllm serve; with engine_url: folder or patience")
        if not is_address(url):
            raise ValueError(
                f"engine_url={url!r:.200} is not an address; write it as http://localhost:8000, a token into {TOKEN}"
            )
        self.url, self.folder = url.rstrip("/"), folder
        self.patience = check_number("patience", patience, low=0.0, above=True)
        padding = range(policy.vocab_size, policy.model.config.get_text_config().vocab_size)
        self._never = {"logit_bias": dict.fromkeys(padding, -1e9)} if padding else {}
        self._version = ""
        self._model: dict[str, str] = {}  # that requests name: the adapter, if any

    @override
    def write(self, requests: Sequence[Request]) -> Iterator[Written]:
        count = len(requests)
        try:
            with in_threads(lambda place: self._written(place, requests[place], count), range(count), AT_ONCE) as asked:
                answers = results(asked, self.goes_on)
        except ConnectionError as error:
            self._patiently("weight_info")
            raise StaleEngineError(f"the engine at {self.url} was away ({first_line(error)})") from error
        for written, versions in answers:
            if versions != {self._version}:
                raise StaleEngineError(f"the engine at {self.url} was started again, without the weights of this run")
            yield written

    def _written(self, place: int, request: Request, count: int) -> tuple[Written, set[Any]]:
        """Return the answer to one of `count` requests, and the versions of the weights that it was written with."""
        params = sampling(request) | self._never
        asked = {"token_ids": request.context, "sampling_params": params, "cache_salt": self._version, **self._model}
        answer = self._ask(GENERATE, asked, MOST_BYTES + MOST_PER_TOKEN * request.most)
        needed = f"choices with token_ids, logprobs and weight_versions, in request {place + 1} of {count}"
        with self._reading(GENERATE, needed):
            (choice,) = answer.json()["choices"]
            versions = {span["version"] for span in choice["weight_versions"] or ()}
            said = (choice["logprobs"] or {}).get("content") or []
            return Written(place, choice["token_ids"], [each["logprob"] for each in said]), versions

    @override
    def load(self, policy: Any) -> None:
        self._version, known = processes.on_main(self._begin)
        keeps = keeps_adapter(policy)
        if not (keeps and known):  # under an adapter the base stays as it was
            self._send_file(policy, weights_of(policy, merges=not keeps), "model.safetensors")
        if keeps:
            named = Adapter(policy.model).named_weights()  # with shards, the policy's own has no values
            self._send_file(policy, ((each, full(weight).detach()) for each, weight in named.items()), WEIGHTS)
        self._model = {"model": self._version} if keeps else {}

    def _begin(self) -> tuple[str, bool]:
        """Name the next version of the weights; return it, and whether the server had the version before it."""
        answer = self._patiently("weight_info")
        with self._reading("weight_info", "weight_version"):
            known = answer.json()["weight_version"] == self._version
        version = uuid.uuid4().hex
        self._patiently("update_weight_version", {"new_version": version})
        return version, known

    def _send_file(self, policy: Any, weights: Iterable[tuple[str, torch.Tensor]], name: str) -> None:
        """Write weights into a file of this name, and let the server load its folder."""
        whole = {}
        for each, found in weights:  # in all processes
            if processes.is_main():
                whole[each] = found.to("cpu", copy=True).contiguous()  # tied ones must not share memory

        def send() -> None:
            with tempfile.TemporaryDirectory(prefix="rlenv-", dir=self.folder) as folder:
                save_file(whole, Path(folder, name))
                if name == WEIGHTS:
                    policy.adapter.save_config(Path(folder))
                    self._patiently(ADD_ADAPTER, {"lora_name": self._version, "lora_path": folder})
                else:
                    self._patiently(RELOAD, {"method": "reload_weights", "kwargs": {"weights_path": folder}})

        processes.on_main(send)

    # HTTP.

    def _patiently(self, path: str, body: Any = None) -> Response:
        """Return an answer; a server that is away is asked again, while there is patience and the training goes on."""
        until, wait = time.monotonic() + self.patience, 0.5
        while True:
            try:
                return self._ask(path, body)
            except ConnectionError as error:
                said, left = f"the engine at {self.url} is away ({first_line(error)})", until - time.monotonic()
                if not self.goes_on():
                    raise CancelledError(said) from error
                if left <= 0:
                    raise EngineError(f"{said}; start it with: {START}") from error
                if wait == 0.5:
                    warnings.warn(f"{said}; asking again for {left:.0f} s", stacklevel=2)
                time.sleep(min(wait, left))
                wait = min(2 * wait, 10.0)

    def _ask(self, path: str, body: Any = None, most_bytes: int = MOST_BYTES) -> Response:
        """Return the answer to one request.

        Raises:
            ConnectionError: if the server is away.
            EngineError: for all else that is not an answer.
        """
        url, headers = f"{self.url}/{path}", bearer(TOKEN)
        try:
            answer = ask(url, body, headers=headers, seconds=self.patience, most_bytes=most_bytes)
        except TimeoutError as error:
            raise EngineError(f"{self.url} took over {self.patience:g} s for /{path}; set a longer patience") from error
        except ValueError as error:
            raise EngineError(
                f"the engine at {self.url}, asked for /{path}, {error}; start it with: {START}"
            ) from error
        if not answer.is_success:
            raise self._refusal(answer, path)
        return answer

    @contextmanager
    def _reading(self, path: str, needed: str) -> Iterator[None]:
        """Turn what goes wrong while an answer is read into an `EngineError`."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            said = f"{type(error).__name__}: {printable(str(error))}"
            what = f"answers without {needed} ({said})"
            raise EngineError(f"the engine at {self.url}, asked for /{path}, {what}; start it with: {START}") from error

    def _refusal(self, answer: Response, path: str) -> EngineError:
        engine, said = f"the engine at {self.url}", ""
        with suppress(ValueError, LookupError, TypeError):
            said = printable(str(answer.json()["error"]["message"]))
        if answer.status == 404 and said:  # "The model ... does not exist": our adapter
            return StaleEngineError(f"{engine} was started again ({said})")
        if answer.status == 401:
            return EngineError(f"{engine} refuses the token; put the server's --api-key into {TOKEN}")
        if answer.status in (403, 404):
            more = f" {FOR_ADAPTERS}" if "lora" in path else ""
            return EngineError(f"{engine} has no /{path}; start it with: {START}{more}")
        what = f"answered {answer.status} ({said or answer.reason or 'without a reason'})"
        if answer.status in BUSY:
            return EngineError(f"{engine} {what}; see its log, or lower --num-envs")
        sees = " (on another machine: folder=FOLDER, which both see)" if path in LOADS else ""
        return EngineError(f"{engine} {what}; see its log, and restart it with the model of this run{sees}")
