#pragma once

// A GGUF model on disk: one file, or a split set that reads as one.
//
// Open maps the files and reads their headers; tensor bytes are touched only by who asks for
// them, so a node that holds ten layers pages in ten layers. See mapped_file.h on files that
// change under us.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/gguf_header.h"
#include "model/gguf_metadata.h"
#include "model/mapped_file.h"

namespace shardline {

// Immutable after Open; any thread. Everything it hands out is a view that dies with it; moving
// the GgufFile keeps views alive.
class GgufFile {
 public:
  // `path` is a file or any part of a split set ("name-00002-of-00003.gguf"), whose other parts
  // lie beside it. Absl NotFound if the file or a part is missing; kInvalidRequest, naming file
  // and tensor or key, if one is malformed or not of the same set.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  // A single file that is in memory already. REQUIRES: `bytes` outlive the result.
  static absl::StatusOr<GgufFile> View(const std::string& name, std::span<const std::byte> bytes);

  const GgufTensor* FindTensor(std::string_view name) const;

  // The file that holds `tensor`, for messages.
  const std::string& PathOf(const GgufTensor& tensor) const { return paths_[tensor.part_index]; }

  // kInvalidRequest if a part was rewritten in place since Open. Ask before trusting bytes.
  absl::Status CheckUnchanged() const;

  // True if the tensors lie in mapped files, whose pages may be given back to the system.
  bool is_mapped() const { return !maps_.empty(); }

  // Of the first part, which carries the model's; split.* keys included.
  const GgufMetadata& metadata() const { return metadata_; }
  // Part by part, in each file's order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // The file, or the parts of the set in order.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  GgufFile() = default;
  static absl::StatusOr<GgufFile> Assemble(std::vector<std::string> paths,
                                           std::vector<GgufHeader> headers);

  std::vector<MappedFile> maps_;  // Empty for View.
  std::vector<std::string> paths_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> index_;  // name -> tensors_
};

}  // namespace shardline
