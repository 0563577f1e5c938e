#include "model/tokenizer/byte_level_encoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// A node of the doubly linked list that a word is; -1 ends it. A merged-away node has id -1.
struct ByteLevelEncoder::Symbol {
  SymbolId id;
  int32_t previous;
  int32_t next;
};

// Two neighbours that may merge. Stale once either of them has changed.
struct ByteLevelEncoder::Candidate {
  int32_t rank;
  int32_t left;
  int32_t right;
  SymbolId left_id;
  SymbolId right_id;
  SymbolId result;

  // The heap's top is the lowest rank, then the leftmost.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

ByteLevelEncoder::ByteLevelEncoder(const Vocabulary* vocabulary, PreTokenizer pre_tokenizer)
    : vocabulary_(vocabulary), pre_tokenizer_(std::move(pre_tokenizer)) {}

absl::StatusOr<std::unique_ptr<ByteLevelEncoder>> ByteLevelEncoder::Create(
    const Vocabulary* vocabulary, PreTokenizer pre_tokenizer,
    const std::vector<std::string>& merges) {
  // Each merge may bring three symbols; with the tokens they must fit 31 bits.
  if (merges.size() > (1u << 28)) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer has ", merges.size(), " merges"));
  }
  std::unique_ptr<ByteLevelEncoder> result(
      new ByteLevelEncoder(vocabulary, std::move(pre_tokenizer)));
  for (int byte = 0; byte < 256; ++byte) {
    result->byte_symbols_[byte] = result->Intern(ByteLevelSpelling(static_cast<uint8_t>(byte)));
  }
  result->merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("merge ", rank, " \"", merge, "\" is not two texts with a space between"));
    }
    const std::string left = merge.substr(0, space);
    const std::string right = merge.substr(space + 1);
    const uint64_t key = PairKey(result->Intern(left), result->Intern(right));
    result->merges_.emplace(
        key, Merge{static_cast<int32_t>(rank), result->Intern(absl::StrCat(left, right))});
  }
  return result;
}

ByteLevelEncoder::SymbolId ByteLevelEncoder::Intern(const std::string& text) {
  if (const int32_t id = vocabulary_->Find(text); id >= 0) return id;
  const auto next = static_cast<SymbolId>(vocabulary_->size() + extra_ids_.size());
  const auto [entry, is_new] = extra_symbols_.emplace(text, next);
  if (is_new) {
    // No token: the tokens of its single bytes, where there are any.
    std::vector<int32_t>& ids = extra_ids_.emplace_back();
    for (const char byte : text) {
      const int32_t id = vocabulary_->Find(std::string_view(&byte, 1));
      if (id >= 0) ids.push_back(id);
    }
  }
  return entry->second;
}

absl::Status ByteLevelEncoder::Append(std::string_view text, bool /*opens*/,
                                      std::vector<int32_t>* ids) const {
  const LenientText lenient = MakeLenient(text);
  std::vector<size_t> ends;
  SL_RETURN_IF_ERROR(pre_tokenizer_.Split(lenient.subject, &ends));
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
  size_t begin = 0;
  for (const size_t end : ends) {
    AppendWord(std::string_view(lenient.text).substr(begin, end - begin), &symbols, &queue, ids);
    begin = end;
  }
  return absl::OkStatus();
}

void ByteLevelEncoder::AppendSymbol(SymbolId symbol, std::vector<int32_t>* ids) const {
  if (vocabulary_->Has(symbol)) {
    ids->push_back(symbol);
    return;
  }
  const std::vector<int32_t>& extra = extra_ids_[symbol - vocabulary_->size()];
  ids->insert(ids->end(), extra.begin(), extra.end());
}

void ByteLevelEncoder::AppendWord(std::string_view word, std::vector<Symbol>* symbols,
                                  std::vector<Candidate>* queue, std::vector<int32_t>* ids) const {
  if (pre_tokenizer_.ignores_merges() && word.size() <= vocabulary_->longest_text_bytes()) {
    std::string spelled;
    for (const char byte : word) spelled += ByteLevelSpelling(static_cast<uint8_t>(byte));
    if (const int32_t id = vocabulary_->Find(spelled); id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  std::vector<Symbol>& list = *symbols;
  list.clear();
  queue->clear();
  const auto count = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < count; ++i) {
    list.push_back({.id = byte_symbols_[static_cast<uint8_t>(word[i])],
                    .previous = i - 1,
                    .next = i + 1 < count ? i + 1 : -1});
  }
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const auto merge = merges_.find(PairKey(list[left].id, list[right].id));
    if (merge == merges_.end()) return;
    queue->push_back({.rank = merge->second.rank,
                      .left = left,
                      .right = right,
                      .left_id = list[left].id,
                      .right_id = list[right].id,
                      .result = merge->second.result});
    std::push_heap(queue->begin(), queue->end());
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!queue->empty()) {
    std::pop_heap(queue->begin(), queue->end());
    const Candidate best = queue->back();
    queue->pop_back();
    Symbol& left = list[best.left];
    Symbol& right = list[best.right];
    if (left.id != best.left_id || right.id != best.right_id) continue;
    left.id = best.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) list[left.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = list[i].next) AppendSymbol(list[i].id, ids);
}

}  // namespace shardline
