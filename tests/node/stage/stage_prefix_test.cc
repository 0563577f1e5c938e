// What a stage shares between attempts: keys of an OPEN, where a first step may begin, and when a
// page gets its name.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::HasSubstr;

const Instant kNow = Instant::FromOrigin(absl::Seconds(100));
constexpr int32_t kPages = 16;

std::vector<int32_t> Prompt(int32_t count, int32_t salt = 0) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(i * 7 + salt);
  return tokens;
}

PrefixKey Root(const std::string& tenant = "") {
  return PrefixRoot(ModelId("m"), NumericsId(), tenant);
}

// A stage of a ring of two, played with by its head or by the stage before it.
class PrefixStage {
 public:
  explicit PrefixStage(bool is_head)
      : is_head_(is_head),
        core_({.node = NodeId(is_head ? "a" : "b"),
               .incarnation = Incarnation(1),
               .recipe = {.model_id = ModelId("m")},
               .layers = LayersOf(is_head ? 0 : 1),
               .layers_total = 4,
               .is_head = is_head,
               .hidden_dim = 1,
               .pages_total = kPages,
               .context_tokens_max = 256}) {}

  OpenAttempt OpenOf(uint64_t session, const std::vector<int32_t>& prompt, int32_t tokens_max,
                     const std::string& tenant = "") const {
    OpenAttempt open{.key = Key(session),
                     .term = Term(1),
                     .incarnation = Incarnation(1),
                     .recipe = core_.options().recipe,
                     .stage_index = is_head_ ? 0U : 1U,
                     .tokens_max = tokens_max,
                     .budget = absl::Seconds(10),
                     .prefix_keys = PrefixChain(Root(tenant), prompt, kPageTokens),
                     .prefix_root = Root(tenant)};
    open.prefix_keys.resize(
        static_cast<size_t>(PrefixPagesToFind(static_cast<int64_t>(prompt.size()), kPageTokens)));
    for (size_t i = 0; i < 2; ++i) {
      open.route.push_back({.node = NodeId(i == 0 ? "a" : "b"),
                            .incarnation = Incarnation(1),
                            .layers = LayersOf(i)});
    }
    return open;
  }

  absl::StatusOr<int32_t> Open(uint64_t session, const std::vector<int32_t>& prompt,
                               int32_t tokens_max = 64, const std::string& tenant = "") {
    const absl::StatusOr<OpenReply> reply =
        core_.Open(OpenOf(session, prompt, tokens_max, tenant), kNow);
    if (!reply.ok()) return reply.status();
    return reply->cached_tokens;
  }

  StageActions Send(uint64_t session, uint64_t step, int32_t position, int32_t token_count,
                    const PrefixKey& name = {}) {
    BundleRow row{.key = {Key(session), StepIndex(step)},
                  .position = position,
                  .token_count = token_count,
                  .hop = is_head_ ? 0U : 1U,
                  .budget = absl::Seconds(5),
                  .prefix_key = name};
    StageBundle bundle;
    StagePeer from;
    if (is_head_) {
      bundle.tokens.assign(static_cast<size_t>(token_count), 3);
    } else {
      from = {.node = NodeId("a"), .incarnation = Incarnation(1)};
      bundle.hidden = Buffer::Allocate(static_cast<size_t>(token_count) * sizeof(float));
      row.chain = step == 0 ? ChainStart(row.key.attempt, 1, core_.options().recipe) : chain_;
      chain_ = ChainNext(row.chain, row.key.step,
                         RowDigest(row, bundle.hidden->data(), bundle.hidden->size()));
    }
    bundle.rows.push_back(row);
    core_.OnBundle(from, bundle, kNow);
    return core_.TakeActions();
  }

  StageActions Finish(const ComputeJob& job, const absl::Status& status = absl::OkStatus()) {
    size_t token_count = 0;
    for (const JobSlice& slice : job.slices) token_count += static_cast<size_t>(slice.token_count);
    core_.OnComputeDone({.id = job.id,
                         .slice_status = {status},
                         .hidden = Buffer::Allocate(token_count * sizeof(float))},
                        kNow);
    return core_.TakeActions();
  }

  // Computes the prompt and leaves.
  void Fill(uint64_t session, const std::vector<int32_t>& prompt) {
    ASSERT_THAT(Open(session, prompt).status(), IsOk());
    Finish(Send(session, 0, 0, static_cast<int32_t>(prompt.size())).jobs.at(0));
    Fence(session);
  }

  FenceReply Fence(uint64_t session) {
    return core_.Fence(SessionId(session), Epoch(1), Term(1), kNow);
  }

  static AttemptKey Key(uint64_t session) {
    return {.session = SessionId(session), .epoch = Epoch(1)};
  }
  const HotKvManager& kv() const { return core_.kv(); }
  StageCore& core() { return core_; }

