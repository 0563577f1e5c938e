#include "node/stage/stage_core.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;

const Instant kNow = Instant::FromOrigin(absl::Seconds(100));

StageOptions Options() {
  return {.node = NodeId("a"),
          .incarnation = Incarnation(1),
          .recipe = {.model_id = ModelId("m")},
          .layers = {.begin = 0, .end = 2},
          .layers_total = 2,
          .is_head = true,
          .hidden_dim = 1,
          .pages_total = 64,
          .context_tokens_max = 256,
          .attempts_max = 8,
          .sessions_max = 32};
}

OpenAttempt OpenOf(const StageOptions& options, uint64_t session, uint64_t epoch = 1) {
  return {.key = {.session = SessionId(session), .epoch = Epoch(epoch)},
          .term = Term(1),
          .incarnation = options.incarnation,
          .recipe = options.recipe,
          .route = {{.node = options.node,
                     .incarnation = options.incarnation,
                     .layers = options.layers}},
          .tokens_max = 64,
          .budget = absl::Seconds(10)};
}

StageBundle Tokens(uint64_t session, uint64_t step, int32_t position, int32_t token_count) {
  StageBundle bundle;
  bundle.rows.push_back({.key = {{SessionId(session), Epoch(1)}, StepIndex(step)},
                         .position = position,
                         .token_count = token_count,
                         .budget = absl::Seconds(5)});
  bundle.tokens.assign(static_cast<size_t>(token_count), 3);
  return bundle;
}

ComputeDone DoneOf(const ComputeJob& job) {
  ComputeDone done{.id = job.id};
  size_t token_count = 0;
  for (const JobSlice& slice : job.slices) {
    token_count += static_cast<size_t>(slice.token_count);
    done.slice_status.push_back(absl::OkStatus());
  }
  done.hidden = Buffer::Allocate(token_count * sizeof(float));
  return done;
}

TEST(StageCore, ASingleStageReturnsStraightToItsOwnHead) {
  const StageOptions options = Options();
  StageCore stage(options);
  ASSERT_THAT(stage.Open(OpenOf(options, 7), kNow), IsOk());
  stage.OnBundle({}, Tokens(7, 0, 0, 5), kNow);
  const StageActions started = stage.TakeActions();
  ASSERT_EQ(started.jobs.size(), 1U);
  stage.OnComputeDone(DoneOf(started.jobs[0]), kNow);
  const StageActions finished = stage.TakeActions();
  EXPECT_TRUE(finished.forwards.empty());
  ASSERT_EQ(finished.returns.size(), 1U);
  EXPECT_EQ(finished.returns[0].rows[0].hop, 1U);
  EXPECT_EQ(finished.returns[0].rows[0].position, 4);
  EXPECT_EQ(finished.computed.size(), 1U);
}

TEST(StageCore, TheOwnHeadIsTheOnlySenderOfASingleStage) {
  const StageOptions options = Options();
  StageCore stage(options);
  ASSERT_THAT(stage.Open(OpenOf(options, 7), kNow), IsOk());
  StageBundle bundle = Tokens(7, 0, 0, 1);
  bundle.tokens.clear();
  bundle.hidden = Buffer::Allocate(sizeof(float));
  for (const uint32_t hop : {0U, 1U}) {
    bundle.rows[0].hop = hop;
    stage.OnBundle({.node = options.node, .incarnation = options.incarnation}, bundle, kNow);
    const StageActions actions = stage.TakeActions();
    EXPECT_TRUE(actions.jobs.empty());
    EXPECT_TRUE(actions.returns.empty());
    ASSERT_EQ(actions.refusals.size(), 1U);
  }
}

TEST(StageCore, ForwardsTheBufferOfTheDeviceWithoutACopy) {
  const StageOptions options = Options();
  StageCore stage(options);
  ASSERT_THAT(stage.Open(OpenOf(options, 7), kNow), IsOk());
  stage.OnBundle({}, Tokens(7, 0, 0, 1), kNow);
  const ComputeDone done = DoneOf(stage.TakeActions().jobs[0]);
  stage.OnComputeDone(done, kNow);
  EXPECT_EQ(stage.TakeActions().returns[0].hidden, done.hidden);
}

TEST(StageCore, ABudgetShrinksEvenIfNoTimePasses) {
  const StageOptions options = Options();
  StageCore stage(options);
  ASSERT_THAT(stage.Open(OpenOf(options, 7), kNow), IsOk());
  stage.OnBundle({}, Tokens(7, 0, 0, 1), kNow);
  stage.OnComputeDone(DoneOf(stage.TakeActions().jobs[0]), kNow);
  EXPECT_LT(stage.TakeActions().returns[0].rows[0].budget, absl::Seconds(5));
}

