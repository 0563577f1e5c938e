"""Snapshots of made-up clusters, in the shape of GET /admin/v1/state."""

import time

MIB = 1 << 20
MODEL = "SmolLM2-135M-Instruct.Q4_1"
LAYERS = 30


def now_ms():
    return int(time.time() * 1000)


def node(name, layers=None, model=MODEL, **changes):
    made = {
        "node_id": name, "state": "NODE_STATE_READY", "incarnation": "3",
        "address": f"10.0.0.{len(name) + int(name[-1])}:7080", "version": "0.1.0",
        "capacity": {"memory_bytes": str(512 * MIB), "threads": 8, "backend": "cpu",
                     "device": "avx3_dl x8"},
        "memory_used_bytes": str(148 * MIB if layers else 0), "model": model if layers else "",
        "layers": span(layers) if layers else None, "attempts_open": 0,
        "kv_pages_total": 512 if layers else 0, "kv_pages_free": 431 if layers else 0,
        "last_beat_ms": "112", "age_ms": "743000", "reason": "", "duty": "NODE_DUTY_SERVING",
        "sessions_running": 2 if layers else 0, "drain_left_ms": "0", "links": [],
    }
    made.update(changes)
    return made


def span(layers):
    return {"begin": layers[0], "end": layers[1]}


def shard(name, layers, model=MODEL, **changes):
    size = (layers[1] - layers[0]) * 2.4 * MIB + (30 * MIB if layers[0] == 0 else 0)
    made = {
        "model": model, "node_id": name, "layers": span(layers), "is_head": layers[0] == 0,
        "state": "SHARD_STATE_LOADED", "bytes": str(int(size)), "bytes_done": str(int(size)),
        "node_lost": False, "proven": True,
    }
    made.update(changes)
    return made


def model(name=MODEL, **changes):
    made = {
        "name": name, "model_id": "b1946ac92492", "architecture": "llama", "quantisation": "Q4_1",
        "bytes": "98362432", "layers": LAYERS, "context_tokens_max": 2048,
        "state": "MODEL_STATE_READY", "reason": "", "plan_epoch": "4",
    }
    made.update(changes)
    return made


def session(number, nodes, **changes):
    made = {
        "session": str(number), "epoch": "1", "model": MODEL, "phase": "running",
        "prompt_tokens": 212, "tokens": 57, "attempts": 1, "age_ms": "4210", "budget_ms": "115790",
        "route": [{"node_id": name} for name in nodes],
    }
    made.update(changes)
    return made


def snapshot(nodes, shards, models, sessions=(), problems=()):
    lost = sum(1 for n in nodes if n["state"] == "NODE_STATE_LOST")
    return {
        "at_unix_ms": now_ms(), "version": "0.1.0", "term": "7",
        "cluster": {
            "version": "0.1.0", "term": "7", "plan_epoch": "4", "nodes_ready": len(nodes) - lost,
            "nodes_lost": lost, "sessions_running": len(sessions), "models": list(models),
            "problems": list(problems),
            "healthy": not problems and any(m["state"] == "MODEL_STATE_READY" for m in models)},
        "nodes": list(nodes), "models": list(models), "shards": list(shards),
        "sessions": list(sessions),
        "figures": {"sessions_running": len(sessions), "sessions_waiting": 0,
                    "tokens_per_s": 41.7 if sessions else 0, "requests_total": 1284},
    }


THREE = [("node-1", (0, 8)), ("node-2", (8, 19)), ("node-3", (19, 30))]


def healthy():
    names = [name for name, _ in THREE]
    return snapshot(
        [node(name, layers) for name, layers in THREE] + [node("node-4")],
        [shard(name, layers) for name, layers in THREE], [model()],
        [session(70368744177665, names), session(70368744177666, names, tokens=8, attempts=2)])


def loading():
    return snapshot(
        [node(name, layers, state="NODE_STATE_LOADING", sessions_running=0)
         for name, layers in THREE],
        [shard(name, layers, state="SHARD_STATE_LOADING", proven=False,
               bytes_done=str(int((0.23 + 0.3 * i) * 24 * MIB)))
         for i, (name, layers) in enumerate(THREE)],
        [model(state="MODEL_STATE_LOADING",
               reason="layers 0-7 on node-1: loading, 23 %; layers 8-18 on node-2: loading, 48 %")],
        problems=[f"{MODEL}: layers 0-7 on node-1: loading, 23 %"])


