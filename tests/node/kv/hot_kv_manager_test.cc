#include "node/kv/hot_kv_manager.h"

#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

AttemptKey Key(uint64_t session, uint64_t epoch = 1) {
  return {.session = SessionId(session), .epoch = Epoch(epoch)};
}

std::vector<int32_t> TableOf(HotKvManager& kv, const AttemptKey& key) {
  const auto view = kv.Resolve(key, kv.LengthOf(key));
  EXPECT_THAT(view, IsOk());
  return {view->begin(), view->end()};
}

TEST(HotKvManager, TakesAllPagesOfAReservationOrNone) {
  HotKvManager kv(4096);
  ASSERT_THAT(kv.Reserve(Key(1), 4093 * kPageTokens), IsOk());
  EXPECT_THAT(kv.Reserve(Key(2), 6 * kPageTokens + 1),
              StatusHas(absl::StatusCode::kResourceExhausted,
                        HasSubstr("pool has 3 of 4,096 pages free, needs 7")));
  EXPECT_EQ(kv.pages_free(), 3);
  EXPECT_THAT(kv.Reserve(Key(2), 3 * kPageTokens), IsOk());
  EXPECT_EQ(kv.pages_free(), 0);
  kv.CheckConservation();
}

TEST(HotKvManager, CountsAPartOfAPageAsAPage) {
  EXPECT_EQ(HotKvManager::PagesFor(1), 1);
  EXPECT_EQ(HotKvManager::PagesFor(16), 1);
  EXPECT_EQ(HotKvManager::PagesFor(17), 2);
  EXPECT_EQ(HotKvManager::PagesFor(std::numeric_limits<int32_t>::max()), 134217728);
}

