#include "model/tokenizer/tokenizer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/tokenizer/byte_level_encoder.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/sentencepiece_encoder.h"

namespace shardline {
namespace {

struct NamedId {
  const char* name;
  const std::optional<int32_t>& id;
};

absl::Status CheckIds(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  const NamedId named_ids[] = {{"bos", spec.bos_id},         {"eos", spec.eos_id},
                               {"unknown", spec.unknown_id}, {"padding", spec.padding_id},
                               {"eot", spec.eot_id},         {"eom", spec.eom_id}};
  for (const NamedId& named : named_ids) {
    if (named.id && !vocabulary.Has(*named.id)) {
      return absl::InvalidArgumentError(absl::StrCat(named.name, " token id ", *named.id,
                                                     " is outside the vocabulary of ",
                                                     vocabulary.size(), " tokens"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      all_special_(vocabulary_.get(), /*with_control=*/true),
      user_defined_(vocabulary_.get(), /*with_control=*/false) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  SL_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::CreateByType(&spec));
  const bool is_byte_level = spec.type == "gpt2";
  SL_RETURN_IF_ERROR(CheckIds(spec, *vocabulary));
  std::unique_ptr<Tokenizer> result(new Tokenizer(std::move(vocabulary)));
  const Vocabulary* const words = result->vocabulary_.get();
  if (is_byte_level) {
    SL_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec.pre));
    result->adds_bos_ = spec.add_bos.value_or(pre_tokenizer.adds_bos());
    SL_ASSIGN_OR_RETURN(result->encoder_,
                        ByteLevelEncoder::Create(words, std::move(pre_tokenizer), spec.merges));
  } else {
    result->adds_bos_ = spec.add_bos.value_or(true);
    result->adds_space_prefix_ = spec.add_space_prefix.value_or(true);
    SL_ASSIGN_OR_RETURN(
        result->encoder_,
        SentencePieceEncoder::Create(words, std::move(spec.scores), spec.unknown_id.value_or(-1),
                                     result->adds_space_prefix_));
  }
  result->adds_eos_ = spec.add_eos.value_or(false);
  result->bos_id_ = spec.bos_id;
  result->eos_id_ = spec.eos_id;
  if (result->adds_bos_ && !spec.bos_id) {
    return absl::InvalidArgumentError("tokenizer adds BOS but names no bos token id");
  }
  if (result->adds_eos_ && !spec.eos_id) {
    return absl::InvalidArgumentError("tokenizer adds EOS but names no eos token id");
  }
  return result;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("text of ", text.size(), " bytes; at most ", kTextBytesMax, " are tokenized"));
  }
  std::vector<int32_t> ids;
  if (options.add_special && adds_bos_) ids.push_back(*bos_id_);
  const SpecialSplitter& splitter = options.parse_special ? all_special_ : user_defined_;
  bool opens = true;
  for (const TextSegment& segment : splitter.Split(text)) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
    } else {
      SL_RETURN_IF_ERROR(encoder_->Append(segment.text, opens, &ids));
    }
    opens = segment.token >= 0;
  }
  if (options.add_special && adds_eos_) ids.push_back(*eos_id_);
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                              bool show_special) const {
  std::string text;
  bool may_strip = adds_space_prefix_;
  for (const int32_t id : ids) {
    if (!vocabulary_->Has(id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token id ", id, " is outside the vocabulary of ", vocabulary_->size(), " tokens"));
    }
    std::string_view bytes = vocabulary_->Bytes(id);
    if (vocabulary_->TraitsOf(id).is_control) {
      if (show_special) text += bytes;
      continue;
    }
    if (may_strip && !bytes.empty() && bytes.front() == ' ') bytes.remove_prefix(1);
    may_strip = false;
    text += bytes;
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  SL_CHECK(vocabulary_->Has(id), "token id ", id);
  return vocabulary_->Bytes(id);
}

bool Tokenizer::IsControl(int32_t id) const {
  return vocabulary_->Has(id) && vocabulary_->TraitsOf(id).is_control;
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  return vocabulary_->Has(id) && vocabulary_->TraitsOf(id).is_end_of_generation;
}

}  // namespace shardline
