#!/usr/bin/env bash
# Measures Shardline against floors taken in the same run; ends with one line a figure:
#   figure NAME VALUE UNIT (aim)
#
#   tests/bench/run.sh                       all figures
#   tests/bench/run.sh NAME...               the named ones
#   tests/bench/run.sh --list                their names
#   SHARDLINE_BENCH_MODEL=FILE.gguf ...      another model than SmolLM2-135M
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../deploy/build_env.sh"
cd "$root"

all=(decode_vs_read_bandwidth prefill_vs_int8_peak shards3_vs_1 hop_vs_grpc_echo
     batch16_vs_roofline pipeline_efficiency prefill_pipelined gap_p99_rounds pipeline_two_cores
     host_step_cost hog prefix_hit_ttft draft_speedup_copy draft_speedup_chat
     detect_kill_ms detect_pause_ms failover_over_reprefill semantics_cost sse_streams
     gateway_overhead ttft_overhead_ms sim_events_per_s)
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
build release model_bench batch_bench cluster_bench pipeline_bench rounds_bench prefix_bench \
  drafts_bench failover_bench semantics_bench sse_bench gateway_bench grpc_echo binaries | tail -n 1
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
    batch16_vs_roofline) "$bench/batch_bench" decode "$model" ;;
    pipeline_efficiency) "$bench/pipeline_bench" decode ;;
    prefill_pipelined) "$bench/pipeline_bench" prefill ;;
    gap_p99_rounds) "$bench/pipeline_bench" gaps ;;
    pipeline_two_cores) "$bench/rounds_bench" cores "$root/build" ;;
    host_step_cost) "$bench/rounds_bench" host "$model" ;;
    hog) "$bench/rounds_bench" hog "$model" ;;
    detect_kill_ms) "$bench/failover_bench" kill "$model" ;;
    detect_pause_ms) "$bench/failover_bench" pause "$model" ;;
    failover_over_reprefill) "$bench/failover_bench" failover "$model" ;;
    prefix_hit_ttft) "$bench/prefix_bench" "$model" ;;
    draft_speedup_copy) "$bench/drafts_bench" copy "$model" ;;
    draft_speedup_chat) "$bench/drafts_bench" chat "$model" ;;
    semantics_cost) "$bench/semantics_bench" "$model" "$root/build" ;;
    sse_streams) "$bench/sse_bench" ;;
    gateway_overhead) "$bench/gateway_bench" token "$model" ;;
    ttft_overhead_ms) "$bench/gateway_bench" ttft "$model" ;;
    sim_events_per_s)  # Of one core.
      "$root/build/release/bin/shardline-sim" --seeds 0..3000 --jobs 1 |
        sed -n 's/^sim_events_per_s \(.*\)/sim_events_per_s: \1 on one core\nfigure & events\/s/p' ;;
  esac | tee -a "$log" | grep -v '^figure '
done
echo
grep '^figure ' "$log"