TEST(HotKvManager, RefusesImpossibleReservations) {
  HotKvManager kv(4);
  EXPECT_THAT(kv.Reserve(Key(1), 0), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(kv.Reserve(Key(1), -5), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(kv.Reserve(Key(1), std::numeric_limits<int32_t>::max()),
              FailsWith(FailureKind::kKvExhausted));
  ASSERT_THAT(kv.Reserve(Key(1), 1), IsOk());
  EXPECT_THAT(kv.Reserve(Key(1), 1), FailsWith(FailureKind::kStepConflict));
}

TEST(HotKvManager, HandsOutPagesInOneOrder) {
  HotKvManager kv(8);
  ASSERT_THAT(kv.Reserve(Key(1), 3 * kPageTokens), IsOk());
  ASSERT_THAT(kv.Reserve(Key(2), 2 * kPageTokens), IsOk());
  EXPECT_THAT(TableOf(kv, Key(1)), ElementsAre(0, 1, 2));
  EXPECT_THAT(TableOf(kv, Key(2)), ElementsAre(3, 4));
  kv.Release(Key(1));
  ASSERT_THAT(kv.Reserve(Key(3), 4 * kPageTokens), IsOk());
  EXPECT_THAT(TableOf(kv, Key(3)), ElementsAre(0, 1, 2, 5));
}

TEST(HotKvManager, AppendedRowsAreInvisibleUntilCommitted) {
  HotKvManager kv(4);
  ASSERT_THAT(kv.Reserve(Key(1), 32), IsOk());
  ASSERT_THAT(kv.Append(Key(1), 0, 20), IsOk());
  EXPECT_EQ(kv.LengthOf(Key(1)), 0);
  EXPECT_THAT(kv.Resolve(Key(1), 20), FailsWith(FailureKind::kStepConflict));
  kv.Commit(Key(1), 20);
  EXPECT_THAT(kv.Resolve(Key(1), 20), IsOk());
}

TEST(HotKvManager, AppendsRunAheadOfCommits) {
  HotKvManager kv(4);
  ASSERT_THAT(kv.Reserve(Key(1), 32), IsOk());
  ASSERT_THAT(kv.Append(Key(1), 0, 10), IsOk());
  ASSERT_THAT(kv.Append(Key(1), 10, 10), IsOk());
  kv.Commit(Key(1), 10);
  kv.Abandon(Key(1), 10);
  EXPECT_EQ(kv.LengthOf(Key(1)), 10);
  EXPECT_THAT(kv.Append(Key(1), 10, 22), IsOk()) << "the abandoned rows are free again";
}

TEST(HotKvManager, RefusesAnAppendThatDoesNotFit) {
  HotKvManager kv(4);
  ASSERT_THAT(kv.Reserve(Key(1), 17), IsOk());
  EXPECT_THAT(kv.Append(Key(9), 0, 1), FailsWith(FailureKind::kCacheMiss));
  EXPECT_THAT(kv.Append(Key(1), 1, 1), FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(kv.Append(Key(1), -1, 1), FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(kv.Append(Key(1), 0, 0), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(kv.Append(Key(1), 0, 33), FailsWith(FailureKind::kKvExhausted));
  EXPECT_THAT(kv.Append(Key(1), 0, std::numeric_limits<int32_t>::max()),
              FailsWith(FailureKind::kKvExhausted));
  EXPECT_THAT(kv.Append(Key(1), std::numeric_limits<int32_t>::max(), 1),
              FailsWith(FailureKind::kStepConflict));
  EXPECT_THAT(kv.Append(Key(1), 0, 32), IsOk()) << "no refusal changed anything";
}

TEST(HotKvManager, AReleaseWaitsForTheLastPin) {
  HotKvManager kv(4);
  ASSERT_THAT(kv.Reserve(Key(1), 32), IsOk());
  kv.Pin(Key(1));
  kv.Pin(Key(1));
  const ReleasedPages released = kv.Release(Key(1));
  EXPECT_EQ(released.page_count, 0);
  EXPECT_TRUE(released.pinned_remain);
  EXPECT_EQ(kv.pages_free(), 2);
  EXPECT_THAT(kv.Append(Key(1), 0, 1), FailsWith(FailureKind::kCacheMiss));
  EXPECT_TRUE(kv.Unpin(Key(1)).pinned_remain);
  kv.CheckConservation();
  EXPECT_EQ(kv.Unpin(Key(1)).page_count, 2);
  EXPECT_EQ(kv.pages_free(), 4);
}

TEST(HotKvManager, ReleasingTwiceFreesOnce) {
  HotKvManager kv(4);
  ASSERT_THAT(kv.Reserve(Key(1), 32), IsOk());
  EXPECT_EQ(kv.Release(Key(1)).page_count, 2);
  EXPECT_EQ(kv.Release(Key(1)).page_count, 0);
  EXPECT_EQ(kv.Release(Key(7)).page_count, 0);
  kv.CheckConservation();
}

// The manager against the plainest model of it: sets of pages, and three integers an attempt.
class Model {
 public:
  struct Holding {
    std::vector<int32_t> pages;
    std::vector<int32_t> appended;
    int32_t length = 0;
    int32_t pins = 0;
    bool released = false;
  };

  explicit Model(int32_t pages_total) : free_count_(pages_total) {}

  bool MayReserve(const AttemptKey& key, int32_t tokens) const {
    return tokens >= 1 && !holdings_.contains(key) && (tokens + 15) / 16 <= free_count_;
  }
  int32_t free_count_;
  std::map<AttemptKey, Holding> holdings_;
};

TEST(HotKvManager, AgreesWithItsModelUnderRandomOperations) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int32_t low, int32_t high) {
      return std::uniform_int_distribution<int32_t>(low, high)(random);
    };
    HotKvManager kv(24);
    Model model(24);
    for (int step = 0; step < 1000; ++step) {
      const AttemptKey key =
          Key(static_cast<uint64_t>(pick(1, 5)), static_cast<uint64_t>(pick(1, 2)));
      const auto it = model.holdings_.find(key);
      const bool lives = it != model.holdings_.end() && !it->second.released;
      switch (pick(0, 6)) {
        case 0: {
          const int32_t tokens = pick(0, 130);
          const bool may = model.MayReserve(key, tokens);
          ASSERT_EQ(kv.Reserve(key, tokens).ok(), may) << "seed " << seed << " step " << step;
          if (!may) break;
          model.holdings_[key].pages = TableOf(kv, key);
          ASSERT_EQ(model.holdings_[key].pages.size(), static_cast<size_t>((tokens + 15) / 16));
          model.free_count_ -= (tokens + 15) / 16;
          break;
        }
        case 1: {
          const int32_t count = pick(0, 40);
          int32_t length = pick(0, 3) == 0 ? pick(0, 60) : 0;
          bool may = false;
          if (lives) {
            int32_t total = it->second.length;
            for (const int32_t n : it->second.appended) total += n;
            if (length == 0) length = total;
            may = count >= 1 && length == total &&
                  total + count <= static_cast<int32_t>(it->second.pages.size()) * 16;
          }
          ASSERT_EQ(kv.Append(key, length, count).ok(), may) << "seed " << seed;
          if (may) it->second.appended.push_back(count);
          break;
        }
        case 2:
          if (lives && !it->second.appended.empty()) {
            kv.Commit(key, it->second.appended.front());
            it->second.length += it->second.appended.front();
            it->second.appended.erase(it->second.appended.begin());
          }
          break;
        case 3:
          if (lives && !it->second.appended.empty()) {
            kv.Abandon(key, it->second.appended.back());
            it->second.appended.pop_back();
          }
          break;
        case 4:
          if (lives) {
            kv.Pin(key);
            ++it->second.pins;
          }
          break;
        case 5:
          if (it != model.holdings_.end() && it->second.pins > 0) {
            const int32_t freed = kv.Unpin(key).page_count;
            const bool frees = --it->second.pins == 0 && it->second.released;
            ASSERT_EQ(freed, frees ? static_cast<int32_t>(it->second.pages.size()) : 0);
            model.free_count_ += freed;
            if (frees) model.holdings_.erase(it);
          }
          break;
        default: {
          const ReleasedPages released = kv.Release(key);
          if (it == model.holdings_.end()) {
            ASSERT_EQ(released.page_count, 0);
            break;
          }
          it->second.released = true;
          ASSERT_EQ(released.pinned_remain, it->second.pins > 0);
          model.free_count_ += released.page_count;
          if (it->second.pins == 0) model.holdings_.erase(it);
        }
      }
      kv.CheckConservation();
      ASSERT_EQ(kv.pages_free(), model.free_count_) << "seed " << seed << " step " << step;
      std::set<int32_t> owned;
      for (const auto& [held, holding] : model.holdings_) {
        ASSERT_EQ(kv.LengthOf(held), holding.length);
        for (const int32_t page : holding.pages) ASSERT_TRUE(owned.insert(page).second);
      }
    }
  }
}

TEST(HotKvManager, RewindTakesBackTheNewestRowsAlone) {
  HotKvManager kv(4);
  const AttemptKey key{SessionId(1), Epoch(1)};
  EXPECT_THAT(kv.Rewind(key, 1), FailsWith(FailureKind::kCacheMiss));
  ASSERT_THAT(kv.Reserve(key, 40), IsOk());
  ASSERT_THAT(kv.Append(key, 0, 20), IsOk());
  EXPECT_THAT(kv.Rewind(key, 1), FailsWith(FailureKind::kStepConflict)) << "behind a running step";
  kv.Commit(key, 20);
  for (const int32_t count : {21, -1, 0x7fffffff}) {
    EXPECT_THAT(kv.Rewind(key, count), FailsWith(FailureKind::kStepConflict)) << count;
  }
  EXPECT_THAT(kv.Rewind(key, 6), IsOk());
  EXPECT_EQ(kv.LengthOf(key), 14);
  EXPECT_THAT(kv.Append(key, 14, 2), IsOk());
  kv.CheckConservation();
  kv.Release(key);
  EXPECT_THAT(kv.Rewind(key, 1), FailsWith(FailureKind::kCacheMiss));
}

}  // namespace
}  // namespace shardline
