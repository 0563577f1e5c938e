"""A coordinator that says what a test tells it to: the real files, made-up answers.

Serves the page with the policy the coordinator sends, and beyond it demands trusted types, so that
the browser itself refuses every string that would become markup or script.
"""

import json
import pathlib
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from world import now_ms

HERE = pathlib.Path(__file__).resolve().parent
WEB = HERE.parents[1] / "coordinator" / "web"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
          "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")


class Stub:
    """Start it, set its fields, push() what changed. Every field may change at any time."""

    def __init__(self, snapshot, timeline=()):
        self.snapshot = snapshot
        self.timeline = list(timeline)
        self.admin_key = ""
        self.api_key = ""
        self.events_status = 200      # Of GET /admin/v1/events,
        self.snapshot_status = 200    # and of GET /admin/v1/state.
        self.models = True            # Whether /v1/models names the models of the snapshot.
        self.chat = []                # What the next chat answers: see Handler.chat_stream.
        self.chat_status = None       # (status, envelope, headers) instead.
        self.placement = {"fits": True, "reason": "", "shards": []}
        self.requests = {}            # Waterfalls by id.
        self.refuse = {}              # "POST /path" to (status, message).
        self.calls = []               # (method, path, body) of everything but files and reads.
        self.resends = False          # Whether a resumed stream begins with everything again.
        self.resumed = []             # Last-Event-ID of every event stream.
        self.gate = threading.Event() # A "wait" of a chat goes on when it is set.
        self.watchers = []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.stub = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def push(self, snapshot=None, *events):
        """A new snapshot and events go to every stream."""
        with self.lock:
            if snapshot is not None:
                self.snapshot = snapshot
            self.timeline.extend(events)
            for watcher in self.watchers:
                for event in events:
                    watcher.put(("timeline", event))
                watcher.put(("state", None))

    def hang_up(self):
        """Every event stream breaks off."""
        with self.lock:
            for watcher in self.watchers:
                watcher.put(("end", None))

    def close(self):
        self.hang_up()
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    @property
    def stub(self):
        return self.server.stub

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/tests/modules_test.js":
            return self.file(HERE / "modules_test.js")
        if path == "/" or path.startswith("/assets/"):
            return self.file(WEB / ("index.html" if path == "/" else path[len("/assets/"):]))
        if not self.allowed(path):
            return None
        if path == "/admin/v1/events":
            return self.events()
        if path == "/admin/v1/state":
            if self.stub.snapshot_status != 200:
                return self.error(self.stub.snapshot_status, "no state now")
            return self.json(200, self.fresh())
        if path == "/v1/models":
            models = self.stub.snapshot["models"] if self.stub.models else []
            return self.json(200, {"object": "list", "data": [
                {"id": m["name"], "object": "model", "max_model_len": m["context_tokens_max"]}
                for m in models]})
        if path.startswith("/admin/v1/requests/"):
            found = self.stub.requests.get(path.rsplit("/", 1)[1])
            return self.json(200, found) if found else self.error(404, "no such request")
        return self.error(404, f"no such path: {path}")

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        path = self.path
        if not self.allowed(path):
            return None
        if self.headers.get("Content-Type") != "application/json" and self.command == "POST":
            return self.error(415, "not JSON")
        self.stub.calls.append((self.command, path, body))
        refusal = self.stub.refuse.get(f"{self.command} {path}")
        if refusal:
            return self.error(*refusal)
        if path == "/v1/chat/completions":
            return self.chat_stream()
        if path == "/admin/v1/placement":
            return self.json(200, self.stub.placement)
        return self.json(200, {})

    def do_DELETE(self):
        return self.do_POST()

    def allowed(self, path):
        key = self.stub.admin_key if path.startswith("/admin/") else self.stub.api_key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.error(401, "This needs a key.", "invalid_api_key")
        return False

    def fresh(self):
        return {**self.stub.snapshot, "at_unix_ms": now_ms()}

    def file(self, path):
        if path.parent not in (WEB, HERE) or path.suffix not in TYPES or not path.is_file():
            return self.error(404, "no such file")
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES[path.suffix])
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def json(self, status, value, headers=()):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in dict(headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def error(self, status, message, code=None):
        self.json(status, {"error": {"message": message, "type": "invalid_request_error",
                                     "param": None, "code": code}})

    def begin_stream(self, headers=()):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Transfer-Encoding", "chunked")
        for name, text in dict(headers).items():
            self.send_header(name, text)
        self.end_headers()

    def piece(self, text):
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def events(self):
        stub = self.stub
        if stub.events_status != 200:
            return self.error(stub.events_status, "no events now")
        after = self.headers.get("Last-Event-ID", "")
        inbox = queue.Queue()
        with stub.lock:
            stub.resumed.append(after)
            stub.watchers.append(inbox)
            backlog = [e for e in stub.timeline
                       if not after or stub.resends or e["id"] > int(after)]
        try:
            self.begin_stream()
            self.send_state()
            for event in backlog:
                self.send_event(event)
            while True:
                try:
                    kind, event = inbox.get(timeout=1)
                except queue.Empty:
                    kind, event = "state", None
                if kind == "end":
                    break
                if kind == "state":
                    self.send_state()
                else:
                    self.send_event(event)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with stub.lock:
                stub.watchers.remove(inbox)
            self.close_connection = True

    def send_state(self):
        self.piece(f"event: state\ndata: {json.dumps(self.fresh())}\n\n")

    def send_event(self, event):
        self.piece(f"event: timeline\nid: {event['id']}\ndata: {json.dumps(event)}\n\n")

    def chat_stream(self):
        """Plays stub.chat: ("headers", {…}) first if at all, then ("chunk", {…}), ("text", "…"),
        ("raw", "…"), ("wait",), ("done",), ("linger",), ("abort",)."""
        stub = self.stub
        if stub.chat_status:
            status, envelope, headers = stub.chat_status
            return self.json(status, envelope, headers)
        script = list(stub.chat)
        headers = script.pop(0)[1] if script and script[0][0] == "headers" else {}
        self.begin_stream(headers)
        try:
            for step in script:
                self.play(step)
                if step[0] == "abort":
                    self.close_connection = True
                    return None
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            stub.calls.append(("GONE", "/v1/chat/completions", {}))
            self.close_connection = True

    def play(self, step):
        kind, *rest = step
        if kind == "text":
            self.piece("data: " + json.dumps(chunk(delta={"content": rest[0]})) + "\n\n")
        elif kind == "chunk":
            self.piece("data: " + json.dumps(rest[0]) + "\n\n")
        elif kind == "raw":
            self.piece(rest[0])
        elif kind == "linger":
            # A browser throws away what it has not read when a connection breaks.
            threading.Event().wait(0.2)
        elif kind == "done":
            self.piece("data: [DONE]\n\n")
        elif kind == "wait":
            # A ping now and then, as the coordinator sends: a client that has gone is noticed.
            while not self.stub.gate.wait(0.05):
                self.piece(": ping\n\n")


def chunk(delta=None, finish=None, **more):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def answer(*texts, tokens=64):
    """A whole answer, as the coordinator streams it."""
    return [
        ("headers", {"x-request-id": "req-1", "x-shardline-plan": "4",
                     "x-shardline-nodes": "node-1,node-2,node-3",
                     "x-shardline-session": "70368744177665"}),
        ("chunk", chunk({"role": "assistant", "content": ""})),
        ("chunk", chunk(prompt_progress={"total": 212, "cache": 128, "processed": 212,
                                         "time_ms": 96})),
        *[("text", text) for text in texts],
        ("chunk", chunk(finish="stop", timings={
            "prompt_n": 84, "prompt_ms": 182.4, "predicted_n": tokens, "predicted_ms": 1534,
            "predicted_per_second": 41.7, "cache_n": 128})),
        ("chunk", {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                   "model": "m", "choices": [], "usage": {
                       "prompt_tokens": 212, "completion_tokens": tokens,
                       "total_tokens": 212 + tokens,
                       "prompt_tokens_details": {"cached_tokens": 128}}}),
        ("done",),
    ]


WATERFALL = {
    "request_id": "req-1", "id": "chatcmpl-1", "model": "m", "session": "70368744177665",
    "epoch": "1", "status": 200, "queued_us": "12400", "ttft_us": "182400", "total_us": "1716400",
    "prompt_tokens": 212, "cached_tokens": 128, "tokens": 64, "tokens_per_s": 41.7,
    "timings": {"prefill_us": "170000", "decode_us": "1534000", "laps": 63, "lap_us": "1490000",
                "head_compute_us": "420000", "stage_compute_us": "1290000",
                "stage_us": ["410000", "450000", "430000"]},
    "stages": [{"node_id": "node-1", "layers": {"begin": 0, "end": 8}, "compute_us": "410000"},
               {"node_id": "node-2", "layers": {"begin": 8, "end": 19}, "compute_us": "450000"},
               {"node_id": "node-3", "layers": {"begin": 19, "end": 30}, "compute_us": "430000"}],
    "restarts": [],
}
