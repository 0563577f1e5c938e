// What attempts share: reservations that find cached pages, and pages that are named for others.

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/kv/hot_kv_manager.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::HasSubstr;

AttemptKey Key(uint64_t session) { return {.session = SessionId(session), .epoch = Epoch(1)}; }

// Of `count` pages of a text that begins like every other below `fork`.
std::vector<PrefixKey> Text(int32_t count, int32_t fork = 1000, int32_t which = 0) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count * kPageTokens; ++i) {
    tokens.push_back(i / kPageTokens < fork ? i : i + 1000 * (which + 1));
  }
  return PrefixChain(PrefixRoot(ModelId("m"), NumericsId("n"), "t"), tokens, kPageTokens);
}

std::vector<int32_t> TableOf(HotKvManager& kv, const AttemptKey& key) {
  const auto view = kv.Resolve(key, kv.LengthOf(key));
  EXPECT_THAT(view, IsOk());
  return {view->begin(), view->end()};
}

// Computes everything that `key` has keys for, from `start` on, and names it.
void Compute(HotKvManager& kv, const AttemptKey& key, const std::vector<PrefixKey>& names,
             int32_t start = 0) {
  const int32_t count = static_cast<int32_t>(names.size()) * kPageTokens + 1 - start;
  ASSERT_THAT(kv.Append(key, start, count), IsOk());
  kv.Commit(key, count);
  for (size_t page = 0; page < names.size(); ++page) {
    kv.Publish(key, static_cast<int32_t>(page), names[page]);
  }
}

TEST(PrefixReservation, FindsAndHoldsInOneOperation) {
  HotKvManager kv(16);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(1)), 0);
  Compute(kv, Key(1), Text(4));
  const std::vector<int32_t> first = TableOf(kv, Key(1));
  ASSERT_THAT(kv.Reserve(Key(2), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(2)), 64);
  EXPECT_EQ(kv.pages_free(), 10) << "only the fifth page is its own";
  kv.Release(Key(1));
  EXPECT_EQ(kv.pages_cached_held(), 4) << "the other one still reads them";
  kv.Release(Key(2));
  EXPECT_EQ(kv.pages_free(), 16);
  EXPECT_EQ(kv.pages_cached_idle(), 4);
  kv.CheckConservation();
  const PrefixStats stats = kv.prefix_stats();
  EXPECT_EQ(stats.lookups, 2U);
  EXPECT_EQ(stats.hits, 1U);
  EXPECT_EQ(stats.hit_tokens, 64U);
  EXPECT_EQ(stats.published, 4U);
}

TEST(PrefixReservation, NothingIsFoundBeforeItIsCommitted) {
  HotKvManager kv(16);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  ASSERT_THAT(kv.Append(Key(1), 0, 40), IsOk());
  EXPECT_FALSE(kv.Publish(Key(1), 0, Text(4)[0]));
  kv.Commit(Key(1), 40);
  EXPECT_TRUE(kv.Publish(Key(1), 0, Text(4)[0]));
  EXPECT_TRUE(kv.Publish(Key(1), 1, Text(4)[1]));
  EXPECT_FALSE(kv.Publish(Key(1), 2, Text(4)[2])) << "only half of it is there";
  EXPECT_FALSE(kv.Publish(Key(1), 1, Text(4)[3])) << "it has its name";
  EXPECT_FALSE(kv.Publish(Key(1), -1, Text(4)[3]));
  EXPECT_FALSE(kv.Publish(Key(9), 0, Text(4)[3]));
  ASSERT_THAT(kv.Reserve(Key(2), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(2)), 32);
  kv.CheckConservation();
}

