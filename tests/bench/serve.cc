#include "tests/bench/serve.h"

#include <filesystem>

#include "base/check.h"

namespace shardline::bench {

std::unique_ptr<testing::Cluster> ServeModel(const std::string& model,
                                             const testing::Cluster::Options& options,
                                             v1::LoadModelRequest request) {
  auto cluster = std::make_unique<testing::Cluster>(options);
  request.set_path(std::filesystem::absolute(model).string());
  request.set_name("bench");
  if (request.shards() == 0) request.set_shards(static_cast<uint32_t>(options.nodes));
  const absl::Status status = cluster->LoadModel(request);
  SL_CHECK(status.ok(), status.ToString());
  return cluster;
}

}  // namespace shardline::bench
