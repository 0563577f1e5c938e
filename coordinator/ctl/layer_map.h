#pragma once

// Who holds which layers, drawn as one line a model:
//
//   MODEL           0         5         10        15        20
//   tinyllama-1.1b  [node-1   █████████][node-2   ███████████]
//
// A box is a shard, its fill says its state; layers that no node holds are dots.

#include <string>
#include <vector>

#include "shardline/v1/admin.pb.h"

namespace shardline {

struct LayerMapModel {
  std::string name;
  int layers = 0;  // 0: unknown; then the last layer of any shard ends the line.
  std::vector<v1::ShardSummary> shards;  // By their layers.
};

// Lines end with a newline; the widest is at most `columns_max`, or what the names need if that
// is more.
std::string DrawLayerMap(const std::vector<LayerMapModel>& models, int columns_max);

}  // namespace shardline
