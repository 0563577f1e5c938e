// What a node tells of itself: the hello, the beats, the progress of its pulses, its shard.

#include <algorithm>
#include <utility>

#include "base/version.h"
#include "node/node.h"
#include "proto/wire/message_conversion.h"

namespace shardline {

v1::NodeHello Node::Hello() const {
  v1::NodeHello hello;
  hello.mutable_protocol()->set_min(kProtocolVersionMin);
  hello.mutable_protocol()->set_max(kProtocolVersionMax);
  hello.set_node_id(options_.node_id.value());
  hello.set_version(std::string(kVersion));
  hello.set_address(options_.advertise.empty() ? address() : options_.advertise);
  hello.set_boot_id(boot_id_);
  {
    absl::MutexLock lock(&obeyed_mu_);
    hello.set_term_seen(obeyed_.value().value());
  }
  absl::MutexLock lock(&mu_);
  *hello.mutable_capacity() = capacity_;
  hello.set_incarnation(facts_.incarnation.value());
  *hello.mutable_shard() = facts_.shard;
  return hello;
}

v1::Heartbeat Node::Beat() const {
  v1::Heartbeat beat;
  beat.set_attempts_open(counters_.attempts_open.load(std::memory_order_relaxed));
  beat.set_kv_pages_total(counters_.kv_pages_total.load(std::memory_order_relaxed));
  beat.set_kv_pages_free(counters_.kv_pages_free.load(std::memory_order_relaxed));
  for (const std::vector<SilentPeer>& silent : {pulses_->Silent(), pulse_host_->Silent()}) {
    for (const SilentPeer& peer : silent) {
      v1::PeerReport& report = *beat.add_peers();
      report.set_node_id(peer.peer.node.value());
      report.set_incarnation(peer.peer.incarnation.value());
      report.set_silent_ms(absl::ToInt64Milliseconds(peer.silent));
    }
  }
  const PulseProgress progress = Progress();
  beat.set_jobs_started(progress.jobs_started);
  beat.set_jobs_done(progress.jobs_done);
  absl::MutexLock lock(&mu_);
  beat.set_memory_used_bytes(facts_.memory_used_bytes);
  if (leaving_) {
    beat.set_draining(true);
    const absl::Duration left = std::max(leaving_->move_by - clock_->Now(), absl::ZeroDuration());
    beat.set_drain_ms(absl::ToInt64Milliseconds(left));
  }
  return beat;
}

StagePeer Node::Self() const {
  absl::MutexLock lock(&mu_);
  return {options_.node_id, facts_.incarnation};
}

PulseProgress Node::Progress() const {
  absl::MutexLock lock(&mu_);
  if (facts_.executor == nullptr) return {};
  const ExecutorProgress progress = facts_.executor->progress();
  return {.jobs_started = progress.jobs_started, .jobs_done = progress.jobs_done};
}

void Node::ReportShard(v1::ShardReport report) {
  absl::MutexLock lock(&mu_);
  facts_.shard = report;
  if (reports_to_ != nullptr) reports_to_->Report(std::move(report));
}

void Node::ReportLoaded() {
  v1::ShardReport report = ReportOf(*wanted_, v1::SHARD_STATE_LOADED);
  report.set_bytes_done(held_->tensor_bytes);
  report.set_bytes_total(held_->tensor_bytes);
  report.set_numerics_id(held_->numerics_id.value());
  report.set_kv_pages_total(static_cast<uint32_t>(wanted_->kv_pages));
  *report.mutable_cost() = ToProto(held_->cost);
  ReportShard(std::move(report));
}

v1::ShardReport Node::ReportOf(const ShardOrder& order, v1::ShardState state) {
  v1::ShardReport report;
  report.set_plan_epoch(order.plan_epoch.value());
  report.set_state(state);
  *report.mutable_layers() = ToProto(order.layers);
  report.set_model_id(order.model_id.value());
  return report;
}

}  // namespace shardline