TEST(StageCore, ChecksWhoMayRunAnAttempt) {
  const StageOptions options = Options();
  StageCore stage(options);
  OpenAttempt open = OpenOf(options, 7, 3);
  open.term = Term(4);
  open.capability = "signed";
  ASSERT_THAT(stage.Open(open, kNow), IsOk());
  EXPECT_THAT(stage.CheckRun(open.key, Term(4), Incarnation(1), "signed"), IsOk());
  EXPECT_THAT(stage.CheckRun(open.key, Term(4), Incarnation(1), "forged"),
              FailsWith(FailureKind::kUnauthorised));
  open.capability = "signed anew, for less budget";
  ASSERT_THAT(stage.Open(open, kNow), IsOk());
  EXPECT_THAT(stage.CheckRun(open.key, Term(4), Incarnation(1), open.capability), IsOk());
  EXPECT_THAT(stage.CheckRun(open.key, Term(3), Incarnation(1), ""),
              FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(stage.CheckRun(open.key, Term(4), Incarnation(2), ""),
              FailsWith(FailureKind::kWorkerDeath));
  EXPECT_THAT(stage.CheckRun({SessionId(7), Epoch(2)}, Term(4), Incarnation(1), ""),
              FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(stage.CheckRun({SessionId(8), Epoch(1)}, Term(4), Incarnation(1), ""),
              FailsWith(FailureKind::kCacheMiss));
}

TEST(StageCore, AnAnswerOfAnotherShapeIsALostDevice) {
  const StageOptions options = Options();
  StageCore stage(options);
  ASSERT_THAT(stage.Open(OpenOf(options, 7), kNow), IsOk());
  stage.OnBundle({}, Tokens(7, 0, 0, 2), kNow);
  ComputeDone done = DoneOf(stage.TakeActions().jobs[0]);
  done.hidden = Buffer::Allocate(sizeof(float));
  stage.OnComputeDone(done, kNow);
  const StageActions actions = stage.TakeActions();
  ASSERT_EQ(actions.refusals.size(), 1U);
  EXPECT_THAT(actions.refusals[0].failure.status, FailsWith(FailureKind::kDeviceLost));
  stage.OnComputeDone(done, kNow);
  EXPECT_TRUE(stage.TakeActions().empty()) << "a job ends once";
}

TEST(StageCore, ClosingAllFreesEverythingForGood) {
  const StageOptions options = Options();
  StageCore stage(options);
  for (uint64_t session = 1; session <= 3; ++session) {
    ASSERT_THAT(stage.Open(OpenOf(options, session), kNow), IsOk());
  }
  EXPECT_EQ(stage.CloseAll(kNow).pages_released, 12);
  EXPECT_EQ(stage.kv().pages_free(), 64);
  EXPECT_THAT(stage.Open(OpenOf(options, 1), kNow), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_EQ(stage.NextWake(), Instant::InfiniteFuture());
}

TEST(StageCore, WaitingRowsAreBounded) {
  StageOptions options = Options();
  options.rows_waiting_max = 2;
  StageCore stage(options);
  for (uint64_t session = 1; session <= 4; ++session) {
    ASSERT_THAT(stage.Open(OpenOf(options, session), kNow), IsOk());
    stage.OnBundle({}, Tokens(session, 0, 0, 1), kNow);
  }
  const StageActions actions = stage.TakeActions();
  ASSERT_EQ(actions.refusals.size(), 1U);
  EXPECT_THAT(actions.refusals[0].failure.status, FailsWith(FailureKind::kOverloaded));
}

// Whatever a stranger puts into the numbers of a row, it is refused or judged, never trusted: a
// storm of rows that are right but for one field in eight.
TEST(StageCore, SurvivesHostileNumbersInEveryField) {
  constexpr uint64_t kEdges[] = {
      0, 1, 2, 7, 63, 0x7fffffff, 0x80000000, 0xffffffff, uint64_t{1} << 63, ~uint64_t{0}};
  std::mt19937_64 random(17);
  StageOptions options = Options();
  options.layers_total = 4;
  const StagePeer next{.node = NodeId("b"), .incarnation = Incarnation(1)};
  uint64_t refused = 0;
  uint64_t committed = 0;
  uint64_t promoted = 0;
  uint64_t doubted = 0;
  for (int round = 0; round < 300; ++round) {
    const auto spoil = [&](uint64_t value) {
      return random() % 8 == 0 ? kEdges[random() % 10] : value;
    };
    StageCore stage(options);
    std::vector<ComputeJob> jobs;
    uint64_t epochs[3] = {1, 1, 1};
    uint64_t steps[3] = {};
    for (int i = 0; i < 80; ++i) {
      const uint64_t session = random() % 3;
      OpenAttempt open = OpenOf(options, session, spoil(epochs[session]));
      open.route.push_back(
          {.node = next.node, .incarnation = next.incarnation, .layers = {.begin = 2, .end = 4}});
      open.tokens_max = static_cast<int32_t>(spoil(64));
      if (!stage.Open(open, kNow).ok() && random() % 4 == 0) {
        ++epochs[session];
        steps[session] = 0;
      }
      if (random() % 16 == 0) {
        stage.Fence(SessionId(spoil(session)), Epoch(spoil(epochs[session])), Term(1), kNow);
      }
      StageBundle bundle;
      const AttemptKey key{SessionId(session), Epoch(epochs[session])};
      for (uint64_t rows = 1 + random() % 2; rows > 0; --rows) {
        bundle.rows.push_back({.key = {{SessionId(spoil(session)), Epoch(spoil(epochs[session]))},
                                       StepIndex(spoil(steps[session]))},
                               .position = static_cast<int32_t>(
                                   spoil(static_cast<uint64_t>(stage.kv().LengthOf(key)))),
                               .token_count = static_cast<int32_t>(spoil(2)),
                               .hop = static_cast<uint32_t>(spoil(0)),
                               .budget = absl::Microseconds(static_cast<int64_t>(spoil(1000))),
                               .flags = static_cast<uint32_t>(spoil(1 + random() % 2)),
                               .rejected = static_cast<int32_t>(spoil(random() % 8 == 0))});
      }
      const bool is_head = random() % 8 != 0;
      int64_t token_count = 0;
      for (const BundleRow& row : bundle.rows) token_count += row.token_count;
      if (token_count >= 0 && token_count < 10000 && random() % 16 != 0) {
        if (is_head) bundle.tokens.assign(static_cast<size_t>(token_count), 1);
        if (!is_head) {
          bundle.hidden = Buffer::Allocate(static_cast<size_t>(token_count) * sizeof(float));
        }
      }
      if (random() % 2 == 0) stage.OnPlan(is_head ? StagePeer{} : next, bundle.rows, kNow);
      stage.OnBundle(is_head ? StagePeer{} : next, std::move(bundle), kNow);
      stage.OnRowFailure(next,
                         {.key = {{SessionId(spoil(session)), Epoch(spoil(epochs[session]))},
                                  StepIndex(spoil(steps[session]))},
                          .status = absl::OkStatus()},
                         kNow);
      if (random() % 8 == 0) {
        stage.OnLinkLost(next, MakeFailure(FailureKind::kStreamReset, "cut"), kNow);
      }
      if (random() % 8 == 0) stage.OnLinkUp(next, kNow);
      const AttemptKey asked{SessionId(spoil(session)), Epoch(spoil(epochs[session]))};
      stage.OnInspect(next, {{.key = asked}}, kNow);
      stage.OnInspectReply(
          next,
          {{.key = asked, .step_next = StepIndex(spoil(steps[session])), .chain = spoil(random())}},
          kNow);
      StageActions actions = stage.TakeActions();
      refused += actions.refusals.size();
      doubted += stage.attempts_doubted();
      for (ComputeJob& job : actions.jobs) jobs.push_back(std::move(job));
      while (!jobs.empty() && random() % 4 != 0) {
        stage.OnComputeDone(DoneOf(jobs.back()), kNow);
        for (const JobSlice& slice : jobs.back().slices) {
          const uint64_t of = slice.key.attempt.session.value();
          if (of < 3) steps[of] = slice.key.step.value() + 1;
        }
        jobs.pop_back();
        for (ComputeJob& job : stage.TakeActions().jobs) jobs.push_back(std::move(job));
      }
      stage.kv().CheckConservation();
    }
    committed += stage.stats().rows_committed;
    promoted += stage.stats().plans_promoted;
    stage.CloseAll(kNow);
    ASSERT_EQ(stage.attempts_doubted(), 0U) << "round " << round;
    for (const ComputeJob& job : jobs) stage.OnComputeDone(DoneOf(job), kNow);
    ASSERT_EQ(stage.kv().pages_free(), options.pages_total) << "round " << round;
  }
  EXPECT_GT(refused, 1000U);
  EXPECT_GT(committed, 1000U) << "the storm must reach the inside";
  EXPECT_GT(promoted, 500U);
  EXPECT_GT(doubted, 1000U);
}

}  // namespace
}  // namespace shardline
