#include "coordinator/model_file.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "model/chat_template_keys.h"
#include "model/gguf_file.h"
#include "model/tokenizer/tokenizer_keys.h"

namespace shardline {
namespace {

// Size and newest change over all parts; nothing when one cannot be asked.
std::optional<ManifestCache::Key> CacheKeyOf(const GgufFile& file) {
  ManifestCache::Key key;
  for (const std::string& path : file.paths()) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(path, error);
    if (error) return std::nullopt;
    const uintmax_t size = std::filesystem::file_size(absolute, error);
    if (error) return std::nullopt;
    const auto modified = std::filesystem::last_write_time(absolute, error);
    if (error) return std::nullopt;
    absl::StrAppend(&key.path, key.path.empty() ? "" : "\n", absolute.string());
    key.size += size;
    const auto since_epoch = modified.time_since_epoch();
    key.modified_ns = std::max<int64_t>(
        key.modified_ns, std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count());
  }
  return key;
}

absl::StatusOr<ModelManifest> ManifestOf(const GgufFile& file, const ManifestCache& cache) {
  const std::optional<ManifestCache::Key> key = CacheKeyOf(file);
  if (key.has_value()) {
    const std::optional<std::string> known = cache.find(*key);
    if (known.has_value()) {
      absl::StatusOr<ModelManifest> manifest = ParseManifest(*known);
      if (manifest.ok()) return manifest;
    }
  }
  SL_ASSIGN_OR_RETURN(ModelManifest manifest, BuildManifest(file));
  if (key.has_value()) cache.put(*key, SerializeManifest(manifest));
  return manifest;
}

std::string TokenText(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id.has_value() ? std::string(tokenizer.TokenBytes(*id)) : "";
}

// A model without a template, or with one that we cannot read, still completes plain prompts.
void ReadChatTemplate(const GgufFile& gguf, ModelFile* file) {
  absl::StatusOr<ChatTemplateSpec> spec = ReadChatTemplateSpec(gguf.metadata());
  if (!spec.ok()) {
    file->why_no_chat_template = absl::IsNotFound(spec.status())
                                     ? "the model file brings no chat template"
                                     : std::string(spec.status().message());
    return;
  }
  spec->bos_token = TokenText(*file->tokenizer, file->tokenizer->bos_id());
  spec->eos_token = TokenText(*file->tokenizer, file->tokenizer->eos_id());
  auto chat_template = ChatTemplate::Create(*std::move(spec));
  if (chat_template.ok()) {
    file->chat_template = *std::move(chat_template);
  } else {
    file->why_no_chat_template = std::string(chat_template.status().message());
  }
}

}  // namespace

std::string ModelNameOf(const std::string& path) {
  std::string stem = std::filesystem::path(path).stem().string();
  constexpr size_t kPartBytes = sizeof("-00001-of-00003") - 1;
  if (stem.size() > kPartBytes && stem.find("-of-", stem.size() - kPartBytes) != stem.npos) {
    stem.resize(stem.size() - kPartBytes);
  }
  return stem;
}

absl::StatusOr<std::shared_ptr<const ModelFile>> ReadModelFile(const std::string& path,
                                                               const ManifestCache& cache) {
  SL_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Open(path));
  auto file = std::make_shared<ModelFile>();
  file->path = path;
  file->name = ModelNameOf(path);
  SL_ASSIGN_OR_RETURN(file->hyper, HyperParameters::FromGguf(gguf));
  SL_ASSIGN_OR_RETURN(file->costs, CostsOf(gguf, file->hyper));
  SL_ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(gguf.metadata()));
  SL_ASSIGN_OR_RETURN(file->tokenizer, Tokenizer::Create(std::move(spec)));
  for (int32_t id = 0; id < file->tokenizer->vocab_size(); ++id) {
    if (file->tokenizer->IsEndOfGeneration(id)) file->end_tokens.push_back(id);
  }
  ReadChatTemplate(gguf, file.get());

  std::map<absl::string_view, int64_t> bytes_of_type;
  for (const GgufTensor& tensor : gguf.tensors()) {
    const std::string_view name = TraitsOf(tensor.type).name;
    const int64_t bytes = static_cast<int64_t>(tensor.data.size());
    bytes_of_type[absl::string_view(name.data(), name.size())] += bytes;
    file->bytes += static_cast<uint64_t>(bytes);
  }
  const auto most =
      std::max_element(bytes_of_type.begin(), bytes_of_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes_of_type.end()) file->quantisation = std::string(most->first);

  SL_ASSIGN_OR_RETURN(file->manifest, ManifestOf(gguf, cache));
  file->id = ModelIdOf(file->manifest);
  return file;
}

std::string ShardManifest(const ModelFile& file, const LayerRange& layers, bool is_head) {
  ModelManifest part;
  part.metadata_sha256 = file.manifest.metadata_sha256;
  const ShardContents contents = {.layers = layers, .embedding = is_head, .head = is_head};
  for (const TensorNeed& need : RequiredTensors(file.hyper, contents)) {
    const TensorDigest* digest = file.manifest.Find(need.name);
    if (digest != nullptr) part.tensors.push_back(*digest);
  }
  std::sort(part.tensors.begin(), part.tensors.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.name < b.name; });
  return SerializeManifest(part);
}

}  // namespace shardline
