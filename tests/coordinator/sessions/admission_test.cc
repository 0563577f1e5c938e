// Who goes next where there is no room for all.

#include "coordinator/sessions/admission.h"

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/sessions/session_steps.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::At;
using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::testing::ElementsAre;

class AdmissionTest : public ::testing::Test {
 protected:
  // A session that comes and must wait.
  absl::Status Come(uint64_t request, uint64_t tokens, const std::string& tenant = "",
                    bool ahead = false, int64_t ms = 0) {
    queue_.OnSession();
    return queue_.Enter({.request = RequestId(request),
                         .line = "qwen3",
                         .tenant = tenant,
                         .tokens = tokens,
                         .ahead = ahead},
                        At(ms));
  }
  // Whose turn it is; 0: nobody's.
  uint64_t Turn(int64_t ms = 0) {
    const std::optional<RequestId> request = queue_.NextTurn(At(ms));
    return request ? request->value() : 0;
  }
  // Turns, as long as there are any and each is let in.
  std::vector<uint64_t> AdmitAll(int64_t ms = 0) {
    std::vector<uint64_t> order;
    while (const uint64_t request = Turn(ms)) {
      order.push_back(request);
      queue_.OnAdmitted(RequestId(request), At(ms));
    }
    return order;
  }
  void Refuse(uint64_t request, int64_t ms = 0) { queue_.OnRefused(RequestId(request), At(ms)); }

  AdmissionQueue queue_{AdmissionOptions{.sessions_max = 100, .waiting_max = 20, .passes_max = 3}};
};

TEST_F(AdmissionTest, TenantsTakeTurnsAndEachGoesByAge) {
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_THAT(Come(i, 10, "a"), IsOk());
  ASSERT_THAT(Come(5, 10, "b"), IsOk());
  ASSERT_THAT(Come(6, 10, "b"), IsOk());
  ASSERT_THAT(Come(7, 10, "c"), IsOk());
  EXPECT_THAT(AdmitAll(), ElementsAre(1, 5, 7, 2, 6, 3, 4));
}

TEST_F(AdmissionTest, OneTriesAtATime) {
  ASSERT_THAT(Come(1, 10), IsOk());
  ASSERT_THAT(Come(2, 10), IsOk());
  EXPECT_EQ(Turn(), 1U);
  EXPECT_EQ(Turn(), 0U);
  EXPECT_EQ(queue_.waiting(), 1);
  queue_.Leave(RequestId(1));
  EXPECT_EQ(Turn(), 2U);
}

TEST_F(AdmissionTest, WhoRanBeforeGoesAheadOfNewcomers) {
  ASSERT_THAT(Come(1, 10, "a"), IsOk());
  ASSERT_THAT(Come(3, 10, "b", /*ahead=*/true), IsOk());
  ASSERT_THAT(Come(2, 10, "c", /*ahead=*/true), IsOk());
  EXPECT_THAT(AdmitAll(), ElementsAre(2, 3, 1));
}

TEST_F(AdmissionTest, OnlyWhoNeedsLessThanWhatWasRefusedMayPass) {
  ASSERT_THAT(Come(1, 50), IsOk());
  ASSERT_THAT(Come(2, 60), IsOk());
  ASSERT_THAT(Come(3, 10), IsOk());
  ASSERT_EQ(Turn(), 1U);
  Refuse(1);
  EXPECT_EQ(Turn(), 3U);
  queue_.OnAdmitted(RequestId(3), At(0));
  EXPECT_EQ(Turn(), 0U);  // Nothing was freed since.
  queue_.OnFreed("qwen3");
  EXPECT_EQ(Turn(), 1U);  // It has kept its place.
}

// Else its own small requests would keep a tenant's turn while a large one of it waits.
TEST_F(AdmissionTest, WhoPassesItsOwnTenantsLargeOneComesBehindTheOthersFirst) {
  ASSERT_THAT(Come(1, 50, "b"), IsOk());
  ASSERT_THAT(Come(2, 10, "b"), IsOk());
  ASSERT_THAT(Come(3, 10, "c"), IsOk());
  ASSERT_EQ(Turn(), 1U);
  Refuse(1);
  EXPECT_THAT(AdmitAll(), ElementsAre(3, 2));
}

TEST_F(AdmissionTest, ALargeWaiterIsPassedSoOftenAndThenNobodyPasses) {
  ASSERT_THAT(Come(1, 50), IsOk());
  for (uint64_t i = 2; i <= 8; ++i) ASSERT_THAT(Come(i, 10), IsOk());
  ASSERT_EQ(Turn(), 1U);
  Refuse(1);
  EXPECT_THAT(AdmitAll(), ElementsAre(2, 3, 4));
  queue_.OnFreed("qwen3");
  EXPECT_EQ(Turn(), 1U);
  Refuse(1);
  EXPECT_EQ(Turn(), 0U);  // Though 5 to 8 are small.
  queue_.OnFreed("qwen3");
  EXPECT_THAT(AdmitAll(), ElementsAre(1, 5, 6, 7, 8));
  EXPECT_EQ(queue_.stats().passes, 3U);
}

