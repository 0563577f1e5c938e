#include "tests/node/rounds/scripted_proposer.h"

#include <random>
#include <span>
#include <string_view>
#include <utility>

namespace shardline::testing {
namespace {

// With the answer in hand, or without any; a pure function of the text all the same.
class ScriptedProposer : public Proposer {
 public:
  ScriptedProposer(Guesses guesses, uint32_t seed, std::vector<int32_t> text)
      : guesses_(guesses), seed_(seed), text_(std::move(text)) {}

  std::string_view name() const override { return "scripted"; }
  void Accept(std::span<const int32_t> tokens) override { read_ += tokens.size(); }

  std::vector<Draft> Propose(size_t count) const override {
    std::mt19937 random(seed_ + static_cast<uint32_t>(read_));
    std::vector<Draft> drafts;
    for (size_t at = read_; drafts.size() < count; ++at) {
      if (guesses_ == Guesses::kOracle && at >= text_.size()) break;
      const bool knows = at < text_.size() && guesses_ != Guesses::kHostile;
      const bool errs = guesses_ == Guesses::kCorrupted && random() % 4 == 0;
      const auto token = static_cast<int32_t>(random() % (kFakeVocabSize + 4)) - 2;
      drafts.push_back({.token = knows && !errs ? text_[at] : token, .chance = 1.0F});
    }
    return drafts;
  }

 private:
  const Guesses guesses_;
  const uint32_t seed_;
  const std::vector<int32_t> text_;  // Prompt and answer.
  size_t read_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Proposer>> ScriptedProposers(Guesses guesses, uint32_t seed,
                                                         const FakeRequest& request,
                                                         int32_t layers) {
  std::vector<int32_t> text = request.prompt;
  const std::vector<int32_t> answer = PlainTokens(request, layers);
  text.insert(text.end(), answer.begin(), answer.end());
  std::vector<std::unique_ptr<Proposer>> proposers;
  proposers.push_back(std::make_unique<ScriptedProposer>(guesses, seed, std::move(text)));
  return proposers;
}

}  // namespace shardline::testing
