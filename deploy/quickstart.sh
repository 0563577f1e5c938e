#!/usr/bin/env bash
# From a bare Debian 12 to a model that answers over three node processes on this machine.
#
#   deploy/quickstart.sh                      install, build, fetch a model, serve, answer, stop
#   deploy/quickstart.sh --keep               leave the cluster up and say what to try next
#   deploy/quickstart.sh --model FILE.gguf    use your own model
#   deploy/quickstart.sh --prompt "..."       ask something else
#   deploy/quickstart.sh --nodes N            another number of node processes (default 3)
#   deploy/quickstart.sh --stop               stop a cluster left up by --keep
#
# A second run reuses packages, build and model.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/build_env.sh"
cd "$root"

model="" prompt="What is the capital of France? Answer in one sentence." nodes=3 keep=false stop_only=false
chat=true
usage() { sed -n '2,11p' "$0" | sed 's/^# \{0,1\}//'; }
need() { [ $# -ge 2 ] || { echo "quickstart.sh: $1 needs a value; try --help" >&2; exit 2; }; }
while [ $# -gt 0 ]; do
  case "$1" in
    --keep) keep=true ;;
    --stop) stop_only=true ;;
    --model) need "$@"; model="$2"; chat=false; shift ;;
    --prompt) need "$@"; prompt="$2"; shift ;;
    --nodes) need "$@"; nodes="$2"; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown option '$1'; try --help" >&2; exit 2 ;;
  esac
  shift
done
[[ "$nodes" =~ ^[1-9][0-9]?$ ]] || { echo "quickstart.sh: --nodes takes 1 to 99, not '$nodes'" >&2; exit 2; }
if [ -n "$model" ] && [ ! -r "$model" ]; then
  echo "quickstart.sh: cannot read the model '$model'" >&2
  exit 1
fi

state="${SHARDLINE_QUICKSTART_DIR:-$root/build/quickstart}"
bin="$root/build/release/bin"

stop_cluster() {
  [ -f "$state/pids" ] || return 0
  local pids
  pids="$(cat "$state/pids")"
  rm -f "$state/pids"
  # shellcheck disable=SC2086
  kill $pids 2>/dev/null || true
  for pid in $pids; do
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      read -rt 0.1 <> <(:) || true
    done
    kill -9 "$pid" 2>/dev/null || true
  done
}
if $stop_only; then
  stop_cluster
  echo "stopped"
  exit 0
fi

say() { printf '\033[1m==\033[0m %s\n' "$1"; }

say "1/4 packages"
deploy/install_packages.sh
say "2/4 build"
build release binaries | tail -n 1
say "3/4 model"
if [ -z "$model" ]; then
  deploy/fetch_model.sh
  model="$root/models/SmolLM2-135M-Instruct.Q4_1.gguf"
fi

say "4/4 one coordinator, $nodes nodes"
stop_cluster
rm -rf "$state"
mkdir -p "$state"
$keep || trap stop_cluster EXIT
trap 'stop_cluster; exit 130' INT TERM

# start NAME COMMAND...: a background process whose address arrives through a named pipe.
start() {
  local name="$1"
  shift
  mkfifo "$state/$name.port"
  "$@" --port-file "$state/$name.port" >"$state/$name.log" 2>&1 &
  echo $! >>"$state/pids"
  local pid=$!
  exec 9<>"$state/$name.port"
  if ! read -rt 20 address <&9; then
    echo "quickstart.sh: $name did not start; its log:" >&2
    tail -n 5 "$state/$name.log" >&2
    kill -0 $pid 2>/dev/null || true
    exit 1
  fi
  exec 9>&-
  rm -f "$state/$name.port"
}

start coordinator "$bin/shardline-coordinator" --listen 127.0.0.1:0 \
  --http 127.0.0.1:0 --http-port-file "$state/http" --data-dir "$state/coordinator"
export SHARDLINE_ENDPOINT="$address"
for ((i = 1; i <= nodes; i++)); do
  start "node-$i" "$bin/shardline-node" --listen 127.0.0.1:0 --coordinator "$SHARDLINE_ENDPOINT" \
    --data-dir "$state/node-$i" --node-id "node-$i"
done

"$bin/shardctl" model load "$model" --shards "$nodes"
echo
"$bin/shardctl" shard list
echo
generate=("$bin/shardctl" generate "$prompt" --max-tokens 64)
$chat && generate+=(--chatml)
"${generate[@]}"

if $keep; then
  cat <<EOF

The cluster is up, with its page and its API at http://$(cat "$state/http")/. Try:
  export SHARDLINE_ENDPOINT=$SHARDLINE_ENDPOINT PATH=$bin:\$PATH
  shardctl status
  shardctl node list -o wide
  shardctl generate "Write a haiku about rivers." --chatml --temperature 0.8 --seed 7
  deploy/quickstart.sh --stop
Logs: $state/*.log
EOF
fi
