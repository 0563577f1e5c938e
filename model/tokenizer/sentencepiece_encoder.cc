#include "model/tokenizer/sentencepiece_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

// A stretch of the text in the doubly linked list of symbols; -1 ends it. Merged away: 0 bytes.
struct Symbol {
  uint32_t begin;
  uint32_t bytes;
  int32_t previous;
  int32_t next;
};

// Two neighbours that spell a token. Stale once either of them has changed.
struct Candidate {
  float score;
  int32_t left;
  int32_t right;
  uint32_t bytes;

  // The heap's top is the highest score, then the leftmost.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

}  // namespace

SentencePieceEncoder::SentencePieceEncoder(const Vocabulary* vocabulary, std::vector<float> scores,
                                           bool adds_space_prefix)
    : vocabulary_(vocabulary), scores_(std::move(scores)), adds_space_prefix_(adds_space_prefix) {}

absl::StatusOr<std::unique_ptr<SentencePieceEncoder>> SentencePieceEncoder::Create(
    const Vocabulary* vocabulary, std::vector<float> scores, int32_t unknown_id,
    bool adds_space_prefix) {
  if (scores.size() != static_cast<size_t>(vocabulary->size())) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer has ", vocabulary->size(),
                                                   " tokens but ", scores.size(), " scores"));
  }
  const auto nan =
      std::find_if(scores.begin(), scores.end(), [](float s) { return std::isnan(s); });
  if (nan != scores.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the score of token ", nan - scores.begin(), " is not a number"));
  }
  std::unique_ptr<SentencePieceEncoder> result(
      new SentencePieceEncoder(vocabulary, std::move(scores), adds_space_prefix));
  for (int byte = 0; byte < 256; ++byte) {
    int32_t id = vocabulary->Find(absl::StrFormat("<0x%02X>", byte));
    const char plain = static_cast<char>(byte);
    if (id < 0) id = vocabulary->Find(std::string_view(&plain, 1));
    if (id < 0) id = unknown_id;
    if (id < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tokenizer has neither a token <0x%02X> nor an unknown token", byte));
    }
    result->byte_ids_[byte] = id;
  }
  return result;
}

absl::Status SentencePieceEncoder::Append(std::string_view text, bool opens,
                                          std::vector<int32_t>* ids) const {
  const std::string spelled = absl::StrReplaceAll(
      std::string(adds_space_prefix_ && opens ? " " : "") + std::string(text), {{" ", "\u2581"}});
  std::vector<Symbol> symbols;
  for (uint32_t begin = 0; begin < spelled.size();) {
    const size_t bytes = std::min(Utf8ClaimedBytes(spelled[begin]), spelled.size() - begin);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({begin, static_cast<uint32_t>(bytes), index - 1, index + 1});
    begin += static_cast<uint32_t>(bytes);
  }
  if (symbols.empty()) return absl::OkStatus();
  symbols.back().next = -1;

  const auto token_of = [&](uint32_t begin, uint32_t bytes) {
    if (bytes > vocabulary_->longest_text_bytes()) return -1;
    return vocabulary_->Find(std::string_view(spelled).substr(begin, bytes));
  };
  std::vector<Candidate> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const uint32_t bytes = symbols[left].bytes + symbols[right].bytes;
    const int32_t token = token_of(symbols[left].begin, bytes);
    if (token < 0) return;
    queue.push_back({scores_[token], left, right, bytes});
    std::push_heap(queue.begin(), queue.end());
  };
  for (int32_t i = 1; i < static_cast<int32_t>(symbols.size()); ++i) consider(i - 1, i);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end());
    const Candidate best = queue.back();
    queue.pop_back();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    const Symbol& symbol = symbols[i];
    if (const int32_t token = token_of(symbol.begin, symbol.bytes); token >= 0) {
      ids->push_back(token);
      continue;
    }
    for (uint32_t at = symbol.begin; at < symbol.begin + symbol.bytes; ++at) {
      ids->push_back(byte_ids_[static_cast<uint8_t>(spelled[at])]);
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline
