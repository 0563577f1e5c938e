// What the ring promises, whatever is copied, fenced, cut or spoilt on the way.

#include "tests/node/rounds/ring.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::shardline::testing::RunSeeds;

TEST(Ring, AnyCutOfTheModelGivesTheTokensOfAPlainForward) {
  const StageStats sum = RunSeeds(1, 150, {});
  EXPECT_GT(sum.rows_committed, 1000U);
  EXPECT_GT(sum.opens_refused, 10U) << "pages must run short now and then";
}

TEST(Ring, CopiesOfBundlesChangeNothing) {
  const StageStats sum = RunSeeds(1000, 150, {.copies = 60});
  EXPECT_GT(sum.rows_replayed, 100U);
  EXPECT_GT(sum.rows_in_flight_copies, 100U);
}

TEST(Ring, FencesAtAnyPointLoseNoTokenAndNoPage) {
  const StageStats sum = RunSeeds(2000, 150, {.copies = 20, .fences = 12});
  EXPECT_GT(sum.rows_discarded, 100U) << "fences must meet running steps";
}

TEST(Ring, CutLinksThatStandAgainFailNoAttempt) {
  const StageStats sum = RunSeeds(4000, 200, {.copies = 20, .fences = 4, .cuts = 15});
  EXPECT_GT(sum.attempts_resumed, 1000U);
  EXPECT_GT(sum.rows_resent, 200U);
  EXPECT_GT(sum.bundles_shut_out, 20U);
}

TEST(Ring, CutLinksThatStayDownEndInNewEpochs) {
  const StageStats sum =
      RunSeeds(5000, 150, {.copies = 20, .fences = 4, .cuts = 10, .dials_fail = true});
  EXPECT_GT(sum.attempts_resumed, 100U);
  EXPECT_GT(sum.attempts_in_doubt, sum.attempts_resumed);
}

TEST(Ring, WithoutResumeTheSameCutsGiveTheSameTokens) {
  const StageStats sum =
      RunSeeds(4000, 200, {.copies = 20, .fences = 4, .cuts = 15, .resume = false});
  EXPECT_EQ(sum.attempts_in_doubt, 0U);
  EXPECT_GT(sum.failures_passed, 100U);
}

TEST(Ring, StepsThatOvertakeTheirOpensGoAgain) {
  const StageStats sum = RunSeeds(
      6000, 150, {.copies = 20, .fences = 4, .cuts = 4, .dials_fail = true, .late_opens = true});
  EXPECT_GT(sum.rows_refused, 500U);
  EXPECT_GT(sum.rows_replayed, 500U);
}

TEST(Ring, SurvivesBrokenLinksAndNonFiniteRows) {
  for (const bool resume : {true, false}) {
    const StageStats sum = RunSeeds(3000, 150,
                                    {.copies = 20,
                                     .fences = 4,
                                     .non_finite = 4,
                                     .cuts = 6,
                                     .resume = resume,
                                     .dials_fail = true});
    EXPECT_GT(sum.rows_non_finite, 100U);
    EXPECT_GT(sum.failures_passed, 100U);
  }
}

}  // namespace
}  // namespace shardline
