// Runs whose text has rules: what they end with, and that neither a restart nor a draft is seen.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/grammar/json_schema.h"
#include "tests/node/rounds/fake_device.h"
#include "tests/node/rounds/local_shard.h"
#include "tests/support/made_vocabulary.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;

static_assert(kMadeVocabularySize == kFakeVocabSize);

constexpr int32_t kPages = 16;
constexpr int32_t kLayers = 3;
constexpr char kSchema[] = R"({"properties":{"a":{"type":"array","items":{"type":"integer"},
    "maxItems":4},"b":{"type":"string","maxLength":5}},"required":["a","b"]})";

TextRules Rules(TextRulesSpec spec) {
  auto rules = CompileTextRules(std::move(spec));
  EXPECT_THAT(rules, IsOk());
  return *std::move(rules);
}

TextRules RulesOfSchema() {
  return Rules({.grammar = *GrammarOfJsonSchema(nlohmann::ordered_json::parse(kSchema))});
}

// Says what it was told will come, and something else now and then.
class KnowsAll : public Proposer {
 public:
  KnowsAll(std::vector<int32_t> answer, size_t prompt)
      : answer_(std::move(answer)), skip_(prompt) {}
  std::string_view name() const override { return "knows_all"; }
  void Accept(std::span<const int32_t> tokens) override { seen_ += tokens.size(); }
  std::vector<Draft> Propose(size_t count) const override {
    std::vector<Draft> out;
    for (size_t at = seen_ - skip_; at < answer_.size() && out.size() < count; ++at) {
      out.push_back({.token = at % 7 == 6 ? 0 : answer_[at], .chance = 0.99F});
    }
    return out;
  }

 private:
  const std::vector<int32_t> answer_;
  const size_t skip_;
  size_t seen_ = 0;
};

class RuledTextTest : public ::testing::Test {
 protected:
  LocalShard MakeShard(HeadOptions options = {}) {
    options.layers = {0, kLayers};
    options.vocab_size = kFakeVocabSize;
    options.hidden_dim = kFakeHiddenDim;
    if (with_vocabulary_) options.vocabulary = MadeVocabulary();
    return LocalShard(std::move(options), kPages,
                      [this](const ComputeJob& job) { return device_.Run(job); });
  }

  static RunAttempt Asked(TextRules rules, int32_t new_tokens_max = 45) {
    return {.prompt = {3, 1, 4, 1, 5, 9, 2, 6},
            .new_tokens_max = new_tokens_max,
            .sampling = {.temperature = 1.0F, .seed = 11},
            .stop_tokens = {kMadeEnd},
            .rules = std::move(rules)};
  }

  static std::vector<int32_t> Ids(const LocalShard::Outcome& outcome) {
    std::vector<int32_t> out;
    for (const SampledToken& token : outcome.tokens) out.push_back(token.token);
    return out;
  }

  // A run that ends by its rules, for one of the first seeds.
  static RunAttempt EndingRun(LocalShard& shard, const TextRules& rules) {
    RunAttempt run = Asked(rules);
    for (run.sampling.seed = 1; run.sampling.seed < 50; ++run.sampling.seed) {
      if (shard.Run(run).end.reason == FinishReason::kStop) return run;
    }
    ADD_FAILURE() << "no run ends";
    return run;
  }

  bool with_vocabulary_ = true;
  FakeDevice device_{{0, kLayers}, kPages};
};

TEST_F(RuledTextTest, EndsWithTheTokenThatCompletesIt) {
  LocalShard shard = MakeShard();
  const LocalShard::Outcome outcome = shard.Run(EndingRun(shard, RulesOfSchema()));
  const auto json = nlohmann::json::parse(MadeText(Ids(outcome)), nullptr, false);
  EXPECT_TRUE(json.is_object() && json.contains("a") && json.contains("b"));
  EXPECT_EQ(outcome.end.stop_token, -1);
  EXPECT_EQ(outcome.end.tokens, outcome.tokens.size());
}

TEST_F(RuledTextTest, AnExactTextComesOutAsItIs) {
  LocalShard shard = MakeShard();
  const LocalShard::Outcome outcome =
      shard.Run(Asked(Rules({.grammar = "root ::= \"abc, {12}\\u20ac\""})));
  EXPECT_EQ(MadeText(Ids(outcome)), "abc, {12}\u20ac");
  EXPECT_EQ(outcome.end.reason, FinishReason::kStop);
}

TEST_F(RuledTextTest, GoesOnUnchangedFromAnyPrefix) {
  LocalShard shard = MakeShard();
  for (const bool with_stop_text : {false, true}) {
    TextRules rules = with_stop_text ? Rules({.stop_texts = {"tr", "7", "\","}}) : RulesOfSchema();
    RunAttempt run = EndingRun(shard, rules);
    const std::vector<int32_t> whole = Ids(shard.Run(run));
    ASSERT_GT(whole.size(), 2U);
    // The last cut is of all there is to say: only the end was lost.
    for (size_t cut = 0; cut <= whole.size(); ++cut) {
      run.delivered = {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut)};
      const LocalShard::Outcome rest = shard.Run(run);
      EXPECT_THAT(rest.end.status, IsOk());
      EXPECT_EQ(Ids(rest), std::vector<int32_t>(whole.begin() + static_cast<std::ptrdiff_t>(cut),
                                                whole.end()));
      EXPECT_EQ(rest.end.reason, FinishReason::kStop);
      EXPECT_EQ(rest.end.tokens, whole.size());
    }
  }
}

