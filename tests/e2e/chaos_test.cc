// A few rounds of chaos with fixed seeds; shardline-chaos runs as many as one likes.

#include "tests/e2e/chaos.h"

#include <filesystem>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline::testing {
namespace {

class ChaosTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    recipes_ = MakeRecipes(kRecipes);
    answers_ = AnswerAlone(recipes_);
  }

  ChaosReport Run(ChaosOptions options) {
    options.recipes = kRecipes;
    const ChaosReport report = RunChaos(options, recipes_, answers_);
    std::printf("%s\n", Summary(report).c_str());
    EXPECT_EQ(report.violations.size(), 0U)
        << absl::StrJoin(report.violations, "\n") << "\nlogs: " << report.directory;
    return report;
  }

  static constexpr int kRecipes = 8;
  static inline std::vector<Recipe> recipes_;
  static inline std::vector<ReferenceAnswer> answers_;
};

TEST_F(ChaosTest, WithoutFaultsEverySessionCompletes) {
  const ChaosReport report = Run({.seed = 1, .sessions = 12, .faults = {}});
  EXPECT_EQ(report.outcomes.at(ClientReport::Outcome::kCompleted), 12);
  EXPECT_EQ(report.restarts, 0) << "a healthy node was suspected";
}

TEST_F(ChaosTest, NodesDieAndFreezeAndASpareTakesTheirLayers) {
  const ChaosReport report =
      Run({.seed = 11, .sessions = 40, .faults = {Fault::kKill, Fault::kPause}});
  EXPECT_GT(report.outcomes.at(ClientReport::Outcome::kCompleted), 20);
  EXPECT_GT(report.completed_after_restart, 0);
}

TEST_F(ChaosTest, WiresAreCutAndReset) {
  const ChaosReport report = Run(
      {.seed = 21,
       .sessions = 40,
       .faults = {Fault::kCut, Fault::kOneWay, Fault::kLink, Fault::kReset, Fault::kMidBundle}});
  EXPECT_GT(report.outcomes.at(ClientReport::Outcome::kCompleted), 20);
  EXPECT_GT(report.completed_after_restart, 0);
}

TEST_F(ChaosTest, ACoordinatorDiesAndItsClientsReattach) {
  const ChaosReport report =
      Run({.seed = 41, .sessions = 20, .faults = {Fault::kCoordinator, Fault::kReset}});
  EXPECT_GT(report.outcomes.at(ClientReport::Outcome::kCompleted), 10);
  EXPECT_GT(report.faults.at(Fault::kCoordinator), 0);
  EXPECT_GT(report.reattaches, 0);
}

TEST_F(ChaosTest, EverythingAtOnce) {
  const ChaosReport report = Run({.seed = 31, .sessions = 40});
  EXPECT_GT(report.outcomes.at(ClientReport::Outcome::kCompleted), 20);
}

// The checks do look.
TEST_F(ChaosTest, ATokenThatIsNotTheUndisturbedOneIsNoticed) {
  std::vector<ReferenceAnswer> others = answers_;
  for (ReferenceAnswer& other : others) other.tokens[3] ^= 1;
  const ChaosReport report =
      RunChaos({.sessions = 4, .recipes = kRecipes, .faults = {}}, recipes_, others);
  EXPECT_GE(report.violations.size(), 4U);
  std::filesystem::remove_all(report.directory);
}

// The plan is a function of the options, or a seed would replay nothing.
TEST(ChaosPlanTest, TheSameSeedGivesTheSamePlan) {
  const ChaosPlan a = MakeChaosPlan({.seed = 5});
  const ChaosPlan b = MakeChaosPlan({.seed = 5});
  const ChaosPlan other = MakeChaosPlan({.seed = 6});
  const auto key = [](const ChaosPlan& plan) {
    std::vector<int64_t> numbers;
    for (const PlannedSession& session : plan.sessions) {
      numbers.insert(numbers.end(), {session.recipe, session.tokens, session.at_token,
                                     absl::ToInt64Milliseconds(session.deadline)});
    }
    for (const PlannedFault& fault : plan.faults) {
      numbers.insert(numbers.end(), {static_cast<int64_t>(fault.fault), fault.node,
                                     fault.after_tokens, absl::ToInt64Milliseconds(fault.length)});
    }
    return numbers;
  };
  EXPECT_EQ(key(a), key(b));
  EXPECT_NE(key(a), key(other));
}

}  // namespace
}  // namespace shardline::testing
