// What rounds promise: pieces that fail end their own request once, a token waits for a bounded
// number of rounds, stragglers hold up nobody, pages get their names.

#include <random>
#include <set>
#include <vector>

#include "base/version.h"
#include "gtest/gtest.h"
#include "tests/node/rounds/head_rig.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::HeadRig;
using ::shardline::testing::IsOk;

constexpr uint64_t kVictim = 9;

// Two neighbours decode while a prompt of `pieces` pieces fills, and piece `failing` fails.
void FailPiece(int pieces, int failing, int32_t rounds_in_flight) {
  SCOPED_TRACE(::testing::Message() << pieces << " pieces, the failing one " << failing << ", "
                                    << rounds_in_flight << " rounds in flight");
  HeadRig rig({.chunk_tokens_max = 4, .piece_tokens_decoding = 4});
  const auto start = [&](uint64_t session, int32_t prompt, int32_t new_tokens) {
    RunAttempt run = HeadRig::Run(session, prompt, new_tokens);
    run.rounds_in_flight = rounds_in_flight;
    ASSERT_THAT(rig.Start(std::move(run)), IsOk());
  };
  start(1, 3, 100);
  start(2, 3, 100);
  start(kVictim, 4 * pieces, 3);
  const AttemptKey victim = HeadRig::KeyOf(kVictim);
  bool has_failed = false;
  size_t victim_rows = 0;
  while (!rig.ring().empty() || !rig.jobs().empty()) {
    if (!rig.jobs().empty()) {
      rig.FinishJob();
      continue;
    }
    const std::vector<BundleRow>& rows = rig.ring().front().rows;
    size_t index = 0;
    while (index < rows.size() &&
           (rows[index].key.attempt != victim ||
            rows[index].key.step.value() != static_cast<uint64_t>(failing))) {
      ++index;
    }
    if (index == rows.size()) {
      rig.ReturnOldest();
      continue;
    }
    rig.FailOldest(index);
    has_failed = true;
    for (const BundleRow& row : rig.sent()) victim_rows += row.key.attempt == victim ? 1 : 0;
  }
  ASSERT_TRUE(has_failed);
  for (const BundleRow& row : rig.sent()) victim_rows -= row.key.attempt == victim ? 1 : 0;
  EXPECT_EQ(victim_rows, 0U) << "later pieces were sent after the failure";
  ASSERT_EQ(rig.ends().at(victim).size(), 1U);
  EXPECT_EQ(FailureKindOf(rig.ends().at(victim)[0].status), FailureKind::kNonFinite);
  EXPECT_FALSE(rig.tokens().contains(victim)) << "its final did not run";
  for (const uint64_t neighbour : {1, 2}) {
    ASSERT_EQ(rig.ends().at(HeadRig::KeyOf(neighbour)).size(), 1U);
    EXPECT_THAT(rig.ends().at(HeadRig::KeyOf(neighbour))[0].status, IsOk());
    EXPECT_EQ(rig.tokens().at(HeadRig::KeyOf(neighbour)).size(), 100U);
  }
  EXPECT_EQ(rig.head().attempts_running(), 0U);
  EXPECT_EQ(rig.head().rounds_in_flight(), 0U);
}

// Every row of a decode step that is asked comes back with what three stages say of themselves.
TEST(Rounds, AnEndTellsEachStagesShareOfAllLaps) {
  HeadRig rig({});
  RunAttempt run = HeadRig::Run(1, 3, 100);
  const size_t stages = run.route.size();
  ASSERT_THAT(rig.Start(std::move(run)), IsOk());
  int asked = 0;
  while (!rig.ring().empty() || !rig.jobs().empty()) {
    if (!rig.jobs().empty()) {
      rig.FinishJob();
      continue;
    }
    for (BundleRow& row : rig.ring().front().rows) {
      row.compute = absl::Milliseconds(6);
      if ((row.flags & kRowWantsStageTimes) == 0) continue;
      ++asked;
      // A liar that leaves stages out is not listened to.
      row.stage_compute.assign(asked == 2 ? stages + 1 : stages, absl::Milliseconds(1));
      row.stage_compute[0] = absl::Milliseconds(4);
    }
    rig.ReturnOldest();
  }
  ASSERT_GE(asked, 3);
  const RunTimings& timings = rig.ends().at(HeadRig::KeyOf(1)).at(0).timings;
  EXPECT_EQ(timings.stage_compute, timings.laps * absl::Milliseconds(6));
  ASSERT_EQ(timings.by_stage.size(), stages);
  absl::Duration sum;
  for (const absl::Duration time : timings.by_stage) sum += time;
  EXPECT_LT(absl::AbsDuration(sum - timings.stage_compute), absl::Microseconds(1));
  EXPECT_NEAR(absl::FDivDuration(timings.by_stage[0], timings.stage_compute),
              4.0 / (4.0 + static_cast<double>(stages - 1)), 1e-6);
}