def degraded():
    made = healthy()
    nodes, shards = made["nodes"][:3], made["shards"]
    nodes[1].update(state="NODE_STATE_LOST", reason="no echoed heartbeat for 1.4 s",
                    last_beat_ms="14100", sessions_running=0)
    nodes[0]["links"] = [{"to": "node-2", "silent_ms": 14000}]
    shards[1].update(node_lost=True, proven=False)
    why = ("layers 8-18 on node-2: no echoed heartbeat for 1.4 s, 13 s ago; and they cannot be "
           "placed again: needs 26.4 MiB of weights and 41.2 MiB of KV, node-1 has 12.0 MiB free, "
           "node-3 has 9.6 MiB free")
    return snapshot(nodes, shards, [model(state="MODEL_STATE_DEGRADED", reason=why)],
                    problems=[f"{MODEL}: {why}"])


def replicated():
    """Two nodes for every range; one is drained, one is stale, one link is silent."""
    nodes, shards = [], []
    for i, layers in enumerate([(0, 8), (8, 19), (19, 30)]):
        for letter in "ab":
            name = f"rack-{letter}{i + 1}"
            nodes.append(node(name, layers))
            shards.append(shard(name, layers))
    nodes[1].update(duty="NODE_DUTY_DRAINED", sessions_running=0)
    nodes[2].update(duty="NODE_DUTY_DRAINING", drain_left_ms="21400")
    nodes[3].update(last_beat_ms="1200")
    nodes[4]["links"] = [{"to": "rack-a1", "silent_ms": 2300}]
    nodes.append(node("rack-c7", duty="NODE_DUTY_CORDONED"))
    return snapshot(nodes, shards, [model()],
                    [session(70368744177700 + i, ["rack-a1", "rack-a2", "rack-b3"])
                     for i in range(3)],
                    ["node rack-a3 does not hear node rack-a1 (silent for 2.3 s); check the "
                     "network between them"])


def large():
    """80 layers over 10 nodes: the picture wraps, the columns are thin."""
    pairs = [(f"gpu-{i}", (8 * i, 8 * i + 8)) for i in range(10)]
    return snapshot([node(name, layers) for name, layers in pairs],
                    [shard(name, layers) for name, layers in pairs],
                    [model(layers=80, bytes=str(42 << 30))],
                    [session(9, [name for name, _ in pairs])])


def empty():
    return snapshot([], [], [], problems=[
        "no node has joined; start shardline-node on each machine"])


def event(number, level, kind, text, **names):
    return {"id": (7 << 32) + number, "at_unix_ms": now_ms() - 60000 + 1000 * number,
            "level": level, "kind": kind, "text": text, **names}


def history():
    return [
        event(1, "info", "coordinator_started", "coordinator 0.1.0 started with term 7"),
        event(2, "info", "node_joined", "node-1 joined from 10.0.0.7:7080, 512 MiB", node="node-1"),
        event(3, "info", "node_joined", "node-2 joined from 10.0.0.8:7080, 512 MiB", node="node-2"),
        event(4, "info", "node_joined", "node-3 joined from 10.0.0.9:7080, 512 MiB", node="node-3"),
        event(5, "info", "plan_made", f"plan 4 of {MODEL}: 3 shards on 3 nodes", model=MODEL),
        event(6, "info", "model_ready", f"{MODEL} is ready: a token has gone round the ring",
              model=MODEL),
        event(7, "info", "node_joined", "node-4 joined from 10.0.0.10:7080, 512 MiB",
              node="node-4"),
    ]


def losses():
    return history() + [
        event(46, "error", "node_lost", "node-2 is lost: no echoed heartbeat for 1.4 s",
              node="node-2"),
        event(47, "warning", "session_restarted",
              "session 70368744177665 goes on as epoch 2 without node-2",
              node="node-2", session="70368744177665"),
        event(48, "error", "model_degraded", f"{MODEL} is degraded: layers 8-18 are on no node",
              model=MODEL),
    ]