TEST(PrefixReservation, BeginsAtTheEndOfAnyCachedPage) {
  HotKvManager kv(16);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  Compute(kv, Key(1), Text(4));
  for (uint64_t pages = 0; pages <= 4; ++pages) {
    const AttemptKey key = Key(10 + pages);
    const auto start = static_cast<int32_t>(pages) * kPageTokens;
    ASSERT_THAT(kv.Reserve(key, 80, Text(4)), IsOk());
    EXPECT_THAT(kv.Append(key, start + 1, 4), FailsWith(FailureKind::kStepConflict));
    EXPECT_THAT(kv.Append(key, 80, 4), FailsWith(FailureKind::kStepConflict));
    EXPECT_THAT(kv.Append(key, -16, 4), FailsWith(FailureKind::kStepConflict));
    ASSERT_THAT(kv.Append(key, start, 10), IsOk());
    EXPECT_EQ(kv.LengthOf(key), start) << "what was found is visible, and no more";
    EXPECT_EQ(kv.TakenLengthOf(key), start + 10);
    kv.Commit(key, 10);
    EXPECT_THAT(kv.Append(key, start, 4), FailsWith(FailureKind::kStepConflict)) << "it has begun";
    kv.CheckConservation();
    kv.Release(key);
  }
}

TEST(PrefixReservation, KnowsWhichRowsMustNotBeWritten) {
  HotKvManager kv(16);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.KeptRows(Key(1), 0, 40), 0);
  Compute(kv, Key(1), Text(4));
  ASSERT_THAT(kv.Reserve(Key(2), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.KeptRows(Key(2), 16, 20), 20);
  EXPECT_EQ(kv.KeptRows(Key(2), 48, 20), 16);
  EXPECT_EQ(kv.KeptRows(Key(2), 64, 20), 0);
}

