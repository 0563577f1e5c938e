// Any bytes as a model file, and as a manifest. Whatever is accepted must also bear being used:
// every value read, every tensor hashed, every shard laid out.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "model/gguf_file.h"
#include "model/hyper_parameters.h"
#include "model/manifest.h"
#include "model/model_layout.h"

namespace shardline {
namespace {

void ReadAllValues(const GgufMetadata& metadata) {
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    SL_CHECK(metadata.Find(entry.key) != nullptr);
    (void)metadata.GetUint(entry.key);
    (void)metadata.GetFloat(entry.key);
    (void)metadata.GetBool(entry.key);
    (void)metadata.GetString(entry.key);
    (void)metadata.GetStringArray(entry.key);
    (void)metadata.GetIntArray(entry.key);
    (void)metadata.GetFloatArray(entry.key);
  }
}

void UseModel(const GgufFile& file) {
  ReadAllValues(file.metadata());
  const auto manifest = BuildManifest(file);
  SL_CHECK(manifest.ok());
  const auto parsed = ParseManifest(SerializeManifest(*manifest));
  SL_CHECK(parsed.ok() && *parsed == *manifest);
  const auto hp = HyperParameters::FromGguf(file);
  if (!hp.ok()) return;
  SL_CHECK(hp->q_heads % hp->kv_heads == 0 && hp->rope.dimension_count <= hp->head_dim);
  const auto costs = CostsOf(file, *hp);
  if (!costs.ok()) return;
  uint64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) bytes += tensor.data.size();
  SL_CHECK(ShardBytes(*costs, WholeModel(*hp)) == bytes);
}

}  // namespace
}  // namespace shardline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardline;
  const auto file = GgufFile::View("fuzz", std::as_bytes(std::span(data, size)));
  if (file.ok()) UseModel(*file);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = ParseManifest(text);
  if (manifest.ok()) SL_CHECK(SerializeManifest(*manifest) == text);
  return 0;
}
