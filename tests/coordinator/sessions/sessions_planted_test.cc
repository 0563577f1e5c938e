// The property test is worth something only if it notices: each guard of a session is taken out in
// turn, and the dice must find that within 2,000 games.

#include "base/planted_bug.h"
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

class SessionsPlanted : public ::testing::TestWithParam<PlantedBug> {};

TEST_P(SessionsPlanted, IsFound) {
  const std::string problem = Play(GetParam());
  EXPECT_NE(problem, "");
  RecordProperty("problem", problem);
}

INSTANTIATE_TEST_SUITE_P(
    EveryGuard, SessionsPlanted,
    ::testing::Values(PlantedBug::kSuccessBeforeRecord, PlantedBug::kRestartLosesDeadline,
                      PlantedBug::kRestartRepeatsTokens, PlantedBug::kRestartForgetsSuspects,
                      PlantedBug::kRestartsUnlimited, PlantedBug::kPoisonUnlimited,
                      PlantedBug::kRefusedOpenLeaks, PlantedBug::kCancelMissesLateOpens,
                      PlantedBug::kFanOutStopsAtSilentStage, PlantedBug::kTokensAfterTheEnd));

TEST(SessionsPlantedNone, WithoutABugThereIsNoProblem) { EXPECT_EQ(Play(PlantedBug::kNone), ""); }

}  // namespace
}  // namespace shardline
