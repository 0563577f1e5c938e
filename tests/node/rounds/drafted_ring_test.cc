// What is guessed changes no token: whoever guesses, whatever is sampled how, on any cut of the
// model, with any number of rounds in flight, and whatever is copied, fenced, cut or spoilt.

#include "gtest/gtest.h"
#include "tests/node/rounds/ring.h"

namespace shardline {
namespace {

using ::shardline::testing::Guesses;
using ::shardline::testing::RingStats;
using ::shardline::testing::RunSeeds;

TEST(DraftedRing, ARightGuessSavesALapAndNoMore) {
  const RingStats sum = RunSeeds(20000, 100, {.guesses = Guesses::kOracle});
  EXPECT_GT(sum.tokens_drafted, 1000U);
  EXPECT_EQ(sum.tokens_accepted, sum.tokens_drafted);
}

TEST(DraftedRing, AWrongGuessLeavesNoTrace) {
  const RingStats sum = RunSeeds(21000, 100, {.guesses = Guesses::kHostile});
  EXPECT_GT(sum.tokens_drafted, 1000U);
  EXPECT_LT(sum.tokens_accepted, sum.tokens_drafted / 10);
}

TEST(DraftedRing, PartlyRightGuessesLeaveWhatWasRight) {
  const RingStats sum = RunSeeds(22000, 150, {.guesses = Guesses::kCorrupted});
  EXPECT_GT(sum.tokens_accepted, 1000U);
  EXPECT_GT(sum.tokens_drafted, sum.tokens_accepted + 1000U);
}

TEST(DraftedRing, OurOwnGuessesChangeNothing) {
  const RingStats sum = RunSeeds(23000, 150, {.guesses = Guesses::kOurs});
  EXPECT_GT(sum.tokens_drafted, 100U);
}

TEST(DraftedRing, FaultsMeetGuessesAndLoseNoToken) {
  for (const Guesses guesses : {Guesses::kOurs, Guesses::kHostile, Guesses::kCorrupted}) {
    const RingStats sum =
        RunSeeds(24000, 100, {.copies = 30, .fences = 6, .cuts = 8, .guesses = guesses});
    EXPECT_GT(sum.tokens_drafted, 100U);
    EXPECT_GT(sum.rows_resent, 50U);
    EXPECT_GT(sum.rows_replayed, 50U);
    EXPECT_GT(sum.rows_discarded, 50U);
  }
}

TEST(DraftedRing, FailedRowsAndLateOpensMeetGuessesToo) {
  const RingStats sum = RunSeeds(25000, 150,
                                 {.copies = 20,
                                  .fences = 4,
                                  .non_finite = 4,
                                  .cuts = 6,
                                  .dials_fail = true,
                                  .late_opens = true,
                                  .guesses = Guesses::kCorrupted});
  EXPECT_GT(sum.rows_non_finite, 100U);
  EXPECT_GT(sum.tokens_drafted, 1000U);
}

TEST(DraftedRing, WithoutResumeTheSameGuessesGiveTheSameTokens) {
  RunSeeds(24000, 60,
           {.copies = 30, .fences = 6, .cuts = 8, .resume = false, .guesses = Guesses::kCorrupted});
}

}  // namespace
}  // namespace shardline
