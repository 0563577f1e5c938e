#include "coordinator/gateway/cluster_json.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/version.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const google::protobuf::Message& message) {
  return Json::parse(MessageJson(message), nullptr, /*allow_exceptions=*/false);
}

std::string Print(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Whom a node sends hidden state to, and for how long it has not heard of it; none: it does.
using Links = std::map<std::string, std::optional<int64_t>>;

// Who holds the range behind this one, all replicas; the ring closes on the heads.
void AddNeighbours(const ModelView& model, const NodeId& node, Links& links) {
  for (const ShardView& own : model.shards) {
    if (own.shard.node != node) continue;
    const bool is_last = own.shard.layers.end == model.plan.layer_count;
    const int32_t next = is_last ? 0 : own.shard.layers.end;
    for (const ShardView& other : model.shards) {
      if (other.shard.layers.begin != next || other.shard.node == node) continue;
      links.emplace(other.shard.node.value(), std::nullopt);
    }
  }
}

Json LinksOf(const ClusterView& view, const NodeView& node) {
  Links links;
  for (const ClusterModel& model : view.models) {
    if (model.placed) AddNeighbours(model.view, node.node, links);
  }
  for (const PeerReport& report : node.load.peers) {
    links[report.peer.node.value()] = absl::ToInt64Milliseconds(report.silent);
  }
  Json out = Json::array();
  for (const auto& [to, silent_ms] : links) {
    out.push_back({{"to", to}, {"silent_ms", silent_ms ? Json(*silent_ms) : Json()}});
  }
  return out;
}

Json NodesOf(const ClusterView& view) {
  Json nodes = Json::array();
  const v1::NodeList list = ToNodeList(view);
  for (size_t i = 0; i < view.nodes.size(); ++i) {
    Json node = ToJson(list.nodes(static_cast<int>(i)));
    node["links"] = LinksOf(view, view.nodes[i]);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

template <typename Items>
Json ListOf(const Items& items, int count_max) {
  Json list = Json::array();
  for (const auto& item : items) {
    if (static_cast<int>(list.size()) == count_max) break;
    list.push_back(ToJson(item));
  }
  return list;
}

// What runs on by itself.
void EraseAges(Json& snapshot) {
  snapshot.erase("at_unix_ms");
  snapshot["figures"].erase("tokens_per_s");
  for (Json& node : snapshot["nodes"]) {
    for (const char* age : {"last_beat_ms", "age_ms", "drain_left_ms"}) node.erase(age);
    for (Json& link : node["links"]) link["silent_ms"] = link["silent_ms"].is_null();
  }
  for (Json& session : snapshot["sessions"]) {
    for (const char* age : {"age_ms", "budget_ms"}) session.erase(age);
  }
}

std::string_view LevelName(EventLevel level) {
  switch (level) {
    case EventLevel::kWarning:
      return "warning";
    case EventLevel::kError:
      return "error";
    default:
      return "info";
  }
}

Json SummaryOf(const RequestRecord& record) {
  const double seconds = absl::ToDoubleSeconds(record.total - record.ttft);
  const bool has_rate = record.tokens > 1 && record.ttft > absl::ZeroDuration() && seconds > 0;
  return {{"request_id", record.request_id},
          {"id", record.id},
          {"endpoint", record.endpoint},
          {"model", record.model},
          {"key", record.key_name},
          {"session", absl::StrCat(record.session.value())},
          {"epoch", absl::StrCat(record.epoch.value())},
          {"status", record.status},
          {"reason", record.reason},
          {"at_unix_ms", record.at_unix_ms},
          {"queued_us", absl::ToInt64Microseconds(record.queued)},
          {"ttft_us", absl::ToInt64Microseconds(record.ttft)},
          {"total_us", absl::ToInt64Microseconds(record.total)},
          {"prompt_tokens", record.prompt_tokens},
          {"cached_tokens", record.cached_tokens},
          {"tokens", record.tokens},
          {"tokens_per_s", has_rate ? Json((record.tokens - 1) / seconds) : Json()}};
}

}  // namespace

MomentText MomentJson(const ClusterMoment& moment) {
  const ClusterView& view = moment.view;
  Json snapshot = {
      {"at_unix_ms", moment.at_unix_ms},
      {"version", std::string(kVersion)},
      {"term", absl::StrCat(view.term.value())},
      {"cluster", ToJson(ToStatus(view))},
      {"nodes", NodesOf(view)},
      {"models", ListOf(ToModelList(view).models(), static_cast<int>(view.models.size()))},
      {"shards", Json::array()},
      {"sessions", ListOf(moment.sessions.sessions(), kSessionsShown)},
      {"figures",
       {{"sessions_running", view.sessions_running},
        {"sessions_waiting", view.sessions_waiting},
        {"tokens_per_s", moment.tokens_per_s},
        {"requests_total", view.sessions_started}}}};
  const v1::ShardList shards = ToShardList(view, "");
  snapshot["shards"] = ListOf(shards.shards(), shards.shards_size());
  MomentText text{.json = Print(snapshot), .stable = {}};
  EraseAges(snapshot);
  text.stable = Print(snapshot);
  return text;
}

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  // It fails for bytes that are no UTF-8 alone, which a string field cannot have come with.
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return "{}";
  return text;
}

std::string EventJson(const ClusterEvent& event) {
  return Print({{"id", event.id},
                {"at_unix_ms", event.at_unix_ms},
                {"level", std::string(LevelName(event.level))},
                {"kind", event.kind},
                {"text", event.text},
                {"node", event.node},
                {"model", event.model},
                {"session", absl::StrCat(event.session.value())}});
}

std::string RequestListJson(const std::vector<RequestRecord>& records) {
  Json list = {{"requests", Json::array()}};
  for (const RequestRecord& record : records) list["requests"].push_back(SummaryOf(record));
  return Print(list);
}

std::string RequestJson(const RequestRecord& record) {
  Json json = SummaryOf(record);
  json["timings"] = ToJson(record.timings);
  json["stages"] = Json::array();
  for (const RequestRecord::Stage& stage : record.stages) {
    json["stages"].push_back(
        {{"node_id", stage.node.value()},
         {"layers", {{"begin", stage.layers.begin}, {"end", stage.layers.end}}},
         {"compute_us", absl::ToInt64Microseconds(stage.compute)}});
  }
  json["restarts"] = Json::array();
  for (const RequestRecord::Restart& restart : record.restarts) {
    json["restarts"].push_back({{"at_us", absl::ToInt64Microseconds(restart.at)},
                                {"epoch", absl::StrCat(restart.epoch.value())},
                                {"reason", restart.reason}});
  }
  return Print(json);
}

}  // namespace shardline
