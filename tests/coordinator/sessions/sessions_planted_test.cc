// The property test is worth something only if it notices: each guard of a session is taken out in
// turn, and the dice must find that within 2,000 games.

#include "base/planted_bug.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/sessions/shaky_shell.h"

namespace shardline {
namespace {

using ::shardline::testing::ShakyShell;

// The first problem found, or none.
std::string Play(PlantedBug bug) {
  planted_bug = bug;
  std::string problem;
  for (uint64_t seed = 0; seed < 2000 && problem.empty(); ++seed) {
    ShakyShell shell(seed);
    for (int i = 0; i < 200 && shell.problem().empty(); ++i) shell.Step();
    if (shell.problem().empty()) shell.WindDown();
    problem = shell.problem();
  }
  planted_bug = PlantedBug::kNone;
  return problem;
}

struct Guard {
  PlantedBug bug;
  const char* rule;  // That is seen broken without it.
};

class SessionsPlanted : public ::testing::TestWithParam<Guard> {};

TEST_P(SessionsPlanted, IsFoundByTheRuleItGuards) {
  EXPECT_THAT(Play(GetParam().bug), ::testing::StartsWith(GetParam().rule));
}

INSTANTIATE_TEST_SUITE_P(
    EveryGuard, SessionsPlanted,
    ::testing::Values(
        Guard{PlantedBug::kSuccessBeforeRecord, "success before its record"},
        Guard{PlantedBug::kRestartLosesDeadline, "an end by deadline and grace"},
        Guard{PlantedBug::kRestartRepeatsTokens, "a gap or a repeat"},
        Guard{PlantedBug::kRestartForgetsSuspects, "a new attempt leaves the suspects out"},
        Guard{PlantedBug::kPrefixLongerThanHit,
              "a run begins where every stage has what is before"},
        Guard{PlantedBug::kRestartsUnlimited, "at most three attempts run"},
        Guard{PlantedBug::kPoisonUnlimited, "no attempt after two deaths"},
        Guard{PlantedBug::kRefusedOpenLeaks, "every stage that was sent an open is sent a fence"},
        Guard{PlantedBug::kCancelMissesLateOpens,
              "every stage that was sent an open is sent a fence"},
        Guard{PlantedBug::kFanOutStopsAtSilentStage,
              "every stage that was sent an open is sent a fence"},
        Guard{PlantedBug::kTokensAfterTheEnd, "a new token after the outcome"}));

TEST(SessionsPlantedNone, WithoutABugThereIsNoProblem) { EXPECT_EQ(Play(PlantedBug::kNone), ""); }

}  // namespace
}  // namespace shardline
