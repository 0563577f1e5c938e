#pragma once

// Adds what one life of a shard counted to the node's figures.

#include "node/kv/hot_kv_manager.h"
#include "node/node_metrics.h"
#include "node/rounds/head_core.h"
#include "node/stage/stage_core.h"

namespace shardline {

void AddStage(const StageStats& stats, NodeFigures& figures);
void AddPrefixes(const PrefixStats& stats, NodeFigures& figures);
void AddHead(const HeadStats& stats, NodeFigures& figures);

}  // namespace shardline