TEST(Rounds, APromptTellsHowFarItIsOnlyToWhoAsks) {
  HeadRig rig({.chunk_tokens_max = 4, .piece_tokens_idle = 4});
  RunAttempt curious = HeadRig::Run(1, 10, 2);
  curious.want_progress = true;
  ASSERT_THAT(rig.Start(std::move(curious)), IsOk());
  ASSERT_THAT(rig.Start(HeadRig::Run(2, 10, 2)), IsOk());
  rig.RunOut();
  std::vector<int32_t> done;
  for (const ProgressOut& progress : rig.progress()) {
    EXPECT_EQ(progress.key, HeadRig::KeyOf(1));
    EXPECT_EQ(progress.tokens, 10);
    done.push_back(progress.tokens_done);
  }
  EXPECT_EQ(done, (std::vector<int32_t>{0, 4, 8, 10}));
}

TEST(Rounds, AFailedPieceEndsItsRequestAloneAndOnce) {
  for (const int32_t rounds_in_flight : {1, 4}) {
    for (const int pieces : {1, 16, 17, 64}) {
      for (int failing = 0; failing < pieces; ++failing) {
        FailPiece(pieces, failing, rounds_in_flight);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Rounds, APromptOfAnyNumberOfPiecesArrivesWholeAndInOrder) {
  for (const int pieces : {1, 16, 17, 64}) {
    HeadRig rig({.chunk_tokens_max = 4});
    RunAttempt run = HeadRig::Run(1, 4 * pieces - 1, 1);
    run.rounds_in_flight = 3;
    ASSERT_THAT(rig.Start(run), IsOk());
    rig.RunOut();
    int32_t position = 0;
    for (const BundleRow& row : rig.sent()) {
      EXPECT_EQ(row.position, position);
      position += row.token_count;
      EXPECT_EQ(row.flags, position == 4 * pieces - 1 ? kRowWantsLogits : 0U);
    }
    EXPECT_EQ(rig.sent().size(), static_cast<size_t>(pieces));
    EXPECT_EQ(rig.tokens().at(HeadRig::KeyOf(1)).size(), 1U);
  }
}

// Random arrivals of long and short prompts, of several tenants, against attempts that decode.
TEST(Rounds, AtMostTwoRoundsForEachInFlightBeginBetweenTwoTokens) {
  uint32_t longest = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int m = pick(1, 4);
    HeadRig rig({.chunk_tokens_max = pick(1, 8),
                 .piece_tokens_decoding = pick(1, 16),
                 .piece_tokens_idle = pick(1, 32),
                 .attempts_max = static_cast<size_t>(pick(2, 12)),
                 .samples_max = static_cast<size_t>(pick(1, 8))});
    uint64_t sessions = 0;
    const uint64_t sessions_max = 40;
    while (sessions < sessions_max || !rig.ring().empty() || !rig.jobs().empty()) {
      const int choice = pick(0, 9);
      if (choice == 0 && sessions < sessions_max) {
        RunAttempt run =
            HeadRig::Run(++sessions, pick(0, 3) == 0 ? pick(50, 200) : pick(1, 10), pick(1, 40));
        run.rounds_in_flight = m;
        run.tenant = std::string(1, static_cast<char>('a' + pick(0, 2)));
        ASSERT_THAT(rig.Start(std::move(run)), IsOk());
      } else if (choice < 6 && !rig.jobs().empty()) {
        rig.FinishJob();
      } else if (!rig.ring().empty()) {
        // A round may come back in parts, since stages may cut it; but in order.
        rig.ReturnOldest(0, static_cast<size_t>(pick(1, 20)));
      }
    }
    EXPECT_EQ(rig.ends().size(), sessions_max);
    for (const auto& [key, ends] : rig.ends()) {
      ASSERT_EQ(ends.size(), 1U);
      EXPECT_LE(ends[0].timings.rounds_between_max, static_cast<uint32_t>(2 * m));
      longest = std::max(longest, ends[0].timings.rounds_between_max);
    }
    EXPECT_EQ(rig.head().attempts_running(), 0U);
    if (HasFailure()) return;
  }
  EXPECT_GE(longest, 5U) << "somebody must have waited";
}

TEST(Rounds, WhoIsBackGoesOnWithoutTheStragglers) {
  HeadRig rig({});
  ASSERT_THAT(rig.Start(HeadRig::Run(1, 1, 9)), IsOk());
  ASSERT_THAT(rig.Start(HeadRig::Run(2, 1, 9)), IsOk());
  while (rig.ring().front().rows.size() < 2) {
    rig.ReturnOldest();
    rig.FinishJob();
  }
  rig.ReturnOldest(0, 1);
  EXPECT_EQ(rig.ring().size(), 1U) << "nothing begins before its token is drawn";
  rig.FinishJob();
  ASSERT_EQ(rig.ring().size(), 2U);
  EXPECT_EQ(rig.ring().back().rows.size(), 1U);
  EXPECT_EQ(rig.head().rounds_in_flight(), 1U);
}

TEST(Rounds, EachRoundInFlightTakesItsPartOfThoseThatDecode) {
  HeadRig rig({});
  for (uint64_t session = 1; session <= 8; ++session) {
    RunAttempt run = HeadRig::Run(session, 1, 50);
    run.rounds_in_flight = 4;
    ASSERT_THAT(rig.Start(std::move(run)), IsOk());
  }
  for (int i = 0; i < 60; ++i) {
    rig.ReturnOldest();
    while (!rig.jobs().empty()) rig.FinishJob();
    if (i < 20) continue;
    ASSERT_EQ(rig.ring().size(), 4U);
    for (const StageBundle& bundle : rig.ring()) EXPECT_EQ(bundle.rows.size(), 2U);
  }
}

TEST(Rounds, TenantsFillInTurn) {
  HeadRig rig({.chunk_tokens_max = 4, .piece_tokens_idle = 4});
  for (uint64_t session = 1; session <= 4; ++session) {
    RunAttempt run = HeadRig::Run(session, 400, 1);
    run.tenant = session == 4 ? "modest" : "greedy";
    ASSERT_THAT(rig.Start(std::move(run)), IsOk());
  }
  for (int i = 0; i < 60; ++i) rig.ReturnOldest();
  size_t modest = 0;
  for (const BundleRow& row : rig.sent()) {
    modest += row.key.attempt == HeadRig::KeyOf(4) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(modest), 30, 2) << "of 60, with another tenant";
}

TEST(Rounds, LanesOfOtherRingsDoNotWaitForEachOther) {
  HeadRig rig({});
  ASSERT_THAT(rig.Start(HeadRig::Run(1, 1, 9)), IsOk());
  RunAttempt other = HeadRig::Run(2, 1, 9);
  other.route.push_back({.node = NodeId("b"), .layers = {.begin = 2, .end = 4}});
  ASSERT_THAT(rig.Start(std::move(other)), IsOk());
  ASSERT_EQ(rig.ring().size(), 2U);
  EXPECT_EQ(rig.ring()[1].rows.size(), 1U);
}

TEST(Rounds, APromptBeginsBehindItsCachedPages) {
  HeadRig rig({});
  RunAttempt run = HeadRig::Run(1, 40, 2);
  run.cached_tokens = 32;
  ASSERT_THAT(rig.Start(run), IsOk());
  EXPECT_EQ(rig.sent()[0].position, 32);
  EXPECT_EQ(rig.sent()[0].token_count, 8);
  for (const int32_t wrong : {-16, 8, 40, 48}) {
    run.key = HeadRig::KeyOf(2);
    run.cached_tokens = wrong;
    EXPECT_EQ(FailureKindOf(rig.Start(run)), FailureKind::kInvalidRequest) << wrong;
  }
}

TEST(Rounds, EachPageOfGeneratedTokensIsNamedOnceByItsChain) {
  for (const int32_t prompt_tokens : {1, 15, 16, 17, 40, 48}) {
    HeadRig rig({});
    RunAttempt run = HeadRig::Run(1, prompt_tokens, 50);
    run.prefix_root.bytes[3] = 77;
    ASSERT_THAT(rig.Start(run), IsOk());
    rig.RunOut();
    std::vector<int32_t> text = run.prompt;
    const std::vector<int32_t>& drawn = rig.tokens().at(HeadRig::KeyOf(1));
    text.insert(text.end(), drawn.begin(), drawn.end());
    const std::vector<PrefixKey> chain = PrefixChain(run.prefix_root, text, kPageTokens);
    size_t page = static_cast<size_t>((prompt_tokens - 1) / kPageTokens);  // OPEN has named these.
    for (const BundleRow& row : rig.sent()) {
      if (row.prefix_key.empty()) continue;
      ASSERT_LT(page, chain.size());
      EXPECT_EQ(row.prefix_key, chain[page]);
      EXPECT_EQ(row.position, static_cast<int32_t>(page + 1) * kPageTokens);
      ++page;
    }
    EXPECT_EQ(page, static_cast<size_t>((prompt_tokens + 48) / kPageTokens))
        << "the last row is that of the last token but one";
  }
}

}  // namespace
}  // namespace shardline