 private:
  static LayerRange LayersOf(size_t stage) {
    const auto begin = static_cast<int32_t>(2 * stage);
    return {.begin = begin, .end = begin + 2};
  }

  const bool is_head_;
  StageCore core_;
  uint64_t chain_ = 0;
};

TEST(StagePrefix, AnOpenIsToldWhatIsCachedAndHoldsIt) {
  PrefixStage stage(true);
  stage.Fill(1, Prompt(40));
  EXPECT_EQ(stage.kv().pages_cached_idle(), 2);
  EXPECT_EQ(*stage.Open(2, Prompt(40)), 32);
  EXPECT_EQ(*stage.Open(3, Prompt(33)), 32);
  EXPECT_EQ(*stage.Open(4, Prompt(32)), 16) << "one token is left to compute";
  EXPECT_EQ(*stage.Open(5, Prompt(40, 1)), 0);
  EXPECT_EQ(stage.kv().pages_cached_held(), 2);
  EXPECT_EQ(*stage.Open(2, Prompt(40)), 32) << "asked again";
  EXPECT_THAT(stage.Open(2, Prompt(49)).status(), FailsWith(FailureKind::kStepConflict));
  stage.kv().CheckConservation();
}

TEST(StagePrefix, TenantsShareNoPage) {
  PrefixStage stage(true);
  stage.Fill(1, Prompt(40));
  EXPECT_EQ(*stage.Open(2, Prompt(40), 64, "them"), 0);
}

TEST(StagePrefix, TheFirstStepBeginsAtTheEndOfAnyCachedPage) {
  for (const int32_t start : {0, 16, 32}) {
    PrefixStage stage(false);
    stage.Fill(1, Prompt(40));
    ASSERT_EQ(*stage.Open(2, Prompt(40)), 32);
    const StageActions begun = stage.Send(2, 0, start, 40 - start);
    ASSERT_EQ(begun.jobs.size(), 1U);
    const JobSlice& slice = begun.jobs[0].slices[0];
    EXPECT_EQ(slice.position, start);
    EXPECT_EQ(slice.kept_rows, 32 - start) << "computed again, for the stages that lack it";
    stage.Finish(begun.jobs[0]);
    EXPECT_EQ(stage.kv().LengthOf(PrefixStage::Key(2)), 40);
    stage.kv().CheckConservation();
  }
}

TEST(StagePrefix, NoStepBeginsBehindWhatIsCachedOrInsideAPage) {
  PrefixStage stage(false);
  stage.Fill(1, Prompt(40));
  ASSERT_EQ(*stage.Open(2, Prompt(60)), 32);
  for (const int32_t start : {48, 20, 31}) {
    const StageActions actions = stage.Send(2, 0, start, 4);
    EXPECT_TRUE(actions.jobs.empty());
    ASSERT_EQ(actions.refusals.size(), 1U);
    EXPECT_THAT(actions.refusals[0].failure.status, FailsWith(FailureKind::kStepConflict));
  }
  EXPECT_EQ(stage.Send(2, 0, 32, 4).jobs.size(), 1U) << "no refusal changed anything";
}

TEST(StagePrefix, APageIsNamedWhenItsRowsAreCommitted) {
  PrefixStage stage(true);
  ASSERT_THAT(stage.Open(1, Prompt(60)).status(), IsOk());
  const StageActions first = stage.Send(1, 0, 0, 24);
  EXPECT_EQ(*stage.Open(2, Prompt(60)), 0) << "computing is not committed";
  stage.Finish(first.jobs.at(0));
  EXPECT_EQ(*stage.Open(3, Prompt(60)), 16) << "half of the second page is there";
  const StageActions second = stage.Send(1, 1, 24, 24);
  stage.Finish(second.jobs.at(0), MakeFailure(FailureKind::kNonFinite, "NaN"));
  EXPECT_EQ(*stage.Open(4, Prompt(60)), 16) << "a failed step names nothing";
  stage.kv().CheckConservation();
}

TEST(StagePrefix, AnOutcomeAfterTheFenceNamesNothing) {
  PrefixStage stage(true);
  ASSERT_THAT(stage.Open(1, Prompt(40)).status(), IsOk());
  const StageActions begun = stage.Send(1, 0, 0, 40);
  stage.Fence(1);
  stage.Finish(begun.jobs.at(0));
  EXPECT_EQ(stage.kv().pages_cached_idle(), 0);
  EXPECT_EQ(stage.kv().pages_free(), kPages);
}

