"""A coordinator and nodes as deploy/quickstart.sh starts them: real processes on loopback."""

import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SHARDLINE_BIN", ROOT / "build" / "release" / "bin"))
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
START_S = 30


def need(path, hint):
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: {hint}")


class Cluster:
    """Everything stops with close(), and its folder goes."""

    def __init__(self, nodes):
        need(BIN / "shardline-coordinator", "build the target binaries of the preset release")
        need(MODEL, "deploy/fetch_model.sh fetches it")
        self.home = tempfile.TemporaryDirectory(prefix="shardline-web-")
        self.folder = pathlib.Path(self.home.name)
        self.processes = {}
        try:
            http = self.fifo("http")
            self.endpoint = self.start("coordinator", "--http", "127.0.0.1:0",
                                       "--http-port-file", http)
            self.url = "http://" + self.read(http, "coordinator")
            self.nodes = [f"node-{i}" for i in range(1, nodes + 1)]
            for name in self.nodes:
                self.start("node", "--coordinator", self.endpoint, "--node-id", name, name=name)
        except Exception:
            self.close()
            raise

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.home.cleanup()

    # Starts a program and returns the address that it listens on.
    def start(self, program, *flags, name=""):
        name = name or program
        port = self.fifo(name)
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                [BIN / f"shardline-{program}", "--listen", "127.0.0.1:0",
                 "--data-dir", self.folder / name, "--port-file", port, *flags],
                stdout=log, stderr=log)
        return self.read(port, name)

    def fifo(self, name):
        path = self.folder / f"{name}.port"
        os.mkfifo(path)
        return path

    # A named pipe gives the address as soon as it is written, or nothing when time is up.
    def read(self, path, name):
        reader = subprocess.run(["timeout", str(START_S), "head", "-n", "1", path],
                                capture_output=True, text=True)
        path.unlink()
        address = reader.stdout.strip()
        assert address, f"{name} did not start; its log:\n{self.log(name)[-2000:]}"
        return address
