#pragma once

// What shardctl prints for each answer of the coordinator. Pure: proto in, text out.

#include <string>

#include "shardline/v1/admin.pb.h"

namespace shardline {

// yaml would be JSON with other brackets; scripts have json.
// csv is for exports alone.
enum class OutputFormat { kTable, kWide, kJson, kName, kCsv };

struct ViewOptions {
  OutputFormat format = OutputFormat::kTable;
  bool headers = true;
  bool color = false;
  int columns = 100;  // Of the terminal; the layer map fits into them.
};

// `nodes` names those that are lost; JSON is `status` alone.
std::string StatusView(const v1::ClusterStatus& status, const v1::NodeList& nodes,
                       const std::string& endpoint, const ViewOptions& options);
// "serving", "cordoned", "draining" or "drained".
std::string DutyText(v1::NodeDuty duty);
std::string NodeListView(const v1::NodeList& nodes, const ViewOptions& options);
// A line a node, or why it does not fit.
std::string ModelPreviewView(const v1::ModelPreview& preview, const ViewOptions& options);
// `line` is empty when it has been written elsewhere.
std::string NewKeyView(const std::string& secret, const std::string& line,
                       const ViewOptions& options);
std::string ModelListView(const v1::ModelList& models, const ViewOptions& options);
// A map of the layers, and a line a shard. `models` says how many layers each model has.
std::string ShardListView(const v1::ShardList& shards, const v1::ModelList& models,
                          const ViewOptions& options);

}  // namespace shardline
