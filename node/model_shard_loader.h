#pragma once

// Loads shards from GGUF files onto the CPU.

#include <cstdint>
#include <string>

#include "node/shard_loader.h"

namespace shardline {

struct ModelShardLoaderOptions {
  std::string model_dir;      // Searched first, by the ordered file name; may be empty.
  uint64_t memory_bytes = 0;  // For weights and KV together.
  int32_t threads = 0;        // 0: as many as the process may use.
};

// Looks for the file in the node's own directory, then at the coordinator's path; reads only the
// shard's tensors, twice: once to compare their digests with the manifest, once to pack them.
class ModelShardLoader : public ShardLoader {
 public:
  explicit ModelShardLoader(ModelShardLoaderOptions options);

  absl::StatusOr<LoadedShard> Load(const ShardOrder& order, const Progress& progress) override;

 private:
  std::string FindFile(const ShardOrder& order) const;

  const ModelShardLoaderOptions options_;
};

}  // namespace shardline
