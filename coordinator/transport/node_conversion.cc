#include "coordinator/transport/node_conversion.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

constexpr size_t kTextBytesMax = 256;
constexpr size_t kPeersMax = 256;
constexpr int kCpusMax = 65'536;

absl::Status CheckText(const std::string& text, const char* field) {
  if (text.size() <= kTextBytesMax) return absl::OkStatus();
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat("hello: ", field, " has ", text.size(), " bytes, at most ",
                                  kTextBytesMax, " are allowed"));
}

// A rate that arithmetic can be done with; a node that measured nonsense counts as unmeasured.
double Rate(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

NodeCapacity FromProto(const v1::NodeCapacity& capacity) {
  return {.memory_bytes = capacity.memory_bytes(),
          .threads = capacity.threads(),
          .read_bytes_per_s = Rate(capacity.read_bytes_per_s()),
          .int8_ops_per_s = Rate(capacity.int8_ops_per_s()),
          .backend = capacity.backend(),
          .device = capacity.device(),
          .machine = capacity.machine(),
          .cpus = {capacity.cpus().begin(), capacity.cpus().end()}};
}

}  // namespace

absl::StatusOr<NodeHello> FromProto(const v1::NodeHello& hello) {
  if (!IsValidNodeId(hello.node_id())) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("hello: a node id is 1 to ", kNodeIdBytesMax,
                                    " letters, digits, '.', '_' or '-'"));
  }
  for (const auto& [text, field] :
       {std::pair(&hello.version(), "version"), std::pair(&hello.address(), "address"),
        std::pair(&hello.boot_id(), "boot_id"),
        std::pair(&hello.capacity().backend(), "capacity.backend"),
        std::pair(&hello.capacity().device(), "capacity.device"),
        std::pair(&hello.capacity().machine(), "capacity.machine")}) {
    const absl::Status status = CheckText(*text, field);
    if (!status.ok()) return status;
  }
  if (hello.capacity().cpus_size() > kCpusMax) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("hello: capacity.cpus has ", hello.capacity().cpus_size(),
                                    " entries, at most ", kCpusMax, " are allowed"));
  }
  if (hello.address().empty()) {
    return MakeFailure(FailureKind::kInvalidRequest, "hello: the address is empty");
  }
  return NodeHello{.protocol_min = hello.protocol().min(),
                   .protocol_max = hello.protocol().max(),
                   .node = NodeId(hello.node_id()),
                   .version = hello.version(),
                   .address = hello.address(),
                   .boot_id = hello.boot_id(),
                   .incarnation = Incarnation(hello.incarnation()),
                   .capacity = FromProto(hello.capacity()),
                   .term_seen = Term(hello.term_seen())};
}

NodeBeat FromProto(const v1::Heartbeat& beat) {
  NodeBeat out{.number = beat.number(),
               .echo = beat.echo(),
               .jobs_started = beat.jobs_started(),
               .jobs_done = beat.jobs_done(),
               .attempts_open = beat.attempts_open(),
               .kv_pages_total = beat.kv_pages_total(),
               .kv_pages_free = beat.kv_pages_free(),
               .memory_used_bytes = beat.memory_used_bytes(),
               .peers = {}};
  for (const v1::PeerReport& report : beat.peers()) {
    if (out.peers.size() >= kPeersMax) break;
    if (!IsValidNodeId(report.node_id())) continue;
    out.peers.push_back({.peer = {NodeId(report.node_id()), Incarnation(report.incarnation())},
                         .silent = absl::Milliseconds(std::max<int64_t>(0, report.silent_ms()))});
  }
  return out;
}

std::optional<ShardReport> FromProto(const v1::ShardReport& report) {
  ShardReport out{.plan = PlanEpoch(report.plan_epoch()),
                  .state = ShardState::kLoading,
                  .bytes_done = report.bytes_done(),
                  .bytes_total = report.bytes_total(),
                  .numerics_id = NumericsId(report.numerics_id()),
                  .kv_pages = report.kv_pages_total(),
                  .cost = FromProto(report.cost()),
                  .failure = {}};
  switch (report.state()) {
    case v1::SHARD_STATE_LOADING:
      return out;
    case v1::SHARD_STATE_LOADED:
      out.state = ShardState::kLoaded;
      return out;
    case v1::SHARD_STATE_FAILED:
      out.state = ShardState::kFailed;
      out.failure = FromProto(report.failure());
      return out;
    default:
      return std::nullopt;
  }
}

v1::NodeCapacity ToProto(const NodeCapacity& capacity) {
  v1::NodeCapacity out;
  out.set_memory_bytes(capacity.memory_bytes);
  out.set_threads(capacity.threads);
  out.set_read_bytes_per_s(capacity.read_bytes_per_s);
  out.set_int8_ops_per_s(capacity.int8_ops_per_s);
  out.set_backend(capacity.backend);
  out.set_device(capacity.device);
  out.set_machine(capacity.machine);
  out.mutable_cpus()->Assign(capacity.cpus.begin(), capacity.cpus.end());
  return out;
}

v1::OpenRequest OpenRequestFor(const Route& route, const SessionsActions::Open& open, Term term) {
  v1::OpenRequest out;
  out.set_session(open.key.session.value());
  out.set_epoch(open.key.epoch.value());
  out.set_term(term.value());
  out.set_incarnation(open.to.incarnation.value());
  out.mutable_recipe()->set_model_id(route.model_id.value());
  out.mutable_recipe()->set_numerics_id(route.numerics_id.value());
  out.mutable_recipe()->set_plan_epoch(route.plan.value());
  out.set_stage_index(static_cast<uint32_t>(open.stage));
  for (const RouteStage& stage : route.stages) *out.add_route() = ToProto(stage);
  out.set_tokens_max(open.tokens_max);
  out.set_budget_ms(absl::ToInt64Milliseconds(open.budget));
  return out;
}

v1::FenceRequest FenceRequestFor(const SessionsActions::Fence& fence, Term term) {
  v1::FenceRequest out;
  out.set_session(fence.key.session.value());
  out.set_epoch(fence.key.epoch.value());
  out.set_term(term.value());
  out.set_reason_kind(static_cast<int32_t>(fence.kind));
  return out;
}

RunResult FromProto(const v1::RunEnd& end) {
  RunResult out;
  out.reason = FromProto(end.reason());
  out.tokens = end.tokens();
  out.stop_token = end.stop_token();
  out.timings = FromProto(end.timings());
  return out;
}

}  // namespace shardline