TEST(PrefixReservation, NothingIsTakenBackFromAPageWithAName) {
  HotKvManager kv(16);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(2)), IsOk());
  Compute(kv, Key(1), Text(2));
  EXPECT_THAT(kv.Rewind(Key(1), 2), FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(kv.Rewind(Key(1), -1), FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(kv.Rewind(Key(9), 1), FailsWith(FailureKind::kCacheMiss));
  EXPECT_THAT(kv.Rewind(Key(1), 1), IsOk());
  EXPECT_EQ(kv.LengthOf(Key(1)), 32);
  ASSERT_THAT(kv.Append(Key(1), 32, 3), IsOk());
  EXPECT_THAT(kv.Rewind(Key(1), 1), FailsWith(FailureKind::kStepConflict));
}

TEST(PrefixReservation, WhoComputedTheSameKeepsItsOwnPage) {
  HotKvManager kv(16);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  ASSERT_THAT(kv.Reserve(Key(2), 80, Text(4)), IsOk());
  Compute(kv, Key(1), Text(4));
  Compute(kv, Key(2), Text(4));
  EXPECT_EQ(kv.prefix_stats().published, 4U);
  kv.Release(Key(2));
  EXPECT_EQ(kv.pages_cached_idle(), 0);
  kv.Release(Key(1));
  EXPECT_EQ(kv.pages_cached_idle(), 4);
  kv.CheckConservation();
}

TEST(PrefixReservation, ARefusalNamesWhatIsShortAndHoldsNothing) {
  HotKvManager kv(8);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  Compute(kv, Key(1), Text(4));
  kv.Release(Key(1));
  ASSERT_THAT(kv.Reserve(Key(2), 48), IsOk());
  // Of the 5 pages that can be reserved, it would find 4.
  EXPECT_THAT(kv.Reserve(Key(3), 112, Text(4)),
              StatusHas(absl::StatusCode::kResourceExhausted,
                        HasSubstr("pool has 1 of 8 pages free, needs 3 beside the 4 that are "
                                  "cached")));
  EXPECT_EQ(kv.pages_free(), 5);
  EXPECT_EQ(kv.pages_cached_held(), 0);
  EXPECT_EQ(kv.prefix_stats().lookups, 1U) << "that was the first one's";
  EXPECT_THAT(kv.Reserve(Key(3), 65, Text(5)), FailsWith(FailureKind::kInvalidRequest));
  kv.CheckConservation();
}

TEST(PrefixReservation, SharingMakesRoomForMore) {
  HotKvManager kv(96);
  ASSERT_THAT(kv.Reserve(Key(1), 61 * kPageTokens, Text(59)), IsOk());
  Compute(kv, Key(1), Text(59));
  uint64_t open = 1;
  while (kv.Reserve(Key(open + 1), 61 * kPageTokens, Text(59)).ok()) ++open;
  EXPECT_EQ(open, 18U) << "59 pages once, and 2 for each";
  EXPECT_EQ(kv.pages_free(), 1);
  for (uint64_t session = 1; session <= open; ++session) kv.Release(Key(session));
  EXPECT_EQ(kv.pages_free(), 96);
  kv.CheckConservation();
}

TEST(PrefixReservation, WhatNobodyHoldsMakesWayFromItsTail) {
  HotKvManager kv(8);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  Compute(kv, Key(1), Text(4));
  kv.Release(Key(1));
  ASSERT_THAT(kv.Reserve(Key(2), 96), IsOk());
  EXPECT_EQ(kv.prefix_stats().evictions, 2U);
  kv.Release(Key(2));
  ASSERT_THAT(kv.Reserve(Key(4), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(4)), 32);
  Compute(kv, Key(4), Text(4), 32);
  kv.Release(Key(4));
  EXPECT_EQ(kv.pages_cached_idle(), 4) << "refilled";
  kv.CheckConservation();
}

TEST(PrefixReservation, AReleasedAttemptHoldsItsPagesUntilItsStepEnds) {
  HotKvManager kv(8);
  ASSERT_THAT(kv.Reserve(Key(1), 80, Text(4)), IsOk());
  Compute(kv, Key(1), Text(4));
  kv.Pin(Key(1));
  EXPECT_TRUE(kv.Release(Key(1)).pinned_remain);
  EXPECT_EQ(kv.pages_cached_idle(), 0);
  EXPECT_FALSE(kv.Publish(Key(1), 4, Text(5)[4]));
  EXPECT_EQ(kv.Unpin(Key(1)).page_count, 5);
  EXPECT_EQ(kv.pages_cached_idle(), 4);
}

TEST(PrefixReservation, APagePassedOverIsStillABeginningForOthers) {
  HotKvManager kv(8);
  ASSERT_THAT(kv.Reserve(Key(1), 80), IsOk());
  ASSERT_THAT(kv.Append(Key(1), 0, 64), IsOk());
  kv.Commit(Key(1), 64);
  EXPECT_TRUE(kv.Publish(Key(1), 2, Text(4)[2]));
  EXPECT_FALSE(kv.Publish(Key(1), 0, Text(4)[0]));
  kv.Release(Key(1));
  ASSERT_THAT(kv.Reserve(Key(2), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(2)), 0);
  Compute(kv, Key(2), Text(4));
  ASSERT_THAT(kv.Reserve(Key(3), 80, Text(4)), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(3)), 64);
  kv.CheckConservation();
}

TEST(PrefixReservation, AFullSizedPoolKeepsItsBooks) {
  constexpr int32_t kPages = 65536;
  HotKvManager kv(kPages);
  const std::vector<PrefixKey> names = Text(kPages - 1);
  ASSERT_THAT(kv.Reserve(Key(1), kPages * kPageTokens, names), IsOk());
  Compute(kv, Key(1), names);
  kv.Release(Key(1));
  EXPECT_EQ(kv.pages_cached_idle(), kPages - 1);
  ASSERT_THAT(kv.Reserve(Key(2), kPages * kPageTokens, names), IsOk());
  EXPECT_EQ(kv.CachedTokensOf(Key(2)), (kPages - 1) * kPageTokens);
  kv.Release(Key(2));
  ASSERT_THAT(kv.Reserve(Key(3), kPages * kPageTokens), IsOk());
  EXPECT_EQ(kv.prefix_stats().evictions, static_cast<uint64_t>(kPages - 1));
  kv.CheckConservation();
}

