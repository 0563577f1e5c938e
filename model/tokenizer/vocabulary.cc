#include "model/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

// Files rarely say which tokens end a generation, so the texts that model families use for it
// decide; whatever type the file gives them, they are control tokens.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};
// Fill-in-the-middle tokens: padding and the separators end a generation, the rest only mark.
constexpr std::string_view kFillEndTexts[] = {
    "<|fim_pad|>",   "<fim-pad>",  "<fim_pad>", "<PAD>",      "[PAD]",        "<|fim_repo|>",
    "<|repo_name|>", "<fim-repo>", "<REPO>",    "<reponame>", "<|file_sep|>",
};
constexpr std::string_view kFillMarkTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "<|code_prefix|>",
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",  "<SUF>", "<|code_suffix|>",
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",   "<MID>", "<|code_middle|>",
};

template <size_t kCount>
bool IsOneOf(std::string_view text, const std::string_view (&texts)[kCount]) {
  return std::find(std::begin(texts), std::end(texts), text) != std::end(texts);
}

bool IsVisibleLatin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteLevelTable {
  std::array<std::string, 256> spelling;
  absl::flat_hash_map<int32_t, uint8_t> byte;
};

const ByteLevelTable& ByteLevel() {
  static const ByteLevelTable* const table = [] {
    auto* result = new ByteLevelTable;
    int32_t next_unused = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t code_point = IsVisibleLatin1(byte) ? byte : next_unused++;
      AppendUtf8(static_cast<uint32_t>(code_point), &result->spelling[byte]);
      result->byte[code_point] = static_cast<uint8_t>(byte);
    }
    return result;
  }();
  return *table;
}

// Characters that spell no byte stay as they are.
std::string FromByteLevel(std::string_view text) {
  std::string bytes;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const auto found = ByteLevel().byte.find(NextCodePoint(text, &position));
    if (found != ByteLevel().byte.end()) {
      bytes.push_back(static_cast<char>(found->second));
    } else {
      bytes.append(text.substr(start, position - start));
    }
  }
  return bytes;
}

// "<0x41>" is 0x41; -1 for any other text.
int ByteOfText(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return -1;
    const int letter = absl::ascii_tolower(static_cast<unsigned char>(digit));
    value = value * 16 + (letter <= '9' ? letter - '0' : letter - 'a' + 10);
  }
  return value;
}

std::string QuotedId(size_t id, const std::string& text) {
  return absl::StrCat("token ", id, " \"", text, "\"");
}

}  // namespace

const std::string& ByteLevelSpelling(uint8_t byte) { return ByteLevel().spelling[byte]; }

absl::StatusOr<std::unique_ptr<const Vocabulary>> Vocabulary::CreateByType(TokenizerSpec* spec) {
  if (spec->type == "gpt2") return Create(spec, TokenSpelling::kByteLevel);
  if (spec->type != "llama") {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.ggml.model is \"", spec->type, "\"; known are gpt2, llama"));
  }
  const auto token_count = static_cast<int32_t>(spec->tokens.size());
  if (!spec->bos_id && token_count > 1) spec->bos_id = 1;
  if (!spec->eos_id && token_count > 2) spec->eos_id = 2;
  if (!spec->unknown_id && token_count > 0) spec->unknown_id = 0;
  return Create(spec, TokenSpelling::kSentencePiece);
}

absl::StatusOr<std::unique_ptr<const Vocabulary>> Vocabulary::Create(TokenizerSpec* spec,
                                                                     TokenSpelling spelling) {
  std::unique_ptr<Vocabulary> result(new Vocabulary);
  result->texts_ = std::move(spec->tokens);
  std::vector<std::string>& texts = result->texts_;
  if (texts.empty() || texts.size() > (1u << 28)) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer has ", texts.size(), " tokens"));
  }
  if (!spec->token_types.empty() && spec->token_types.size() != texts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer has ", texts.size(), " tokens but ",
                                                   spec->token_types.size(), " token types"));
  }
  result->ids_.reserve(texts.size());
  for (size_t id = 0; id < texts.size(); ++id) {
    if (texts[id].empty()) texts[id] = absl::StrCat("[EMPTY_", id, "]");
    const auto [entry, is_new] = result->ids_.emplace(texts[id], static_cast<int32_t>(id));
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuotedId(id, texts[id]), " has the same text as token ", entry->second));
    }
    result->longest_text_bytes_ = std::max(result->longest_text_bytes_, texts[id].size());
  }
  result->SetTraits(*spec);
  result->SetBytes(*spec, spelling);
  return result;
}

void Vocabulary::SetTraits(const TokenizerSpec& spec) {
  traits_.resize(texts_.size());
  for (size_t id = 0; id < texts_.size(); ++id) {
    const TokenType type = spec.token_types.empty() ? TokenType::kNormal : spec.token_types[id];
    Traits& traits = traits_[id];
    traits.is_control = type == TokenType::kControl || type == TokenType::kUnknown;
    traits.is_special = traits.is_control || type == TokenType::kUserDefined;
    const bool ends = IsOneOf(texts_[id], kEndTexts) || IsOneOf(texts_[id], kFillEndTexts);
    traits.is_end_of_generation = ends;
    if (ends || IsOneOf(texts_[id], kFillMarkTexts)) {
      traits.is_control = traits.is_special = true;
    }
  }
  for (const std::optional<int32_t>& id : {spec.eos_id, spec.eot_id, spec.eom_id}) {
    if (id && Has(*id)) traits_[*id].is_end_of_generation = true;
  }
  // Harmony: <|end|> closes one message of several there, the turn ends with one of the others.
  const int32_t end = Find("<|end|>");
  if (end >= 0 && Find("<|return|>") >= 0 && Find("<|call|>") >= 0) {
    traits_[end].is_end_of_generation = false;
  }
  const std::string name = absl::AsciiStrToLower(spec.model_name);
  if (absl::StrContains(name, "phi-3") || absl::StrContains(name, "phi3")) {
    for (Traits& traits : traits_) traits.strips_spaces_after = traits.is_special;
    for (const std::string_view text : {"<unk>", "<s>", "<|endoftext|>"}) {
      if (const int32_t id = Find(text); id >= 0) traits_[id].strips_spaces_after = false;
    }
  }
}

void Vocabulary::SetBytes(const TokenizerSpec& spec, TokenSpelling spelling) {
  bytes_.resize(texts_.size());
  for (size_t id = 0; id < texts_.size(); ++id) {
    const TokenType type = spec.token_types.empty() ? TokenType::kNormal : spec.token_types[id];
    if (traits_[id].is_special) {
      bytes_[id] = texts_[id];
    } else if (type == TokenType::kNormal) {
      bytes_[id] = spelling == TokenSpelling::kByteLevel
                       ? FromByteLevel(texts_[id])
                       : absl::StrReplaceAll(texts_[id], {{"\u2581", " "}});
    } else if (type == TokenType::kByte && spelling == TokenSpelling::kSentencePiece) {
      const int byte = ByteOfText(texts_[id]);
      if (byte >= 0) bytes_[id] = std::string(1, static_cast<char>(byte));
    }
  }
}

int32_t Vocabulary::Find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace shardline
