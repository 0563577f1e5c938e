// Verify rows at a stage: they come back whole, and only their wrong drafts are taken back, once.

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;

const Instant kNow = Instant::FromOrigin(absl::Seconds(100));
const AttemptKey kKey{SessionId(7), Epoch(1)};

// The head's stage of a ring of one or two.
class Stage {
 public:
  explicit Stage(int32_t stages = 1)
      : core_({.node = NodeId("a"),
               .incarnation = Incarnation(1),
               .recipe = {.model_id = ModelId("m")},
               .layers = {.begin = 0, .end = 2},
               .layers_total = 2 * stages,
               .is_head = true,
               .hidden_dim = 1,
               .pages_total = 8,
               .context_tokens_max = 64}) {
    OpenAttempt open{.key = kKey,
                     .term = Term(1),
                     .incarnation = Incarnation(1),
                     .recipe = core_.options().recipe,
                     .tokens_max = 32,
                     .budget = absl::Seconds(10)};
    for (int32_t i = 0; i < stages; ++i) {
      open.route.push_back({.node = NodeId(std::string(1, static_cast<char>('a' + i))),
                            .incarnation = Incarnation(1),
                            .layers = {.begin = 2 * i, .end = 2 * i + 2}});
    }
    EXPECT_THAT(core_.Open(open, kNow), IsOk());
  }

  struct Row {
    uint64_t step = 0;
    int32_t position = 0;
    int32_t token_count = 1;
    int32_t rejected = 0;
    uint32_t flags = kRowWantsLogits;
  };

  // Sends the row; a job it starts waits for Finish.
  StageActions Send(const Row& row) {
    StageBundle bundle;
    bundle.rows.push_back({.key = {kKey, StepIndex(row.step)},
                           .position = row.position,
                           .token_count = row.token_count,
                           .budget = absl::Seconds(5),
                           .flags = row.flags,
                           .rejected = row.rejected});
    bundle.tokens.assign(static_cast<size_t>(row.token_count), 3);
    core_.OnBundle({}, std::move(bundle), kNow);
    StageActions actions = core_.TakeActions();
    for (const ComputeJob& job : actions.jobs) job_ = job;
    return actions;
  }

  StageActions Finish(const absl::Status& status = absl::OkStatus()) {
    ComputeDone done{.id = job_.id, .slice_status = {status}};
    const auto count = static_cast<size_t>(job_.slices[0].token_count);
    const std::shared_ptr<Buffer> hidden = Buffer::Allocate(count * sizeof(float));
    for (size_t i = 0; i < count; ++i) hidden->floats()[i] = static_cast<float>(i);
    done.hidden = hidden;
    core_.OnComputeDone(std::move(done), kNow);
    return core_.TakeActions();
  }

  // A prompt of five tokens, then one token with three drafts at position 5.
  void Verify() {
    Send({.step = 0, .token_count = 5});
    Finish();
    Send({.step = 1, .position = 5, .token_count = 4, .flags = kRowWantsAllLogits});
    Finish();
  }

  int32_t length() const { return core_.kv().LengthOf(kKey); }
  StageCore& core() { return core_; }

 private:
  StageCore core_;
  ComputeJob job_;
};

absl::Status RefusalOf(const StageActions& actions) {
  return actions.refusals.empty() ? absl::OkStatus() : actions.refusals[0].failure.status;
}

TEST(VerifyRows, ComeBackWhole) {
  Stage stage;
  stage.Send({.step = 0, .token_count = 5});
  EXPECT_EQ(stage.Finish().returns[0].rows[0].token_count, 1);
  stage.Send({.step = 1, .position = 5, .token_count = 4, .flags = kRowWantsAllLogits});
  const StageActions done = stage.Finish();
  ASSERT_EQ(done.returns.size(), 1U);
  EXPECT_EQ(done.returns[0].rows[0].token_count, 4);
  EXPECT_EQ(done.returns[0].rows[0].position, 5);
  EXPECT_EQ(done.returns[0].hidden->size(), 4 * sizeof(float));
}

