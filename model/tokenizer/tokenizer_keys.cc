#include "model/tokenizer/tokenizer_keys.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

constexpr uint64_t kIdMax = (uint64_t{1} << 31) - 1;

absl::Status ReadText(const GgufMetadata& metadata, std::string_view key, std::string* out) {
  if (metadata.Find(key) == nullptr) return absl::OkStatus();
  SL_ASSIGN_OR_RETURN(const std::string_view text, metadata.GetString(key));
  *out = std::string(text);
  return absl::OkStatus();
}

absl::Status ReadTexts(const GgufMetadata& metadata, std::string_view key,
                       std::vector<std::string>* out) {
  if (metadata.Find(key) == nullptr) return absl::OkStatus();
  SL_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, metadata.GetStringArray(key));
  out->assign(texts.begin(), texts.end());
  return absl::OkStatus();
}

absl::Status ReadId(const GgufMetadata& metadata, std::string_view key,
                    std::optional<int32_t>* out) {
  if (metadata.Find(key) == nullptr) return absl::OkStatus();
  SL_ASSIGN_OR_RETURN(const uint64_t id, metadata.GetUint(key));
  // Files say 2^32 - 1 for "none".
  if (id <= kIdMax) *out = static_cast<int32_t>(id);
  return absl::OkStatus();
}

absl::Status ReadFlag(const GgufMetadata& metadata, std::string_view key,
                      std::optional<bool>* out) {
  if (metadata.Find(key) == nullptr) return absl::OkStatus();
  SL_ASSIGN_OR_RETURN(*out, metadata.GetBool(key));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufMetadata& metadata) {
  TokenizerSpec spec;
  SL_RETURN_IF_ERROR(ReadText(metadata, "tokenizer.ggml.model", &spec.type));
  if (spec.type.empty()) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat(metadata.file(),
                                    ": no tokenizer.ggml.model: the file has no "
                                    "tokenizer"));
  }
  SL_RETURN_IF_ERROR(ReadText(metadata, "tokenizer.ggml.pre", &spec.pre));
  SL_RETURN_IF_ERROR(ReadText(metadata, "general.name", &spec.model_name));
  SL_RETURN_IF_ERROR(ReadTexts(metadata, "tokenizer.ggml.tokens", &spec.tokens));
  SL_RETURN_IF_ERROR(ReadTexts(metadata, "tokenizer.ggml.merges", &spec.merges));
  if (metadata.Find("tokenizer.ggml.token_type") != nullptr) {
    SL_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                        metadata.GetIntArray("tokenizer.ggml.token_type"));
    spec.token_types.reserve(types.size());
    for (const int64_t type : types) {
      const bool known = type >= static_cast<int64_t>(TokenType::kNormal) &&
                         type <= static_cast<int64_t>(TokenType::kByte);
      spec.token_types.push_back(known ? static_cast<TokenType>(type) : TokenType::kNormal);
    }
  }
  if (metadata.Find("tokenizer.ggml.scores") != nullptr) {
    SL_ASSIGN_OR_RETURN(spec.scores, metadata.GetFloatArray("tokenizer.ggml.scores"));
  }
  SL_RETURN_IF_ERROR(ReadId(metadata, "tokenizer.ggml.bos_token_id", &spec.bos_id));
  SL_RETURN_IF_ERROR(ReadId(metadata, "tokenizer.ggml.eos_token_id", &spec.eos_id));
  SL_RETURN_IF_ERROR(ReadId(metadata, "tokenizer.ggml.unknown_token_id", &spec.unknown_id));
  SL_RETURN_IF_ERROR(ReadId(metadata, "tokenizer.ggml.padding_token_id", &spec.padding_id));
  SL_RETURN_IF_ERROR(ReadId(metadata, "tokenizer.ggml.eot_token_id", &spec.eot_id));
  SL_RETURN_IF_ERROR(ReadId(metadata, "tokenizer.ggml.eom_token_id", &spec.eom_id));
  SL_RETURN_IF_ERROR(ReadFlag(metadata, "tokenizer.ggml.add_bos_token", &spec.add_bos));
  SL_RETURN_IF_ERROR(ReadFlag(metadata, "tokenizer.ggml.add_eos_token", &spec.add_eos));
  SL_RETURN_IF_ERROR(ReadFlag(metadata, "tokenizer.ggml.add_space_prefix", &spec.add_space_prefix));
  return spec;
}

}  // namespace shardline