TEST_F(AdmissionTest, WhatIsFreedWhileSomebodyTriesCountsForTheNextTry) {
  ASSERT_THAT(Come(1, 50), IsOk());
  ASSERT_EQ(Turn(), 1U);
  queue_.OnFreed("qwen3");
  Refuse(1);
  EXPECT_EQ(Turn(), 1U);
}

TEST_F(AdmissionTest, AFullQueueTellsWhenToComeBackFromTheRateItSaw) {
  for (uint64_t i = 1; i <= 20; ++i) ASSERT_THAT(Come(i, 10), IsOk());
  absl::Status status = Come(21, 10);
  EXPECT_THAT(status, FailsWith(FailureKind::kOverloaded));
  EXPECT_EQ(FailureDetailOf(status).retry_after, absl::Seconds(1));
  queue_.OnSessionOver();
  for (int64_t ms : {2000, 4000}) {  // One in two seconds.
    ASSERT_NE(Turn(ms), 0U);
    queue_.OnAdmitted(RequestId(static_cast<uint64_t>(ms / 2000)), At(ms));
  }
  ASSERT_THAT(Come(22, 10, "", false, 4000), IsOk());
  ASSERT_THAT(Come(23, 10, "", false, 4000), IsOk());
  status = Come(24, 10, "", false, 4000);
  EXPECT_EQ(FailureDetailOf(status).retry_after, absl::Seconds(40));
  status = Come(25, 10, "", false, 400000);
  EXPECT_EQ(FailureDetailOf(status).retry_after, absl::Seconds(60));
  EXPECT_THAT(Come(26, 10, "", /*ahead=*/true, 4000), IsOk());  // Bounded by who ran.
}

TEST_F(AdmissionTest, NothingKnownFreedIsTriedAgainAfterAWhile) {
  ASSERT_THAT(Come(1, 50), IsOk());
  ASSERT_EQ(Turn(), 1U);
  Refuse(1, 10);
  EXPECT_EQ(queue_.NextWake(), At(1010));
  queue_.OnTick(At(1009));
  EXPECT_EQ(Turn(1009), 0U);
  queue_.OnTick(At(1010));
  EXPECT_EQ(Turn(1010), 1U);
}

TEST_F(AdmissionTest, WhoFillsAllSlotsMakesOthersWait) {
  AdmissionQueue queue(AdmissionOptions{.sessions_max = 2});
  for (int i = 0; i < 3; ++i) queue.OnSession();
  ASSERT_TRUE(queue.MustWait("qwen3"));
  ASSERT_THAT(queue.Enter({.request = RequestId(3), .line = "qwen3"}, At(0)), IsOk());
  EXPECT_FALSE(queue.NextTurn(At(0)));
  queue.OnSessionOver();
  EXPECT_EQ(queue.NextTurn(At(1)), RequestId(3));
}

TEST_F(AdmissionTest, LinesOfModelsDoNotWaitForEachOther) {
  ASSERT_THAT(Come(1, 50), IsOk());
  ASSERT_EQ(Turn(), 1U);
  Refuse(1);
  EXPECT_TRUE(queue_.MustWait("qwen3"));
  EXPECT_FALSE(queue_.MustWait("smol"));
  queue_.OnSession();
  ASSERT_THAT(queue_.Enter({.request = RequestId(2), .line = "smol", .tokens = 90}, At(0)), IsOk());
  EXPECT_EQ(Turn(), 2U);
}

// A hundred drawn histories: whoever stays is let in within a bounded number of admissions.
TEST_F(AdmissionTest, NobodyStarves) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    uint64_t dice = seed * 2654435761U + 1;
    const auto pick = [&dice](uint64_t n) {
      dice = dice * 6364136223846793005U + 1442695040888963407U;
      return (dice >> 33) % n;
    };
    AdmissionQueue queue(AdmissionOptions{.passes_max = 4});
    constexpr uint64_t kRoom = 100;
    uint64_t used = 0;
    std::vector<uint64_t> held;
    std::map<uint64_t, uint64_t> needs;
    uint64_t next = 2;
    queue.OnSession();  // The large one among many small ones, of another tenant.
    needs[1] = 100;
    ASSERT_THAT(
        queue.Enter({.request = RequestId(1), .line = "m", .tenant = "large", .tokens = 100},
                    At(0)),
        IsOk());
    bool admitted = false;
    for (int i = 0; i < 2000 && !admitted; ++i) {
      if (queue.waiting() < 20) {
        needs[next] = 1 + pick(30);
        queue.OnSession();
        ASSERT_THAT(queue.Enter({.request = RequestId(next),
                                 .line = "m",
                                 .tenant = std::string(1, static_cast<char>('a' + pick(3))),
                                 .tokens = needs[next]},
                                At(i)),
                    IsOk());
        ++next;
      }
      if (!held.empty() && pick(2) == 0) {
        used -= held.back();
        held.pop_back();
        queue.OnSessionOver();
        queue.OnFreed("m");
      }
      while (const std::optional<RequestId> turn = queue.NextTurn(At(i))) {
        const uint64_t need = needs[turn->value()];
        if (used + need > kRoom) {
          queue.OnRefused(*turn, At(i));
          continue;
        }
        used += need;
        held.push_back(need);
        admitted = admitted || turn->value() == 1;
        queue.OnAdmitted(*turn, At(i));
      }
    }
    EXPECT_TRUE(admitted) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shardline
