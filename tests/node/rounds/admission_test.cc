#include "node/rounds/admission.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace shardline {
namespace {

AttemptKey KeyOf(uint64_t session) { return {SessionId(session), Epoch(1)}; }

// The sessions that are admitted in turn while slots are free.
std::vector<uint64_t> Take(SlotAdmission& admission, size_t slots_free) {
  std::vector<uint64_t> taken;
  while (const std::optional<AttemptKey> key = admission.TakeNext(slots_free)) {
    taken.push_back(key->session.value());
    --slots_free;
  }
  return taken;
}

TEST(Admission, AdmitsWhileSlotsAreFreeAndThenLetsWait) {
  SlotAdmission admission({});
  EXPECT_EQ(admission.Judge("a", 1).verdict, AdmissionVerdict::kAdmit);
  EXPECT_EQ(admission.Judge("a", 0).verdict, AdmissionVerdict::kWait);
  admission.Enqueue(KeyOf(1), "a");
  EXPECT_EQ(Take(admission, 0), std::vector<uint64_t>());
  EXPECT_EQ(Take(admission, 1), std::vector<uint64_t>({1}));
}

TEST(Admission, ServesTenantsInTurnAndEachInItsOrder) {
  SlotAdmission admission({});
  for (uint64_t session = 1; session <= 4; ++session) admission.Enqueue(KeyOf(session), "greedy");
  admission.Enqueue(KeyOf(5), "late");
  admission.Enqueue(KeyOf(6), "later");
  EXPECT_EQ(Take(admission, 6), std::vector<uint64_t>({1, 5, 6, 2, 3, 4}));
}

TEST(Admission, SkipsATenantThatRunsAsManyAsItMay) {
  SlotAdmission admission({.tenant_running_max = 2});
  for (uint64_t session = 1; session <= 4; ++session) admission.Enqueue(KeyOf(session), "a");
  EXPECT_EQ(Take(admission, 8), std::vector<uint64_t>({1, 2}));
  EXPECT_EQ(admission.Judge("a", 6).verdict, AdmissionVerdict::kSkip);
  EXPECT_EQ(admission.Judge("b", 6).verdict, AdmissionVerdict::kAdmit);
  admission.Enqueue(KeyOf(5), "b");
  EXPECT_EQ(Take(admission, 6), std::vector<uint64_t>({5})) << "others may pass it";
  admission.LeaveSlot("a");
  EXPECT_EQ(Take(admission, 6), std::vector<uint64_t>({3}));
}

TEST(Admission, RefusesWithTheShortageNamed) {
  SlotAdmission admission({.queue_max = 3, .tenant_queue_max = 2});
  admission.Enqueue(KeyOf(1), "x");
  admission.Enqueue(KeyOf(2), "x");
  const SlotAdmission::Judgement tenant = admission.Judge("x", 0);
  EXPECT_EQ(tenant.verdict, AdmissionVerdict::kRefuse);
  EXPECT_EQ(tenant.shortage, "2 requests of tenant 'x' wait, the most it may have; 2 wait in all");
  admission.Enqueue(KeyOf(3), "y");
  const SlotAdmission::Judgement all = admission.Judge("x", 0);
  EXPECT_EQ(all.verdict, AdmissionVerdict::kRefuse);
  EXPECT_EQ(all.shortage, "3 requests wait, the most there may be; tenant 'x' has 2 of them");
}

TEST(Admission, WhoLeavesTheQueueIsNotAdmitted) {
  SlotAdmission admission({});
  for (uint64_t session = 1; session <= 3; ++session) admission.Enqueue(KeyOf(session), "a");
  admission.LeaveQueue(KeyOf(2), "a");
  EXPECT_EQ(admission.queued_count(), 2U);
  EXPECT_EQ(Take(admission, 3), std::vector<uint64_t>({1, 3}));
}

}  // namespace
}  // namespace shardline
