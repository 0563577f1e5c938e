// The guards of cached prefixes, each seen to be missed when it is gone.

#include <vector>

#include "base/planted_bug.h"
#include "gtest/gtest.h"
#include "node/kv/hot_kv_manager.h"

namespace shardline {
namespace {

class Plant {
 public:
  explicit Plant(PlantedBug bug) { planted_bug = bug; }
  ~Plant() { planted_bug = PlantedBug::kNone; }
};

AttemptKey Key(uint64_t session) { return {.session = SessionId(session), .epoch = Epoch(1)}; }

std::vector<PrefixKey> Names(int32_t count) {
  return PrefixChain(PrefixKey(), std::vector<int32_t>(static_cast<size_t>(count * kPageTokens)),
                     kPageTokens);
}

// Two pages are cached and held again; then somebody needs all the others.
bool HeldPagesStay() {
  HotKvManager kv(4);
  (void)kv.Reserve(Key(1), 48, Names(2));
  (void)kv.Append(Key(1), 0, 33);
  kv.Commit(Key(1), 33);
  for (int32_t page = 0; page < 2; ++page) {
    kv.Publish(Key(1), page, Names(2)[static_cast<size_t>(page)]);
  }
  kv.Release(Key(1));
  (void)kv.Reserve(Key(2), 48, Names(2));
  (void)kv.Reserve(Key(3), 16);
  const bool is_right = kv.Audit().ok();
  for (uint64_t session = 2; session <= 3; ++session) kv.Release(Key(session));
  return is_right && kv.pages_free() == 4;
}

bool NothingIsFoundTooEarly() {
  HotKvManager kv(4);
  (void)kv.Reserve(Key(1), 32, Names(1));
  (void)kv.Append(Key(1), 0, 17);
  return !kv.Publish(Key(1), 0, Names(1)[0]);
}

TEST(KvPlanted, AHeldPageIsEvictedOnlyByTheBug) {
  EXPECT_TRUE(HeldPagesStay());
  const Plant plant(PlantedBug::kPinnedPageEvicted);
  EXPECT_FALSE(HeldPagesStay());
}

TEST(KvPlanted, AnUncommittedPageIsFoundOnlyByTheBug) {
  EXPECT_TRUE(NothingIsFoundTooEarly());
  const Plant plant(PlantedBug::kCachedUncomputed);
  EXPECT_FALSE(NothingIsFoundTooEarly());
}

}  // namespace
}  // namespace shardline
