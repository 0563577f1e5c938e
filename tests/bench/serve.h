#pragma once

// A cluster that serves one model, for benches.

#include <memory>
#include <string>

#include "tests/e2e/cluster.h"

namespace shardline::bench {

// Loads `model` as "bench", over all nodes unless `request` says otherwise. Dies if that fails.
std::unique_ptr<testing::Cluster> ServeModel(const std::string& model,
                                             const testing::Cluster::Options& options,
                                             v1::LoadModelRequest request);

}  // namespace shardline::bench
