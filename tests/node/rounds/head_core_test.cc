#include "node/rounds/head_core.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;

const Instant kNow = Instant::FromOrigin(absl::Seconds(100));

HeadOptions Options() {
  return {.node = NodeId("a"),
          .layers = {.begin = 0, .end = 2},
          .vocab_size = 100,
          .hidden_dim = 2,
          .context_tokens_max = 100000,
          .attempts_max = 64};
}

RunAttempt RunOf(uint64_t session, size_t prompt_size) {
  return {.key = {.session = SessionId(session), .epoch = Epoch(1)},
          .prompt = std::vector<int32_t>(prompt_size, 1),
          .new_tokens_max = 4,
          .budget = absl::Seconds(60),
          .route = {{.node = NodeId("a"), .layers = {.begin = 0, .end = 2}}},
          .tokens_max = 100000};
}

// The hidden state of a bundle's steps, back from the last stage.
StageBundle BackOf(const StageBundle& bundle) {
  StageBundle back{.rows = bundle.rows};
  for (BundleRow& row : back.rows) {
    row.position += row.token_count - 1;
    row.token_count = 1;
  }
  back.hidden = Buffer::Allocate(back.rows.size() * 2 * sizeof(float));
  return back;
}

ComputeDone DoneOf(const ComputeJob& job, int32_t token) {
  ComputeDone done{.id = job.id};
  for (const SampleTarget& sample : job.samples) {
    done.samples.push_back({.key = sample.key, .tokens = {{.token = token}}});
  }
  return done;
}

TEST(HeadCore, FillsARoundWithPiecesUpToItsBudget) {
  HeadCore head(Options());
  for (uint64_t session = 1; session <= 20; ++session) {
    ASSERT_THAT(head.OnRun(RunOf(session, 5000), kNow), IsOk());
  }
  HeadActions actions = head.TakeActions();
  ASSERT_EQ(actions.steps.size(), 1U) << "one round is in flight";
  EXPECT_EQ(actions.steps[0].tokens.size(), 64U) << "the first prompt was alone";
  head.OnReturn(BackOf(actions.steps[0]), kNow);
  actions = head.TakeActions();
  ASSERT_EQ(actions.steps.size(), 1U);
  EXPECT_EQ(actions.steps[0].rows.size(), 4U);
  EXPECT_EQ(actions.steps[0].tokens.size(), static_cast<size_t>(head.options().piece_tokens_idle));
}

TEST(HeadCore, HandsTheDeviceTheReturnedBufferItself) {
  HeadCore head(Options());
  ASSERT_THAT(head.OnRun(RunOf(1, 3), kNow), IsOk());
  StageBundle back{.rows = head.TakeActions().steps[0].rows,
                   .hidden = Buffer::Allocate(2 * sizeof(float))};
  back.rows[0].position = 2;
  back.rows[0].token_count = 1;
  head.OnReturn(back, kNow);
  EXPECT_EQ(head.TakeActions().jobs[0].hidden, back.hidden);
}

// Whether a row is sampled is what the head asked for, not what came back on the wire.
TEST(HeadCore, DoesNotSampleAChunkBecauseItsFlagsSaySo) {
  HeadOptions options = Options();
  options.chunk_tokens_max = 2;
  HeadCore head(options);
  ASSERT_THAT(head.OnRun(RunOf(1, 6), kNow), IsOk());
  StageBundle back{.rows = {head.TakeActions().steps[0].rows[0]},
                   .hidden = Buffer::Allocate(2 * sizeof(float))};
  back.rows[0].position = 1;
  back.rows[0].token_count = 1;
  back.rows[0].flags = ~0U;
  head.OnReturn(back, kNow);
  EXPECT_TRUE(head.TakeActions().jobs.empty());
}

TEST(HeadCore, KeepsRoundsWithinTheAgreedSizeOfABundle) {
  HeadOptions options = Options();
  options.bundle_rows_max = 2;
  HeadCore head(options);
  for (uint64_t session = 1; session <= 5; ++session) {
    ASSERT_THAT(head.OnRun(RunOf(session, 1), kNow), IsOk());
  }
  size_t ends = 0;
  for (int round = 0; ends < 5 && round < 100; ++round) {
    HeadActions actions = head.TakeActions();
    ends += actions.ends.size();
    for (const StageBundle& bundle : actions.steps) {
      EXPECT_LE(bundle.rows.size(), 2U);
      head.OnReturn(BackOf(bundle), kNow);
    }
    for (const ComputeJob& job : actions.jobs) head.OnComputeDone(DoneOf(job, 5), kNow);
  }
  EXPECT_EQ(ends, 5U);
}

}  // namespace
}  // namespace shardline