TEST(VerifyRows, ComeBackWholeFromTheLastStage) {
  Stage stage(2);
  stage.Verify();
  const StagePeer last{.node = NodeId("b"), .incarnation = Incarnation(1)};
  const auto returned = [&](uint64_t step, int32_t position, int32_t token_count, uint32_t flags,
                            uint64_t chain) {
    StageBundle bundle;
    bundle.rows.push_back({.key = {kKey, StepIndex(step)},
                           .position = position,
                           .token_count = token_count,
                           .hop = 2,
                           .budget = absl::Seconds(5),
                           .flags = flags,
                           .chain = chain});
    bundle.hidden = Buffer::Allocate(static_cast<size_t>(token_count) * sizeof(float));
    return bundle;
  };
  const uint64_t start = ChainStart(kKey, 2, stage.core().options().recipe);
  stage.core().OnBundle(last, returned(0, 4, 3, kRowWantsLogits, start), kNow);
  EXPECT_THAT(RefusalOf(stage.core().TakeActions()), FailsWith(FailureKind::kMalformedBundle))
      << "several tokens of a step that verifies nothing";
  StageBundle first = returned(0, 4, 1, kRowWantsLogits, start);
  const uint64_t digest = RowDigest(first.rows[0], first.hidden->data(), sizeof(float));
  stage.core().OnBundle(last, std::move(first), kNow);
  EXPECT_EQ(stage.core().TakeActions().returns.size(), 1U);
  stage.core().OnBundle(
      last, returned(1, 5, 4, kRowWantsAllLogits, ChainNext(start, StepIndex(0), digest)), kNow);
  const StageActions done = stage.core().TakeActions();
  ASSERT_EQ(done.returns.size(), 1U);
  EXPECT_EQ(done.returns[0].rows[0].token_count, 4);
  EXPECT_EQ(done.returns[0].hidden->size(), 4 * sizeof(float));
}

TEST(VerifyRows, LeaveOnlyTheDraftsThatWereRight) {
  Stage stage;
  stage.Verify();
  EXPECT_EQ(stage.length(), 9);
  EXPECT_THAT(RefusalOf(stage.Send({.step = 2, .position = 7, .rejected = 2})), IsOk());
  stage.Finish();
  EXPECT_EQ(stage.length(), 8);
}

TEST(VerifyRows, TellTheNextStageWhatWasTakenBack) {
  Stage stage(2);
  stage.Verify();
  stage.Send({.step = 2, .position = 6, .rejected = 3});
  const StageActions done = stage.Finish();
  ASSERT_EQ(done.forwards.size(), 1U);
  EXPECT_EQ(done.forwards[0].bundle.rows[0].rejected, 3);
}

TEST(VerifyRows, GiveBackNoMoreThanTheirDrafts) {
  Stage stage;
  stage.Verify();
  for (const int32_t rejected : {4, -1, 0x7fffffff, -0x7fffffff - 1}) {
    EXPECT_THAT(RefusalOf(stage.Send({.step = 2, .position = 5, .rejected = rejected})),
                FailsWith(FailureKind::kStepConflict))
        << rejected;
  }
  EXPECT_EQ(stage.length(), 9);
}

TEST(VerifyRows, AreTheOnlyOnesThatGiveBack) {
  Stage stage;
  stage.Send({.step = 0, .token_count = 5});
  stage.Finish();
  EXPECT_THAT(RefusalOf(stage.Send({.step = 1, .position = 4, .rejected = 1})),
              FailsWith(FailureKind::kStepConflict));
  stage.Send({.step = 1, .position = 5, .token_count = 2, .flags = kRowWantsAllLogits});
  EXPECT_THAT(RefusalOf(stage.Send({.step = 2, .position = 6, .rejected = 1})),
              FailsWith(FailureKind::kStepConflict))
      << "while it computes";
  stage.Finish();
  stage.Send({.step = 2, .position = 7});
  stage.Finish();
  EXPECT_THAT(RefusalOf(stage.Send({.step = 3, .position = 7, .rejected = 1})),
              FailsWith(FailureKind::kStepConflict))
      << "after the step behind it";
}

// The row that took drafts back failed for certain, and comes again.
TEST(VerifyRows, GiveBackOnceHoweverOftenTheNextStepComes) {
  Stage stage;
  stage.Verify();
  stage.Send({.step = 2, .position = 7, .rejected = 2});
  stage.Finish(MakeFailure(FailureKind::kNonFinite, "made so"));
  EXPECT_EQ(stage.length(), 7);
  EXPECT_THAT(RefusalOf(stage.Send({.step = 2, .position = 8, .rejected = 1})),
              FailsWith(FailureKind::kStepConflict))
      << "what is taken back does not return";
  EXPECT_THAT(RefusalOf(stage.Send({.step = 2, .position = 7, .rejected = 2})), IsOk());
  stage.Finish();
  EXPECT_EQ(stage.length(), 8);
  EXPECT_EQ(stage.Send({.step = 2, .position = 7, .rejected = 2}).returns.size(), 1U)
      << "a copy gets the answer";
  EXPECT_EQ(stage.length(), 8);
}

TEST(VerifyRows, MakeRoomForTheNextStepBeforeItIsAsked) {
  Stage stage;
  stage.Send({.step = 0, .token_count = 20});
  stage.Finish();
  stage.Send({.step = 1, .position = 20, .token_count = 12, .flags = kRowWantsAllLogits});
  stage.Finish();
  EXPECT_EQ(stage.length(), 32) << "the reservation is full";
  EXPECT_THAT(RefusalOf(stage.Send({.step = 2, .position = 22, .token_count = 10, .rejected = 10})),
              IsOk());
}

}  // namespace
}  // namespace shardline