TEST(StagePrefix, ARowNamesThePageBeforeItAndPassesTheNameOn) {
  PrefixStage head(true);
  std::vector<int32_t> text = Prompt(31);
  ASSERT_THAT(head.Open(1, text).status(), IsOk());
  head.Finish(head.Send(1, 0, 0, 31).jobs.at(0));
  text.push_back(3);
  head.Finish(head.Send(1, 1, 31, 1).jobs.at(0));
  const PrefixKey name = PrefixChain(Root(), text, kPageTokens)[1];
  const StageActions begun = head.Send(1, 2, 32, 1, name);
  text.push_back(3);
  EXPECT_EQ(*head.Open(2, text), 16) << "the row that names it is not committed";
  const StageActions sent = head.Finish(begun.jobs.at(0));
  ASSERT_EQ(sent.forwards.size(), 1U);
  EXPECT_EQ(sent.forwards[0].bundle.rows[0].prefix_key, name);
  EXPECT_EQ(*head.Open(3, text), 32) << "a second turn finds what the first has generated";
  head.kv().CheckConservation();
}

// Its key is not among the OPEN's, since a token is always left to compute.
TEST(StagePrefix, ARowNamesTheLastPageOfAPromptOfWholePages) {
  PrefixStage stage(false);
  ASSERT_THAT(stage.Open(1, Prompt(32)).status(), IsOk());
  stage.Finish(stage.Send(1, 0, 0, 32).jobs.at(0));
  EXPECT_EQ(*stage.Open(2, Prompt(33)), 16);
  const PrefixKey name = PrefixChain(Root(), Prompt(32), kPageTokens)[1];
  stage.Finish(stage.Send(1, 1, 32, 1, name).jobs.at(0));
  EXPECT_EQ(*stage.Open(3, Prompt(33)), 32);
}

TEST(StagePrefix, ANameInTheFirstPageIsRefused) {
  PrefixStage stage(false);
  ASSERT_THAT(stage.Open(1, Prompt(8)).status(), IsOk());
  const StageActions actions = stage.Send(1, 0, 0, 8, Root("x"));
  EXPECT_TRUE(actions.jobs.empty());
  ASSERT_EQ(actions.refusals.size(), 1U);
  EXPECT_THAT(actions.refusals[0].failure.status, FailsWith(FailureKind::kMalformedBundle));
}

TEST(StagePrefix, NothingIsNamedWithoutARoot) {
  PrefixStage stage(false);
  OpenAttempt open = stage.OpenOf(1, Prompt(32), 64);
  open.prefix_keys.clear();
  open.prefix_root = {};
  ASSERT_THAT(stage.core().Open(open, kNow), IsOk());
  stage.Finish(stage.Send(1, 0, 0, 32).jobs.at(0));
  stage.Finish(stage.Send(1, 1, 32, 1, Root("x")).jobs.at(0));
  stage.Fence(1);
  EXPECT_EQ(stage.kv().pages_cached_idle(), 0);
}

TEST(StagePrefix, RefusesKeysThatCannotBe) {
  PrefixStage stage(true);
  const OpenAttempt good = stage.OpenOf(1, Prompt(40), 64);
  OpenAttempt open = good;
  open.prefix_keys = PrefixChain(Root(), Prompt(64), kPageTokens);
  EXPECT_THAT(stage.core().Open(open, kNow),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        HasSubstr("4 prefix keys for 64 tokens, at most 3")));
  open = good;
  open.prefix_root = {};
  EXPECT_THAT(stage.core().Open(open, kNow), FailsWith(FailureKind::kInvalidRequest));
  open = good;
  open.prefix_keys[1] = {};
  EXPECT_THAT(stage.core().Open(open, kNow),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("prefix key 1 is empty")));
  EXPECT_EQ(stage.kv().pages_free(), kPages);
  open = good;
  open.prefix_keys[1] = open.prefix_keys[0];
  EXPECT_THAT(stage.core().Open(open, kNow), IsOk()) << "odd, but harmless";
  stage.Finish(stage.Send(1, 0, 0, 40).jobs.at(0));
  EXPECT_EQ(*stage.Open(2, Prompt(40)), 16);
  stage.kv().CheckConservation();
}

TEST(StagePrefix, AFenceCountsWhatStaysCachedAsReleased) {
  PrefixStage stage(true);
  stage.Fill(1, Prompt(40));
  ASSERT_THAT(stage.Open(2, Prompt(40)).status(), IsOk());
  ASSERT_THAT(stage.Open(3, Prompt(40)).status(), IsOk());
  EXPECT_EQ(stage.Fence(2).pages_released, 2) << "of 4 the other one still reads 2";
  EXPECT_EQ(stage.Fence(3).pages_released, 4);
  EXPECT_EQ(stage.kv().pages_free(), kPages);
}

}  // namespace
}  // namespace shardline
