#pragma once

// A coordinator and nodes in this process whose devices are emulated, so that each has hardware of
// its own; everything else is real: cores, threads, gRPC links on loopback, ledger.

#include <memory>
#include <string>
#include <vector>

#include "base/shard_cost.h"
#include "node/node.h"
#include "shardline/v1/inference.grpc.pb.h"
#include "tests/coordinator/transport/test_cluster.h"
#include "tests/support/emulated_device.h"

namespace shardline::bench {

class EmulatedRing {
 public:
  struct Options {
    int stages = 3;
    ShardCost layer_cost;  // Of each of kLayers layers.
    uint32_t sessions_max = 64;
    uint32_t context_tokens_max = 512;
  };
  static constexpr int kLayers = 6;
  static constexpr int kHiddenDim = 1024;

  explicit EmulatedRing(const Options& options);
  ~EmulatedRing();

  v1::Inference::Stub& inference() { return *inference_; }

 private:
  std::string directory_;
  testing::EmulatedShardLoader loader_;
  testing::TestCluster cluster_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<v1::Inference::Stub> inference_;
};

}  // namespace shardline::bench
