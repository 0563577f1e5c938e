#pragma once

// Adds what one life of a stage counted to the node's figures.

#include "node/node_metrics.h"
#include "node/stage/stage_core.h"

namespace shardline {

void AddStage(const StageStats& stats, NodeFigures& figures);

}  // namespace shardline
