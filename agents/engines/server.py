"""vLLM's server, on other devices or machines: `engine="vllm", engine_url="http://..."`; `START` says how it starts.

All processes of a job ask the same server; the main one sends the weights, from GPUs with NCCL, else as files in a
folder that both see. Each set of weights has a version: a server that was started again has none, and what it wrote
is dropped.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from safetensors.torch import save_file
from typing_extensions import override

from .. import processes
from ..checks import first_line
from ..errors import EngineError
from .base import Engine, Request, StaleEngineError, Written, weights_of
from .vllm import ADAPTER, keeps_adapter, sampling

TOKEN = "RLENV_ENGINE_TOKEN"  # of the environment's variables
START = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs "
    "--generation-config vllm"
)
AT_ONCE = 64  # requests that are sent before an answer comes


def open_engine(agent: Any) -> Engine:
    """Return the engine at the address in an agent's settings."""
    return ServerEngine(agent.engine_url, agent.policy, **(agent.engine_kwargs or {}))


class ServerEngine(Engine):
    """A `vllm serve` that runs elsewhere.

    Args:
        url: of the server.
        policy: of language; whether its vocabulary is a part of the model's counts.
        folder: that the server sees, too, for weights as files; None for a temporary one on this machine.
        patience: seconds for which a server that does not answer is asked again.

    Raises:
        EngineError: if there is no such server, or it lacks an interface.
    """

    def __init__(self, url: str, policy: Any, folder: str | None = None, patience: float = 600.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"engine_url={url!r} is not an address; write it as http://localhost:8000")
        self.url, self.folder, self.patience = url.rstrip("/"), folder, patience
        padded = policy.model.config.get_text_config().vocab_size > policy.vocab_size
        self._allowed = {"allowed_token_ids": list(range(policy.vocab_size))} if padded else {}
        self._versions, self._run, self._version = count(1), uuid.uuid4().hex, ""
        self._adapter: str | None = None
        self._transfer: Any = None
        self._get("weight_info")

    @override
    def write(self, requests: Sequence[Request]) -> Iterator[Written]:
        with ThreadPoolExecutor(min(AT_ONCE, len(requests))) as pool:
            answers = list(pool.map(self._answer, requests))
        if self._get("weight_info")["weight_version"] != self._version:
            raise StaleEngineError(f"the engine at {self.url} was started again, and has not the weights of this run")
        for place, answer in enumerate(answers):
            (choice,) = answer["choices"]
            said = (choice["logprobs"] or {}).get("content") or []
            yield Written(place, choice["token_ids"], [each["logprob"] for each in said])

    def _answer(self, request: Request) -> dict[str, Any]:
        named = {} if self._adapter is None else {"model": self._adapter}
        params = {key: value for key, value in sampling(request).items() if key != "flat_logprobs"}
        return self._post(
            "inference/v1/generate",
            {"token_ids": request.context, "sampling_params": params | self._allowed, **named},
        )

    @override
    def load(self, policy: Any) -> None:
        self._version = processes.on_main(lambda: f"{self._run}-{next(self._versions)}")
        keeps = keeps_adapter(policy)
        if policy.device.type == "cuda" and not keeps:
            self._send_by_nccl(policy)
        else:
            self._send_files(policy, keeps)
        processes.on_main(self._finish)

    def _finish(self) -> None:
        self._post("reset_prefix_cache", None)
        self._post("update_weight_version", {"new_version": self._version})

    def _send_files(self, policy: Any, keeps: bool) -> None:
        """Write weights, or the adapter that stays beside the base, where the server reads them."""
        whole = {}
        for sent in () if keeps else weights_of(policy):
            found = sent.whole()  # all processes
            if processes.is_main():
                whole[sent.name] = found.contiguous().cpu()

        def send() -> None:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                if keeps:
                    policy.adapter.save(Path(folder), with_base=False)
                    self._post(
                        "v1/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": folder, "load_inplace": True}
                    )
                    return
                save_file(whole, Path(folder, "model.safetensors"), metadata={"format": "pt"})
                told = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
                self._post("collective_rpc", told)

        processes.on_main(send)
        self._adapter = ADAPTER if keeps else None

    def _send_by_nccl(self, policy: Any) -> None:
        """Broadcast the weights from GPU to GPU, with vLLM's own sender; the first time, both sides meet."""
        transfer = import_module("vllm.distributed.weight_transfer.factory").WeightTransferTrainerFactory
        if self._transfer is None:
            nccl = import_module("vllm.distributed.weight_transfer.nccl_engine")
            with socket.socket() as free:
                free.bind(("", 0))
                port = free.getsockname()[1]
            world = 1 + (self._get("get_world_size")["world_size"] if processes.is_main() else 0)
            info = nccl.NCCLTrainerInitInfo(
                master_address=socket.gethostbyname(socket.gethostname()),
                master_port=port,
                world_size=world,
                rank=processes.rank(),
            )
            control = import_module("vllm.distributed.weight_transfer.clients").HTTPVLLMWeightSyncClient(self.url)
            self._transfer = transfer.trainer_init(info, client=control, source=source_of(policy))
        self._transfer.send_weights()

    # HTTP.

    def _get(self, path: str) -> dict[str, Any]:
        return self._ask(HttpRequest(f"{self.url}/{path}", headers=self._headers))

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        return self._ask(HttpRequest(f"{self.url}/{path}", data, self._headers, method="POST"))

    @property
    def _headers(self) -> dict[str, str]:
        token = os.environ.get(TOKEN)
        return {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _ask(self, request: HttpRequest) -> dict[str, Any]:
        """Return an answer; a server that is away is asked again, while there is patience.

        Raises:
            EngineError: if there is none, or it is an error.
        """
        until, wait = time.monotonic() + self.patience, 0.5
        while True:
            try:
                with urlopen(request, timeout=max(until - time.monotonic(), 1.0)) as answer:
                    text = answer.read()
                found: dict[str, Any] = json.loads(text) if text else {}
                return found
            except HTTPError as error:
                raise EngineError(self._refusal(error)) from error
            except (OSError, URLError, ValueError) as error:
                left = until - time.monotonic()
                if left <= 0:
                    raise EngineError(
                        f"the engine at {self.url} does not answer ({first_line(error)}); start it with: {START}"
                    ) from error
                if wait == 0.5:
                    warnings.warn(
                        f"the engine at {self.url} does not answer ({first_line(error)}); asking for {left:.0f} s more",
                        stacklevel=2,
                    )
                time.sleep(min(wait, left))
                wait = min(2 * wait, 10.0)

    def _refusal(self, error: HTTPError) -> str:
        if error.code in (401, 403):
            return f"the engine at {self.url} refuses the token; put the server's --api-key into {TOKEN}"
        if error.code == 404:
            path = error.url.removeprefix(self.url)
            return f"the engine at {self.url} has no {path}; start it with: {START}"
        said = error.reason
        with suppress(OSError, ValueError, LookupError, TypeError):
            said = json.loads(error.read())["error"]["message"]
        return f"the engine at {self.url} answered {error.code}: {str(said).splitlines()[0]}"


def source_of(policy: Any) -> Any:
    """Return a policy's weights as vLLM's sender takes them: what comes, then one whole tensor at a time."""
    base: Any = import_module("vllm.distributed.weight_transfer.base")
    root: Any = base.WeightSource

    class Source(root):
        def metadata(self) -> list[Any]:
            return [base.ParamMeta(s.name, s.weight.dtype, tuple(s.shape)) for s in weights_of(policy)]

        def __iter__(self) -> Iterator[tuple[str, Any]]:
            return ((sent.name, sent.whole()) for sent in weights_of(policy))

    return Source()