// Attempts over a few texts with common beginnings, each page stamped with what was computed into
// it: whatever a reservation finds must hold what its key says.
TEST(PrefixReservation, WhatIsFoundIsWhatTheKeySaysUnderRandomOperations) {
  constexpr int32_t kPages = 20;
  struct Live {
    std::vector<PrefixKey> text;
    int32_t committed = -1;  // Pages; -1: not begun.
  };
  uint64_t hits = 0;
  uint64_t evictions = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int32_t low, int32_t high) {
      return std::uniform_int_distribution<int32_t>(low, high)(random);
    };
    HotKvManager kv(kPages);
    std::map<int32_t, PrefixKey> content;  // Of each page that was written.
    std::map<AttemptKey, Live> live;
    uint64_t session_next = 1;
    for (int step = 0; step < 300; ++step) {
      auto it = live.begin();
      if (!live.empty()) std::advance(it, pick(0, static_cast<int32_t>(live.size()) - 1));
      switch (pick(0, 3)) {
        case 0: {
          const AttemptKey key = Key(session_next++);
          const std::vector<PrefixKey> text = Text(pick(1, 8), pick(0, 8), pick(0, 2));
          const auto page_count = static_cast<int32_t>(text.size()) + 1;
          const bool granted = kv.Reserve(key, page_count * kPageTokens, text).ok();
          if (!granted) break;
          const std::vector<int32_t> table = TableOf(kv, key);
          for (int32_t page = 0; page < kv.CachedTokensOf(key) / kPageTokens; ++page) {
            const auto at = static_cast<size_t>(page);
            ASSERT_EQ(content.at(table[at]), text[at]) << "seed " << seed << " step " << step;
          }
          live[key] = {.text = text};
          break;
        }
        case 1:
        case 2: {
          if (live.empty()) break;
          Live& attempt = it->second;
          const AttemptKey key = it->first;
          const int32_t cached = kv.CachedTokensOf(key) / kPageTokens;
          if (attempt.committed < 0) attempt.committed = pick(0, cached);
          const auto total = static_cast<int32_t>(attempt.text.size());
          if (attempt.committed == total) break;
          const int32_t count = pick(1, total - attempt.committed);
          const int32_t position = attempt.committed * kPageTokens;
          ASSERT_THAT(kv.Append(key, position, count * kPageTokens), IsOk());
          const std::vector<int32_t> table = [&] {
            const auto view = kv.Resolve(key, position);
            return std::vector<int32_t>(view->begin(), view->end());
          }();
          const int32_t kept = kv.KeptRows(key, position, count * kPageTokens);
          for (int32_t page = attempt.committed; page < attempt.committed + count; ++page) {
            const auto at = static_cast<size_t>(page);
            if ((page - attempt.committed) * kPageTokens >= kept) {
              content[table[at]] = attempt.text[at];
            }
            ASSERT_EQ(content.at(table[at]), attempt.text[at]);
          }
          if (pick(0, 3) == 0) {
            kv.Abandon(key, count * kPageTokens);
            break;
          }
          kv.Commit(key, count * kPageTokens);
          attempt.committed += count;
          for (int32_t page = kv.NamedPagesOf(key); page < attempt.committed; ++page) {
            kv.Publish(key, page, attempt.text[static_cast<size_t>(page)]);
          }
          break;
        }
        default:
          if (live.empty()) break;
          kv.Release(it->first);
          live.erase(it);
      }
      ASSERT_THAT(kv.Audit(), IsOk()) << "seed " << seed << " step " << step;
      // Nobody else may write what an attempt reads.
      for (const auto& [key, attempt] : live) {
        if (attempt.committed < 0) continue;
        const std::vector<int32_t> table = TableOf(kv, key);
        for (int32_t page = 0; page < attempt.committed; ++page) {
          const auto at = static_cast<size_t>(page);
          ASSERT_EQ(content.at(table[at]), attempt.text[at]) << "seed " << seed << " step " << step;
        }
      }
    }
    hits += kv.prefix_stats().hits;
    evictions += kv.prefix_stats().evictions;
    for (const auto& [key, attempt] : live) kv.Release(key);
    ASSERT_EQ(kv.pages_free(), kPages);
    kv.CheckConservation();
  }
  EXPECT_GT(hits, 1000U);
  EXPECT_GT(evictions, 1000U);
}

}  // namespace
}  // namespace shardline
