#include "node/sampling/text_rules.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/grammar/token_mask.h"
#include "node/sampling/text_finder.h"

namespace shardline {
namespace {

constexpr float kRuledOut = -std::numeric_limits<float>::infinity();

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

// Tokens behind the last word are no part of the vocabulary.
void RuleOutAllBut(const TokenMask::Words& allowed, std::span<float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    const size_t word = token / 64;
    const bool is_allowed = word < allowed.size() && (allowed[word] >> (token % 64) & 1) != 0;
    if (!is_allowed) logits[token] = kRuledOut;
  }
}

class TextRulesPolicy : public RowPolicy {
 public:
  TextRulesPolicy(const TextRules& rules, std::shared_ptr<const TokenTrie> vocabulary,
                  std::vector<int32_t> stop_tokens)
      : vocabulary_(std::move(vocabulary)),
        stop_tokens_(std::move(stop_tokens)),
        new_tokens_min_(rules.new_tokens_min) {
    if (rules.grammar != nullptr) mask_.emplace(rules.grammar, vocabulary_, stop_tokens_);
    for (const std::string& text : rules.stop_texts) stops_.emplace_back(text);
  }

  absl::Status Apply(std::span<float> logits) override;
  void Accept(int32_t token) override;
  bool finished() const override { return is_stopped_ || (mask_ && mask_->MustEnd()); }

 private:
  const std::shared_ptr<const TokenTrie> vocabulary_;
  const std::vector<int32_t> stop_tokens_;
  const uint32_t new_tokens_min_;
  std::optional<TokenMask> mask_;  // None: any text.
  std::vector<TextFinder> stops_;
  uint32_t accepted_ = 0;
  bool is_stopped_ = false;
};

absl::Status TextRulesPolicy::Apply(std::span<float> logits) {
  if (mask_) {
    RuleOutAllBut(mask_->Allowed(), logits);
    if (mask_->met_limit()) {
      return Invalid("the grammar can be read in too many ways here; make it less ambiguous");
    }
    if (mask_->is_nowhere()) return Invalid("the text is not one of the grammar");
  }
  if (accepted_ >= new_tokens_min_) return absl::OkStatus();
  for (const int32_t token : stop_tokens_) {
    const auto index = static_cast<size_t>(token);
    if (token >= 0 && index < logits.size()) logits[index] = kRuledOut;
  }
  return absl::OkStatus();
}

void TextRulesPolicy::Accept(int32_t token) {
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) return;
  ++accepted_;
  if (mask_) mask_->Accept(token);
  const Vocabulary& words = vocabulary_->vocabulary();
  if (!words.Has(token) || words.TraitsOf(token).is_control) return;
  for (TextFinder& stop : stops_) {
    if (stop.Read(words.Bytes(token))) is_stopped_ = true;
  }
}

}  // namespace

absl::StatusOr<TextRules> CompileTextRules(TextRulesSpec spec) {
  TextRules out{.stop_texts = std::move(spec.stop_texts), .new_tokens_min = spec.new_tokens_min};
  if (!spec.grammar.empty()) {
    SL_ASSIGN_OR_RETURN(out.grammar, Grammar::Parse(spec.grammar, spec.trigger));
  } else if (!spec.trigger.empty()) {
    return Invalid("rules.trigger: there is no grammar that it could begin");
  }
  if (out.stop_texts.size() > kStopTextsMax) {
    return Invalid(absl::StrCat("rules.stop_texts has ", out.stop_texts.size(), " texts, at most ",
                                kStopTextsMax));
  }
  for (const std::string& text : out.stop_texts) {
    if (text.empty()) return Invalid("rules.stop_texts: an empty text would end every answer");
    if (text.size() > kStopTextBytesMax) {
      return Invalid(absl::StrCat("rules.stop_texts: one has ", text.size(), " bytes, at most ",
                                  kStopTextBytesMax));
    }
  }
  return out;
}

std::unique_ptr<RowPolicy> MakeTextRulesPolicy(const TextRules& rules,
                                               std::shared_ptr<const TokenTrie> vocabulary,
                                               std::vector<int32_t> stop_tokens) {
  return std::make_unique<TextRulesPolicy>(rules, std::move(vocabulary), std::move(stop_tokens));
}

}  // namespace shardline
