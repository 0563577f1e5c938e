#include "coordinator/ctl/views.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/ctl/json_view.h"
#include "coordinator/ctl/layer_map.h"
#include "coordinator/ctl/table.h"

namespace shardline {
namespace {

// "NODE_STATE_READY" is "ready".
std::string StateText(const std::string& enum_name, size_t prefix) {
  return absl::AsciiStrToLower(enum_name.substr(std::min(prefix, enum_name.size())));
}

std::string StateText(v1::NodeState state) {
  return StateText(v1::NodeState_Name(state), sizeof("NODE_STATE_") - 1);
}
std::string StateText(v1::ModelState state) {
  return StateText(v1::ModelState_Name(state), sizeof("MODEL_STATE_") - 1);
}
std::string StateText(v1::ShardState state) {
  return StateText(v1::ShardState_Name(state), sizeof("SHARD_STATE_") - 1);
}

// Of a node that could serve and is not to: what it is to do instead.
std::string NodeStateText(const v1::NodeSummary& node) {
  const bool asked = node.duty() > v1::NODE_DUTY_SERVING;
  return asked && node.state() == v1::NODE_STATE_READY ? DutyText(node.duty())
                                                       : StateText(node.state());
}

// "loaded", "loading 31%", "node lost".
std::string ShardStateText(const v1::ShardSummary& shard) {
  if (shard.node_lost()) return "node lost";
  if (shard.state() == v1::SHARD_STATE_UNSPECIFIED) return "waits for the node";
  std::string text = StateText(shard.state());
  if (shard.state() == v1::SHARD_STATE_LOADING && shard.bytes() > 0) {
    absl::StrAppend(&text, " ", 100 * shard.bytes_done() / shard.bytes(), "%");
  }
  return text;
}

// "cpu avx2 x4"; a device that is called as its back end is not told twice.
std::string DeviceText(const v1::NodeCapacity& capacity) {
  if (absl::StartsWith(capacity.device(), capacity.backend())) return capacity.device();
  return absl::StrCat(capacity.backend(), " ", capacity.device());
}

// What an operator can do about a model that does not serve.
std::string ModelHint(const v1::ModelSummary& model) {
  switch (model.state()) {
    case v1::MODEL_STATE_DEGRADED:
      return "a node that starts again loads its shard by itself; see `shardctl node list -o wide`";
    case v1::MODEL_STATE_FAILED:
      return absl::StrCat("`shardctl model unload ", model.name(),
                          "`, mend what is said above, then load it again");
    default:
      return "";
  }
}

// Both ends inclusive, as operators count layers.
std::string LayersText(const v1::LayerRange& layers) {
  if (layers.end() <= layers.begin()) return "";
  return absl::StrCat(layers.begin(), "-", layers.end() - 1);
}

std::string Emphasised(const std::string& text, bool good, const ViewOptions& options) {
  if (!options.color) return text;
  return absl::StrCat(good ? "\033[32m" : "\033[31m", text, "\033[0m");
}

}  // namespace

std::string StatusView(const v1::ClusterStatus& status, const v1::NodeList& nodes,
                       const std::string& endpoint, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return StatusJson(status);
  std::string text = absl::StrCat(
      "CLUSTER   ", endpoint, "   ",
      Emphasised(status.healthy() ? "healthy" : "not healthy", status.healthy(), options),
      "   version ", status.version(), "   term ", status.term(), "   plan ", status.plan_epoch(),
      "\n");
  absl::StrAppend(&text, "NODES     ", status.nodes_ready(), " ready   ", status.nodes_lost(),
                  " lost");
  const char* separator = ": ";
  for (const v1::NodeSummary& node : nodes.nodes()) {
    if (node.state() != v1::NODE_STATE_LOST) continue;
    absl::StrAppend(&text, separator, node.node_id());
    if (!node.reason().empty()) absl::StrAppend(&text, " (", node.reason(), ")");
    separator = ", ";
  }
  text += '\n';
  absl::StrAppend(&text, "SESSIONS  ", status.sessions_running(), " running\n");
  if (status.models().empty()) {
    absl::StrAppend(&text, "MODELS    none\n");
  } else {
    v1::ModelList models;
    *models.mutable_models() = status.models();
    // Why one does not serve is said below, a line a problem.
    for (v1::ModelSummary& model : *models.mutable_models()) model.clear_reason();
    ViewOptions plain = options;
    plain.headers = true;
    if (plain.format == OutputFormat::kName) plain.format = OutputFormat::kTable;
    text += ModelListView(models, plain);
  }
  if (!status.problems().empty()) {
    text += "PROBLEMS\n";
    for (const std::string& problem : status.problems()) {
      absl::StrAppend(&text, "  ", problem, "\n");
    }
    for (const v1::ModelSummary& model : status.models()) {
      const std::string hint = ModelHint(model);
      if (!hint.empty()) absl::StrAppend(&text, "  hint: ", hint, "\n");
    }
  }
  return text;
}

std::string DutyText(v1::NodeDuty duty) {
  return StateText(v1::NodeDuty_Name(duty), sizeof("NODE_DUTY_") - 1);
}

std::string NodeListView(const v1::NodeList& nodes, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return NodeListJson(nodes);
  if (options.format == OutputFormat::kName) {
    std::string text;
    for (const v1::NodeSummary& node : nodes.nodes()) absl::StrAppend(&text, node.node_id(), "\n");
    return text;
  }
  const bool wide = options.format == OutputFormat::kWide;
  std::vector<std::string> headers = {"NAME",    "STATE", "MODEL", "LAYERS", "MEM USED/CAP",
                                      "KV FREE", "OPEN",  "BEAT",  "AGE"};
  if (wide) headers.insert(headers.end(), {"DEVICE", "LIFE", "VERSION", "ADDRESS", "REASON"});
  Table table(headers);
  for (const v1::NodeSummary& node : nodes.nodes()) {
    std::string kv;
    if (node.kv_pages_total() > 0) {
      kv = absl::StrCat(node.kv_pages_free(), "/", node.kv_pages_total());
    }
    std::vector<std::string> row = {node.node_id(),
                                    NodeStateText(node),
                                    node.model(),
                                    LayersText(node.layers()),
                                    absl::StrCat(BytesText(node.memory_used_bytes()), "/",
                                                 BytesText(node.capacity().memory_bytes())),
                                    kv,
                                    absl::StrCat(node.attempts_open()),
                                    AgeText(absl::Milliseconds(node.last_beat_ms())),
                                    AgeText(absl::Milliseconds(node.age_ms()))};
    if (wide) {
      row.insert(row.end(), {DeviceText(node.capacity()), absl::StrCat(node.incarnation()),
                             node.version(), node.address(), node.reason()});
    }
    table.AddRow(std::move(row));
  }
  return table.Render(options.headers);
}

std::string ModelListView(const v1::ModelList& models, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return ModelListJson(models);
  if (options.format == OutputFormat::kName) {
    std::string text;
    for (const v1::ModelSummary& model : models.models())
      absl::StrAppend(&text, model.name(), "\n");
    return text;
  }
  const bool wide = options.format == OutputFormat::kWide;
  std::vector<std::string> headers = {"MODEL", "STATE",  "ARCH",   "QUANT",
                                      "SIZE",  "LAYERS", "CONTEXT"};
  const bool any_reason =
      std::any_of(models.models().begin(), models.models().end(),
                  [](const v1::ModelSummary& model) { return !model.reason().empty(); });
  if (any_reason) headers.push_back("REASON");
  if (wide) headers.insert(headers.end(), {"PLAN", "DIGEST"});
  Table table(headers);
  for (const v1::ModelSummary& model : models.models()) {
    std::vector<std::string> row = {
        model.name(),
        StateText(model.state()),
        model.architecture(),
        model.quantisation(),
        model.bytes() == 0 ? "" : BytesText(model.bytes()),
        model.layers() == 0 ? "" : absl::StrCat(model.layers()),
        model.context_tokens_max() == 0 ? "" : absl::StrCat(model.context_tokens_max())};
    if (any_reason) row.push_back(model.reason());
    if (wide) row.insert(row.end(), {absl::StrCat(model.plan_epoch()), model.model_id()});
    table.AddRow(std::move(row));
  }
  return table.Render(options.headers);
}

std::string ModelPreviewView(const v1::ModelPreview& preview, const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return ModelPreviewJson(preview);
  if (!preview.fits()) {
    return absl::StrCat(preview.name(), " does not fit:\n", preview.reason(), "\n");
  }
  Table table({"NODE", "LAYERS", "ROLE", "WEIGHTS", "KV", "TOTAL", "FREE", "STEP"});
  for (const v1::PreviewShard& shard : preview.shards()) {
    table.AddRow({shard.node_id(), LayersText(shard.layers()), shard.is_head() ? "head" : "stage",
                  BytesText(shard.bytes()), BytesText(shard.kv_bytes()),
                  BytesText(shard.total_bytes()), BytesText(shard.memory_free_bytes()),
                  absl::FormatDuration(absl::Microseconds(shard.step_us()))});
  }
  return absl::StrCat(preview.name(), " fits: ", preview.layers(), " layers, context ",
                      preview.context_tokens_max(), " tokens, ", preview.sessions_max(),
                      " sessions; nothing is loaded\n", table.Render(options.headers));
}

std::string NewKeyView(const std::string& secret, const std::string& line,
                       const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return NewKeyJson(secret, line);
  return absl::StrCat(secret, "\n", line, line.empty() ? "" : "\n");
}

std::string ShardListView(const v1::ShardList& shards, const v1::ModelList& models,
                          const ViewOptions& options) {
  if (options.format == OutputFormat::kJson) return ShardListJson(shards);
  std::string text;
  if (options.format == OutputFormat::kName) {
    for (const v1::ShardSummary& shard : shards.shards()) {
      absl::StrAppend(&text, shard.model(), "/", LayersText(shard.layers()), "\n");
    }
    return text;
  }
  std::vector<LayerMapModel> maps;
  for (const v1::ShardSummary& shard : shards.shards()) {
    auto map = std::find_if(maps.begin(), maps.end(),
                            [&](const LayerMapModel& m) { return m.name == shard.model(); });
    if (map == maps.end()) {
      map = maps.insert(map, LayerMapModel{.name = shard.model(), .layers = 0, .shards = {}});
      for (const v1::ModelSummary& model : models.models()) {
        if (model.name() == shard.model()) map->layers = static_cast<int>(model.layers());
      }
    }
    map->shards.push_back(shard);
  }
  for (LayerMapModel& map : maps) {
    std::stable_sort(map.shards.begin(), map.shards.end(), [](const auto& a, const auto& b) {
      return a.layers().begin() < b.layers().begin();
    });
  }
  if (maps.empty()) return options.headers ? "no shard is placed\n" : "";
  // A narrow shard has no room for its name in the drawing.
  const bool with_headers = options.format == OutputFormat::kWide && options.headers;
  std::vector<std::string> headers = {"NODE", "LAYERS", "ROLE", "SIZE", "STATE"};
  const bool with_model = with_headers || maps.size() > 1;
  if (with_model) headers.push_back("MODEL");
  Table table(headers);
  for (const LayerMapModel& map : maps) {
    for (const v1::ShardSummary& shard : map.shards) {
      std::vector<std::string> row = {
          shard.node_id(), absl::StrCat(with_headers ? "" : "layers ", LayersText(shard.layers())),
          shard.is_head() ? "head" : "stage", BytesText(shard.bytes()), ShardStateText(shard)};
      if (with_model) row.push_back(shard.model());
      table.AddRow(std::move(row));
    }
  }
  return absl::StrCat(DrawLayerMap(maps, options.columns), "\n", table.Render(with_headers));
}

}  // namespace shardline
