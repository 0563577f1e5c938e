#pragma once

// One node process between its options and its end.

#include "node/node_options.h"
#include "node/shard_loader.h"

namespace shardline {

// Serves until SIGTERM, SIGINT or a newer life of the same node ends it, then drains and stops. A
// device that hangs cannot keep it: the time for that is bounded. Returns the exit code; errors are
// a line on stderr. REQUIRES: no thread runs yet, so that none but this takes the signals.
int RunNodeProcess(const NodeOptions& options, ShardLoader* loader);

}  // namespace shardline
