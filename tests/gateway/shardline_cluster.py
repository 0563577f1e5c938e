"""A Shardline cluster of real processes on loopback, for tests of its HTTP API."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ.get("SHARDLINE_BIN", ROOT / "build/release/bin"))
GOLDEN_MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "smollm2"
PATIENCE = 60.0  # Seconds; far beyond what any wait takes.


def golden_model():
    """The model's path. Fails, with the command that fetches it, when it is missing."""
    if not GOLDEN_MODEL.exists():
        raise AssertionError(f"{GOLDEN_MODEL} is missing: run deploy/fetch_model.sh")
    return GOLDEN_MODEL


class Cluster:
    """One coordinator and its nodes; a context manager. Logs are shown when a test of it fails."""

    def __init__(self, nodes=2, shards=2, load=True, arguments=(), node_memory="2GiB"):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="shardline-gateway-"))
        self.processes = {}
        self.node_memory = node_memory
        model = ["--model", str(golden_model()), "--model-name", MODEL, "--shards", str(shards),
                 "--context", "2048"] if load else []
        grpc, http = self._start("coordinator", ["shardline-coordinator", "--listen", "127.0.0.1:0",
                                                 "--http", "127.0.0.1:0", "--data-dir",
                                                 str(self.directory / "store"), *model, *arguments],
                                 ["--port-file", "--http-port-file"])
        self.grpc_address, self.address = grpc, http
        self.host, port = http.rsplit(":", 1)
        self.port = int(port)
        self.scheme = "https" if "--tls-cert" in arguments else "http"
        for index in range(nodes):
            self.start_node(index)

    def start_node(self, index):
        name = f"node-{'abcdefgh'[index]}"
        self._start(name, ["shardline-node", "--listen", "127.0.0.1:0", "--coordinator",
                           self.grpc_address, "--data-dir", str(self.directory / name),
                           "--node-id", name, "--memory", self.node_memory, "--threads", "1"],
                    ["--port-file"])

    def _start(self, name, argv, address_flags):
        """Starts a process and returns the addresses that it tells through pipes."""
        pipes = [self.directory / f"{name}{flag}" for flag in address_flags]
        for flag, pipe in zip(address_flags, pipes):
            if not pipe.exists():
                os.mkfifo(pipe)
            argv = [*argv, flag, str(pipe)]
        log = open(self.directory / f"{name}.log", "ab")
        argv[0] = str(BINARIES / argv[0])
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)
        self.processes[name] = process
        return [pipe.read_text().strip() for pipe in pipes]

    @property
    def url(self):
        return f"{self.scheme}://{self.address}"

    def client(self, **options):
        return httpx.Client(base_url=self.url, timeout=PATIENCE, **options)

    def socket(self):
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def states(self, headers=None):
        """The snapshots of /admin/v1/events, as they come."""
        with self.client(headers=headers) as client, \
                client.stream("GET", "/admin/v1/events") as stream:
            is_state = False
            for line in stream.iter_lines():
                if line.startswith("event:"):
                    is_state = line == "event: state"
                elif line.startswith("data:") and is_state:
                    yield json.loads(line[5:])

    def await_state(self, wanted, headers=None):
        """The first snapshot of which `wanted` is true."""
        for state in self.states(headers):
            if wanted(state):
                return state
        raise AssertionError("the event stream ended")

    def await_ready(self, headers=None):
        return self.await_state(
            lambda state: any(m["state"] == "MODEL_STATE_READY" for m in state["models"]), headers)

    def await_idle(self, headers=None):
        """Nobody runs, and every KV page of every living node is free again."""
        def is_idle(state):
            living = [n for n in state["nodes"] if n["state"] != "NODE_STATE_LOST"]
            return not state["sessions"] and all(
                n["attempts_open"] == 0 and n["kv_pages_free"] == n["kv_pages_total"]
                for n in living)
        return self.await_state(is_idle, headers)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def terminate(self, name):
        self.processes[name].send_signal(signal.SIGTERM)

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-4000:]}"
                         for path in sorted(self.directory.glob("*.log")))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
        if kind is None:
            subprocess.run(["rm", "-rf", str(self.directory)], check=False)
        else:
            print(self.logs())
