#include "tests/bench/emulated_ring.h"

#include <stdlib.h>

#include "base/check.h"
#include "tests/support/tiny_llama.h"

namespace shardline::bench {

std::unique_ptr<testing::Cluster> StartEmulatedRing(const EmulatedRingOptions& options) {
  const auto set = [](const char* name, double value) {
    setenv(name, std::to_string(value).c_str(), 1);  // The nodes inherit it.
  };
  set("SHARDLINE_EMULATED_STEP_US", absl::ToDoubleMicroseconds(options.layer_cost.step));
  set("SHARDLINE_EMULATED_ROW_US", absl::ToDoubleMicroseconds(options.layer_cost.row));
  set("SHARDLINE_EMULATED_HIDDEN", kEmulatedHiddenDim);
  auto cluster = std::make_unique<testing::Cluster>(
      testing::Cluster::Options{.nodes = options.stages, .node_binary = "emulated-node"});
  v1::LoadModelRequest request;
  request.set_path(testing::MakeTinyLlama(
      cluster->directory(), {.layers = kEmulatedLayers,
                             .hidden = 32,
                             .q_heads = 1,
                             .kv_heads = 1,
                             .context = static_cast<int32_t>(options.context_tokens_max)}));
  request.set_shards(static_cast<uint32_t>(options.stages));
  request.set_sessions_max(options.sessions_max);
  request.set_context_tokens_max(options.context_tokens_max);
  const absl::Status status = cluster->LoadModel(request);
  SL_CHECK(status.ok(), status.ToString());
  return cluster;
}

}  // namespace shardline::bench