TEST_F(RuledTextTest, DraftsChangeNothing) {
  LocalShard plain = MakeShard();
  for (int i = 0; i < 3; ++i) {
    TextRules rules = i == 0   ? RulesOfSchema()
                      : i == 1 ? Rules({.stop_texts = {"tr", "7"}})
                               : Rules({.grammar = "root ::= [a-f0-9]{30}", .new_tokens_min = 4});
    const RunAttempt run = EndingRun(plain, rules);
    const LocalShard::Outcome expected = plain.Run(run);
    HeadOptions options{.drafts = true};
    options.proposers = [&](const RunAttempt& asked) {
      std::vector<std::unique_ptr<Proposer>> out;
      out.push_back(std::make_unique<KnowsAll>(Ids(expected), asked.prompt.size()));
      return out;
    };
    LocalShard drafting = MakeShard(std::move(options));
    const LocalShard::Outcome drafted = drafting.Run(run);
    EXPECT_EQ(Ids(drafted), Ids(expected));
    EXPECT_EQ(drafted.end.reason, expected.end.reason);
    EXPECT_EQ(drafted.end.tokens, expected.end.tokens);
    EXPECT_GT(drafted.end.timings.accepted, 0U);
  }
}

TEST_F(RuledTextTest, AStopTextIsFoundAcrossTokens) {
  LocalShard shard = MakeShard();
  RunAttempt run = Asked({}, 40);
  run.stop_tokens.clear();
  const std::string free = MadeText(Ids(shard.Run(run)));
  // Three bytes from somewhere inside, wherever tokens are cut.
  for (size_t begin = 4; begin + 3 < free.size(); begin += 3) {
    const std::string stop = free.substr(begin, 3);
    run.rules = Rules({.stop_texts = {"never said", stop}});
    const LocalShard::Outcome outcome = shard.Run(run);
    const std::string text = MadeText(Ids(outcome));
    EXPECT_EQ(outcome.end.reason, FinishReason::kStop);
    EXPECT_EQ(free.substr(0, text.size()), text);
    EXPECT_NE(text.find(stop), std::string::npos);
    std::vector<int32_t> but_last = Ids(outcome);
    but_last.pop_back();
    EXPECT_EQ(MadeText(but_last).find(stop), std::string::npos);
  }
}

TEST_F(RuledTextTest, NoStopTokenComesBeforeTheLeastLength) {
  LocalShard shard = MakeShard();
  RunAttempt run = Asked({}, 30);
  run.sampling.logit_bias = {{kMadeEnd, 100.0F}};
  EXPECT_EQ(shard.Run(run).end.tokens, 0U);
  run.rules = Rules({.new_tokens_min = 12});
  const LocalShard::Outcome outcome = shard.Run(run);
  EXPECT_EQ(outcome.end.tokens, 12U);
  EXPECT_EQ(outcome.end.stop_token, kMadeEnd);
}

TEST_F(RuledTextTest, AStopTokenComesOnlyWhereTheTextMayBeOver) {
  LocalShard shard = MakeShard();
  RunAttempt run = Asked(Rules({.grammar = "root ::= \"ab\" \"c\"*"}), 30);
  run.sampling.logit_bias = {{kMadeEnd, 100.0F}};
  const LocalShard::Outcome outcome = shard.Run(run);
  EXPECT_THAT(MadeText(Ids(outcome)), ::testing::AnyOf("ab", "abc"));
  EXPECT_EQ(outcome.end.stop_token, kMadeEnd);
}

TEST_F(RuledTextTest, ATextThatIsCompleteWithItsLastTokenWasNotCut) {
  LocalShard shard = MakeShard();
  EXPECT_EQ(shard.Run(Asked(Rules({.grammar = "root ::= [0-9]{3}"}), 3)).end.reason,
            FinishReason::kStop);
  EXPECT_EQ(shard.Run(Asked(Rules({.grammar = "root ::= [a]{3}"}), 2)).end.reason,
            FinishReason::kLength);
}

TEST_F(RuledTextTest, ATextThatItsGrammarCannotGoOnWithFailsAlone) {
  LocalShard shard = MakeShard();
  RunAttempt run = Asked(Rules({.grammar = "root ::= \"ab\""}));
  run.delivered = {0};
  const LocalShard::Outcome outcome = shard.Run(run);
  EXPECT_THAT(outcome.end.status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(outcome.end.status.message()), HasSubstr("grammar"));
  EXPECT_THAT(shard.Run(Asked({})).end.status, IsOk());
}

TEST_F(RuledTextTest, AGrammarThatIsReadInTooManyWaysFailsAlone) {
  LocalShard shard = MakeShard();
  std::string gbnf = "root ::= \"a\" r0\n";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    gbnf += "r" + std::to_string(i) + " ::= " + next + " \"a\" | " + next + " \"b\"\n";
  }
  const LocalShard::Outcome outcome = shard.Run(Asked(Rules({.grammar = gbnf + "r40 ::= \"c\""})));
  EXPECT_THAT(outcome.end.status, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(std::string(outcome.end.status.message()), HasSubstr("ambiguous"));
  EXPECT_THAT(shard.Run(Asked({})).end.status, IsOk());
}

TEST_F(RuledTextTest, WithoutAVocabularyRulesAreRefused) {
  with_vocabulary_ = false;
  LocalShard shard = MakeShard();
  EXPECT_THAT(shard.Run(Asked(Rules({.stop_texts = {"a"}}))).end.status,
              FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(shard.Run(Asked({})).end.status, IsOk());
}

}  // namespace
}  // namespace shardline::testing
