#include "coordinator/ctl/layer_map.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "coordinator/ctl/table.h"

namespace shardline {
namespace {

constexpr int kColumnsPerLayerMax = 3;
constexpr int kMapColumnsMin = 20;

constexpr std::string_view kLoaded = "█";
constexpr std::string_view kLoading = "▒";
constexpr std::string_view kLost = "░";
constexpr std::string_view kFailed = "!";
constexpr std::string_view kUncovered = "·";

int LayersOf(const LayerMapModel& model) {
  int layers = model.layers;
  for (const v1::ShardSummary& shard : model.shards) {
    layers = std::max(layers, shard.layers().end());
  }
  return layers;
}

// Where layer `layer` of `layers` begins in a line of `columns`.
int ColumnOf(int layer, int layers, int columns) {
  return static_cast<int>(static_cast<int64_t>(layer) * columns / layers);
}

std::string_view FillOf(const v1::ShardSummary& shard, double position) {
  if (shard.node_lost()) return kLost;
  if (shard.state() == v1::SHARD_STATE_FAILED) return kFailed;
  if (shard.state() == v1::SHARD_STATE_LOADED) return kLoaded;
  const double done = shard.bytes() == 0 ? 0
                                         : static_cast<double>(shard.bytes_done()) /
                                               static_cast<double>(shard.bytes());
  return position < done ? kLoaded : kLoading;
}

// One shard in `width` columns: brackets and the node's name where they fit, then the fill.
std::string DrawBox(const v1::ShardSummary& shard, int width) {
  std::string box;
  const int inner = width >= 3 ? width - 2 : width;
  if (width >= 3) box += '[';
  // Half a name is none.
  std::string label = absl::StrCat(shard.node_id(), " ");
  if (static_cast<int>(DisplayWidth(label)) >= inner) label.clear();
  absl::StrAppend(&box, label);
  const int cells = inner - static_cast<int>(DisplayWidth(label));
  for (int i = 0; i < cells; ++i) {
    absl::StrAppend(&box, std::string(FillOf(shard, (i + 0.5) / cells)));
  }
  if (width >= 3) box += ']';
  return box;
}

// Lines of shards that do not overlap: the first of each range, then the replicas.
std::vector<std::vector<v1::ShardSummary>> LinesOf(const LayerMapModel& model) {
  std::vector<std::vector<v1::ShardSummary>> lines(1);
  for (const v1::ShardSummary& shard : model.shards) {
    auto line = std::find_if(lines.begin(), lines.end(), [&shard](const auto& drawn) {
      return drawn.empty() || drawn.back().layers().end() <= shard.layers().begin();
    });
    if (line == lines.end()) line = lines.emplace(lines.end());
    line->push_back(shard);
  }
  return lines;
}

std::string DrawLine(const std::vector<v1::ShardSummary>& shards, int layers, int columns) {
  std::string line;
  int at = 0;
  for (const v1::ShardSummary& shard : shards) {
    const int begin = std::max(at, ColumnOf(shard.layers().begin(), layers, columns));
    const int end = std::min(columns, ColumnOf(shard.layers().end(), layers, columns));
    if (end <= begin) continue;
    for (; at < begin; ++at) absl::StrAppend(&line, std::string(kUncovered));
    absl::StrAppend(&line, DrawBox(shard, end - begin));
    at = end;
  }
  for (; at < columns; ++at) absl::StrAppend(&line, std::string(kUncovered));
  return line;
}

// Layer numbers above their columns, as many as do not run into each other.
std::string DrawRuler(int layers, int columns) {
  std::string line;
  for (int layer = 0; layer < layers; layer += 5) {
    const int column = ColumnOf(layer, layers, columns);
    if (!line.empty() && column < static_cast<int>(line.size()) + 1) continue;
    line.append(static_cast<size_t>(column) - line.size(), ' ');
    absl::StrAppend(&line, layer);
  }
  return line;
}

std::string Legend(const std::string& drawn) {
  std::string legend;
  auto mention = [&](std::string_view glyph, const char* meaning) {
    if (drawn.find(glyph) == std::string::npos) return;
    absl::StrAppend(&legend, legend.empty() ? "" : "   ", std::string(glyph), " ", meaning);
  };
  mention(kLoading, "loading");
  mention(kLost, "node lost");
  mention(kFailed, "failed");
  mention(kUncovered, "no shard");
  return legend;
}

}  // namespace

std::string DrawLayerMap(const std::vector<LayerMapModel>& models, int columns_max) {
  size_t name_width = 5;  // "MODEL"
  for (const LayerMapModel& model : models)
    name_width = std::max(name_width, DisplayWidth(model.name));
  const int room = std::max(kMapColumnsMin, columns_max - static_cast<int>(name_width) - 2);

  std::string text;
  std::string maps;
  int ruler_layers = 0;
  for (const LayerMapModel& model : models) {
    const int layers = LayersOf(model);
    if (layers == 0) continue;
    const int columns = std::min(room, layers * kColumnsPerLayerMax);
    if (layers != ruler_layers) {
      const std::string head = ruler_layers == 0 ? "MODEL" : "";
      absl::StrAppend(&text, head, std::string(name_width + 2 - head.size(), ' '),
                      DrawRuler(layers, columns), "\n");
      ruler_layers = layers;
    }
    std::string name = model.name;
    for (const std::vector<v1::ShardSummary>& line : LinesOf(model)) {
      const std::string map = DrawLine(line, layers, columns);
      absl::StrAppend(&text, name, std::string(name_width + 2 - DisplayWidth(name), ' '), map,
                      "\n");
      maps += map;
      name.clear();
    }
  }
  const std::string legend = Legend(maps);
  if (!legend.empty()) absl::StrAppend(&text, legend, "\n");
  return text;
}

}  // namespace shardline
