"""What a `vllm serve` answers, without vLLM: its addresses, and a fake engine behind them."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fake_engine import FakeEngine
from safetensors.torch import load_file

from rlenv.agents.engines.base import Request

TOKEN = "secret"
GUARDED = ("/v1", "/inference")


class FakeServer:
    """Answers at `url`.

    Attributes:
        asked: the path and the body of each request, in order.
        errors: what a path answers next instead: a status with a text, or "cut" in place of a status.
        delay: seconds before each answer.
    """

    def __init__(self, policy):
        self.policy, self.port, self.delay = policy, 0, 0.0
        self.asked, self.errors, self.lock = [], {}, threading.Lock()
        self.restart()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def restart(self):
        """Answer, with the weights that it once began with."""
        self.version, self.adapters = "default", {}
        self.engine, self.prefixes = FakeEngine(self.policy), {}  # by salt: new weights drop none
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.http.fake, self.port = self, self.http.server_port
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()

    def answer(self, path, body):
        if path == "/weight_info":
            return {"weight_version": self.version}
        if path == "/update_weight_version":
            self.version = body["new_version"]
            return {"success": True, "new_version": self.version}
        if path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            self.engine.model.load_state_dict(load_file(Path(body["kwargs"]["weights_path"], "model.safetensors")))
            return {"results": [None]}
        if path == "/v1/load_lora_adapter":
            assert body.keys() == {"lora_name", "lora_path"} and body["lora_name"] not in self.adapters
            assert Path(body["lora_path"], "adapter_config.json").is_file()
            self.adapters[body["lora_name"]] = load_file(Path(body["lora_path"], "adapter_model.safetensors"))
            return f"Success: LoRA adapter '{body['lora_name']}' added successfully."
        assert path == "/inference/v1/generate"
        if "model" in body and body["model"] not in self.adapters:
            return 404, json.dumps({"error": {"message": f"The model `{body['model']}` does not exist."}})
        return {"choices": [self.choice(body)]}

    def choice(self, body):
        params, ends = body["sampling_params"], tuple(body["sampling_params"]["stop_token_ids"])
        asked = Request(body["token_ids"], params["max_tokens"], params["temperature"], ends, params["seed"])
        with self.lock:  # one cache of prefixes at a time
            self.engine.prefixes = self.prefixes.setdefault(body["cache_salt"], {})
            [(tokens, log_probs)] = self.engine.turns([asked])
        content = [{"token_id": t, "logprob": x, "rank": 1} for t, x in zip(tokens, log_probs, strict=True)]
        return {
            "token_ids": tokens,
            "logprobs": None if params["logprobs"] is None else {"content": content},
            "weight_versions": [{"version": self.version, "start": 0, "end": len(tokens)}],
        }


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, size = self.server.fake, int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(size)
        body = json.loads(text) if text else None
        server.asked.append((self.path, body))
        time.sleep(server.delay)
        if self.path in server.errors:
            status, found = server.errors.pop(self.path)
        elif self.path.startswith(GUARDED) and self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, found = 401, '{"error": "Unauthorized"}'
        else:
            found = server.answer(self.path, body)
            status, found = found if isinstance(found, tuple) else (200, found)
        if status == "cut":
            return
        data = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *args):
        """Say nothing."""
