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

// The tokens that are in the ring before a decode step sent now: what it has to wait behind.
TEST(HeadCore, BoundsThePrefillADecodeStepWaitsBehind) {
  HeadCore head(Options());
  for (uint64_t session = 1; session <= 20; ++session) {
    ASSERT_THAT(head.OnRun(RunOf(session, 5000), kNow), IsOk());
  }
  int64_t token_count = 0;
  for (const StageBundle& bundle : head.TakeActions().steps) {
    token_count += static_cast<int64_t>(bundle.tokens.size());
  }
  EXPECT_EQ(token_count, head.options().prefill_chunks_max * head.options().chunk_tokens_max);
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

TEST(HeadCore, SplitsStepsIntoBundlesOfTheAgreedSize) {
  HeadOptions options = Options();
  options.bundle_rows_max = 2;
  HeadCore head(options);
  StageBundle back;
  for (uint64_t session = 1; session <= 5; ++session) {
    ASSERT_THAT(head.OnRun(RunOf(session, 1), kNow), IsOk());
    for (const StageBundle& bundle : head.TakeActions().steps) {
      back.rows.insert(back.rows.end(), bundle.rows.begin(), bundle.rows.end());
    }
    if (session == 4) continue;
  }
  ASSERT_EQ(back.rows.size(), 4U) << "the fifth prompt waits its turn";
  back.hidden = Buffer::Allocate(4 * 2 * sizeof(float));
  head.OnReturn(back, kNow);
  const HeadActions actions = head.TakeActions();
  ComputeDone done{.id = actions.jobs[0].id};
  for (const SampleTarget& sample : actions.jobs[0].samples) {
    done.samples.push_back({.key = sample.key, .tokens = {{.token = 5}}});
  }
  head.OnComputeDone(done, kNow);
  const HeadActions next = head.TakeActions();
  ASSERT_EQ(next.steps.size(), 2U);
  EXPECT_EQ(next.steps[0].rows.size(), 2U);
  EXPECT_EQ(next.steps[1].rows.size(), 2U);
  EXPECT_EQ(next.tokens.size(), 4U);
}

}  // namespace
}  // namespace shardline
