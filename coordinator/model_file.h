#pragma once

// What the coordinator knows of a model from its file: shape, costs, digests, tokenizer.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "model/chat_template.h"
#include "model/hyper_parameters.h"
#include "model/manifest.h"
#include "model/model_layout.h"
#include "model/tokenizer/tokenizer.h"

namespace shardline {

// Immutable; any thread.
struct ModelFile {
  std::string path;  // As given.
  std::string name;  // Of the file, without ending and part number.
  HyperParameters hyper;
  ModelCosts costs;
  ModelManifest manifest;
  ModelId id;
  std::string quantisation;  // The most common tensor type by bytes.
  uint64_t bytes = 0;        // Of all tensors.
  std::unique_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> end_tokens;                    // Ids that end a generation.
  std::unique_ptr<const ChatTemplate> chat_template;  // Null: `why_no_chat_template` says why.
  std::string why_no_chat_template;
};

// Where digests are kept from one start to the next, so that a file is read whole only once.
// Keyed by path, size and modification time.
struct ManifestCache {
  struct Key {
    std::string path;
    uint64_t size = 0;
    int64_t modified_ns = 0;
  };
  std::function<std::optional<std::string>(const Key&)> find;
  std::function<void(const Key&, const std::string&)> put;
};

// The name that a file gives its model: without folder, ending and part number.
std::string ModelNameOf(const std::string& path);

// Opens and checks the whole model. Blocks: reads every byte once when the cache does not know
// the file. Errors are one line that names file and tensor or key.
absl::StatusOr<std::shared_ptr<const ModelFile>> ReadModelFile(const std::string& path,
                                                               const ManifestCache& cache);

// The digests of what one shard holds, serialised for LoadShard.
std::string ShardManifest(const ModelFile& file, const LayerRange& layers, bool is_head);

}  // namespace shardline
