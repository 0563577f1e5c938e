#include "coordinator/admin/cluster_view.h"

#include <algorithm>

#include "absl/time/time.h"
#include "base/version.h"
#include "coordinator/transport/node_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

v1::ModelState ToProto(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
    case ModelState::kProbing:
      return v1::MODEL_STATE_LOADING;
    case ModelState::kReady:
      return v1::MODEL_STATE_READY;
    case ModelState::kDegraded:
      return v1::MODEL_STATE_DEGRADED;
    case ModelState::kFailed:
      return v1::MODEL_STATE_FAILED;
  }
  return v1::MODEL_STATE_UNSPECIFIED;
}

v1::ShardState ToProto(ShardState state) {
  switch (state) {
    case ShardState::kLoading:
      return v1::SHARD_STATE_LOADING;
    case ShardState::kLoaded:
      return v1::SHARD_STATE_LOADED;
    case ShardState::kFailed:
      return v1::SHARD_STATE_FAILED;
    case ShardState::kWaiting:
    case ShardState::kLost:
      break;
  }
  return v1::SHARD_STATE_UNSPECIFIED;
}

v1::NodeDuty ToProto(NodeDuty duty) {
  switch (duty) {
    case NodeDuty::kServing:
      return v1::NODE_DUTY_SERVING;
    case NodeDuty::kCordoned:
      return v1::NODE_DUTY_CORDONED;
    case NodeDuty::kDraining:
      return v1::NODE_DUTY_DRAINING;
    case NodeDuty::kDrained:
      return v1::NODE_DUTY_DRAINED;
  }
  return v1::NODE_DUTY_UNSPECIFIED;
}

// In the plan's bytes: a node may count some more, and its total is unknown until it has begun.
uint64_t BytesDone(const ShardView& shard) {
  const uint64_t planned = shard.shard.bytes;
  if (shard.state == ShardState::kLoaded) return planned;
  if (shard.bytes_total == 0) return 0;
  const double part =
      static_cast<double>(shard.bytes_done) / static_cast<double>(shard.bytes_total);
  return static_cast<uint64_t>(std::min(1.0, part) * static_cast<double>(planned));
}

// The shard that `node` holds or loads, with its model's name.
struct HeldShard {
  const ClusterModel* model = nullptr;
  const ShardView* shard = nullptr;
};

HeldShard ShardOf(const ClusterView& view, const NodeView& node) {
  for (const ClusterModel& model : view.models) {
    for (const ShardView& shard : model.view.shards) {
      if (model.placed && shard.shard.node == node.node) return {&model, &shard};
    }
  }
  return {};
}

}  // namespace

v1::ModelSummary ToSummary(const ClusterModel& model) {
  v1::ModelSummary out;
  out.set_name(model.facts.name);
  out.set_model_id(model.facts.model_id.value());
  out.set_architecture(model.facts.architecture);
  out.set_quantisation(model.facts.quantisation);
  out.set_bytes(model.facts.bytes);
  out.set_layers(model.facts.layers);
  out.set_context_tokens_max(model.facts.context_tokens_max);
  if (model.placed) {
    out.set_state(ToProto(model.view.state));
    out.set_reason(model.view.reason);
    out.set_plan_epoch(model.view.plan.epoch.value());
  } else {
    out.set_state(model.failed ? v1::MODEL_STATE_FAILED : v1::MODEL_STATE_LOADING);
    out.set_reason(model.note);
  }
  return out;
}

v1::ClusterStatus ToStatus(const ClusterView& view) {
  v1::ClusterStatus out;
  out.set_version(std::string(kVersion));
  out.set_term(view.term.value());
  out.set_sessions_running(view.sessions_running);
  bool any_ready = false;
  uint64_t plan = 0;
  for (const ClusterModel& model : view.models) {
    *out.add_models() = ToSummary(model);
    if (!model.placed) continue;
    plan = std::max(plan, model.view.plan.epoch.value());
    any_ready = any_ready || model.view.state == ModelState::kReady;
  }
  out.set_plan_epoch(plan);
  uint32_t ready = 0;
  for (const NodeView& node : view.nodes) ready += node.live ? 1 : 0;
  out.set_nodes_ready(ready);
  out.set_nodes_lost(static_cast<uint32_t>(view.nodes.size()) - ready);
  for (const std::string& problem : view.problems) out.add_problems(problem);
  out.set_healthy(any_ready && view.problems.empty());
  return out;
}

v1::NodeList ToNodeList(const ClusterView& view) {
  v1::NodeList out;
  for (const NodeView& node : view.nodes) {
    v1::NodeSummary& summary = *out.add_nodes();
    summary.set_node_id(node.node.value());
    summary.set_incarnation(node.incarnation.value());
    summary.set_address(node.address);
    summary.set_version(node.version);
    *summary.mutable_capacity() = ToProto(node.capacity);
    summary.set_memory_used_bytes(node.load.memory_used_bytes);
    summary.set_attempts_open(node.load.attempts_open);
    summary.set_kv_pages_total(node.load.kv_pages_total);
    summary.set_kv_pages_free(node.load.kv_pages_free);
    summary.set_last_beat_ms(absl::ToInt64Milliseconds(node.since_echo));
    summary.set_age_ms(absl::ToInt64Milliseconds(node.age));
    summary.set_reason(node.reason);
    summary.set_state(node.live ? v1::NODE_STATE_READY : v1::NODE_STATE_LOST);
    const auto duty = view.duties.find(node.node);
    if (duty != view.duties.end()) {
      summary.set_duty(ToProto(duty->second.duty));
      summary.set_sessions_running(duty->second.sessions);
      summary.set_drain_left_ms(absl::ToInt64Milliseconds(duty->second.left));
    }
    const HeldShard held = ShardOf(view, node);
    if (held.shard == nullptr) continue;
    summary.set_model(held.model->facts.name);
    *summary.mutable_layers() = ToProto(held.shard->shard.layers);
    if (node.live && held.shard->state != ShardState::kLoaded) {
      summary.set_state(v1::NODE_STATE_LOADING);
      if (!held.shard->reason.empty()) summary.set_reason(held.shard->reason);
    }
  }
  return out;
}

v1::ModelList ToModelList(const ClusterView& view) {
  v1::ModelList out;
  for (const ClusterModel& model : view.models) *out.add_models() = ToSummary(model);
  return out;
}

v1::ShardList ToShardList(const ClusterView& view, const std::string& model_name) {
  v1::ShardList out;
  for (const ClusterModel& model : view.models) {
    if (!model_name.empty() && model.facts.name != model_name) continue;
    for (const ShardView& shard : model.view.shards) {
      v1::ShardSummary& summary = *out.add_shards();
      summary.set_model(model.facts.name);
      summary.set_node_id(shard.shard.node.value());
      *summary.mutable_layers() = ToProto(shard.shard.layers);
      summary.set_is_head(shard.shard.is_head);
      summary.set_state(ToProto(shard.state));
      summary.set_bytes(shard.shard.bytes);
      summary.set_bytes_done(BytesDone(shard));
      summary.set_node_lost(shard.state == ShardState::kLost);
      summary.set_proven(shard.proven);
    }
  }
  return out;
}

}  // namespace shardline
