#!/usr/bin/env bash
# Measures Shardline against floors taken in the same run; ends with one line a figure:
#   figure NAME VALUE UNIT
#
#   tests/bench/run.sh                       all figures
#   tests/bench/run.sh NAME...               the named ones
#   tests/bench/run.sh --list                their names
#   SHARDLINE_BENCH_MODEL=FILE.gguf ...      another model than SmolLM2-135M
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/build_env.sh"
cd "$root"

all=(decode_vs_read_bandwidth prefill_vs_int8_peak shards3_vs_1 hop_vs_grpc_echo
     detect_kill_ms detect_pause_ms failover_over_reprefill semantics_cost sim_events_per_s prefix_hit_ttft)
case "${1:-}" in
  -h|--help) sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
  --list) printf '%s\n' "${all[@]}"; exit 0 ;;
esac
names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${all[@]}")
for name in "${names[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || { echo "run.sh: no figure '$name'; try --list" >&2; exit 2; }
done

model="${SHARDLINE_BENCH_MODEL:-$root/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
[ -n "${SHARDLINE_BENCH_MODEL:-}" ] || deploy/fetch_model.sh
build release model_bench cluster_bench failover_bench semantics_bench prefix_bench grpc_echo binaries |
  tail -n 1
bench="$root/build/release/tests/bench"

echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
for name in "${names[@]}"; do
  case "$name" in
    decode_vs_read_bandwidth) "$bench/model_bench" decode "$model" ;;
    prefill_vs_int8_peak) "$bench/model_bench" prefill "$model" ;;
    shards3_vs_1) "$bench/cluster_bench" shards "$model" ;;
    hop_vs_grpc_echo) "$bench/cluster_bench" hop "$model" "$bench/grpc_echo" ;;
    detect_kill_ms) "$bench/failover_bench" kill "$model" ;;
    detect_pause_ms) "$bench/failover_bench" pause "$model" ;;
    failover_over_reprefill) "$bench/failover_bench" failover "$model" ;;
    prefix_hit_ttft) "$bench/prefix_bench" "$model" ;;
    semantics_cost) "$bench/semantics_bench" "$model" "$root/build" ;;
    sim_events_per_s)  # Of one core.
      "$root/build/release/bin/shardline-sim" --seeds 0..3000 --jobs 1 |
        sed -n 's/^sim_events_per_s \(.*\)/sim_events_per_s: \1 on one core\nfigure & events\/s/p' ;;
  esac | tee -a "$log" | grep -v '^figure '
done
echo
grep '^figure ' "$log"
