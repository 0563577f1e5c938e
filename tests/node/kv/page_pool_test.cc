#include "node/kv/page_pool.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

PrefixKey Name(uint8_t chain, uint8_t index) {
  PrefixKey key;
  key.bytes[0] = static_cast<unsigned char>(chain + 1);
  key.bytes[1] = index;
  return key;
}

PrefixKey ParentOf(uint8_t chain, uint8_t index) {
  return index == 0 ? PrefixKey() : Name(chain, static_cast<uint8_t>(index - 1));
}

std::vector<PrefixKey> Chain(uint8_t chain, uint8_t count) {
  std::vector<PrefixKey> keys;
  for (uint8_t i = 0; i < count; ++i) keys.push_back(Name(chain, i));
  return keys;
}

// Takes `count` pages and names them as the chain's first.
std::vector<int32_t> Fill(PagePool& pool, uint8_t chain, uint8_t count) {
  std::vector<int32_t> pages;
  for (uint8_t i = 0; i < count; ++i) {
    pages.push_back(pool.Take());
    EXPECT_TRUE(pool.Publish(pages.back(), Name(chain, i), ParentOf(chain, i)));
  }
  return pages;
}

void DropAll(PagePool& pool, const std::vector<int32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) pool.Drop(*page);
}

TEST(PagePool, FindsTheLongestRunFromTheFirstKeyOn) {
  PagePool pool(8);
  const std::vector<int32_t> pages = Fill(pool, 0, 3);
  EXPECT_EQ(pool.Find(Chain(0, 2)), std::vector<int32_t>(pages.begin(), pages.begin() + 2));
  EXPECT_EQ(pool.Find(Chain(0, 5)), pages);
  EXPECT_THAT(pool.Find(Chain(1, 2)), IsEmpty());
  EXPECT_THAT(pool.Find(std::vector<PrefixKey>{Name(1, 0), Name(0, 0)}), IsEmpty());
}

TEST(PagePool, ANameBelongsToOnePage) {
  PagePool pool(4);
  Fill(pool, 0, 1);
  const int32_t copy = pool.Take();
  EXPECT_FALSE(pool.Publish(copy, Name(0, 0), {}));
  EXPECT_TRUE(pool.Drop(copy));
  EXPECT_EQ(pool.pages_idle(), 0);
  EXPECT_THAT(pool.Find(Chain(0, 1)), ElementsAre(0));
}

TEST(PagePool, ASharedPageIsLetGoByItsLastHolder) {
  PagePool pool(4);
  const int32_t page = Fill(pool, 0, 1)[0];
  pool.Share(page);
  EXPECT_FALSE(pool.Drop(page));
  EXPECT_EQ(pool.pages_available(), 3);
  EXPECT_TRUE(pool.Drop(page));
  EXPECT_EQ(pool.pages_available(), 4);
  EXPECT_EQ(pool.pages_idle(), 1);
}

TEST(PagePool, EvictsWhatWasLetGoFirstFromItsTail) {
  PagePool pool(6);
  const std::vector<int32_t> a = Fill(pool, 0, 3);
  const std::vector<int32_t> b = Fill(pool, 1, 3);
  DropAll(pool, b);
  DropAll(pool, a);
  std::vector<int32_t> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(pool.Take());
  EXPECT_THAT(taken, ElementsAre(b[2], b[1], b[0], a[2], a[1], a[0]));
  EXPECT_EQ(pool.evictions(), 6U);
}

TEST(PagePool, AHitMakesAPrefixYoungAgain) {
  PagePool pool(4);
  const std::vector<int32_t> a = Fill(pool, 0, 2);
  const std::vector<int32_t> b = Fill(pool, 1, 2);
  DropAll(pool, a);
  DropAll(pool, b);
  for (const int32_t page : pool.Find(Chain(0, 2))) pool.Share(page);
  DropAll(pool, a);
  EXPECT_EQ(pool.Take(), b[1]);
}

TEST(PagePool, ACommonBeginningOutlivesItsContinuations) {
  PagePool pool(6);
  const std::vector<int32_t> trunk = Fill(pool, 0, 2);
  const std::vector<int32_t> left = {pool.Take(), pool.Take()};
  ASSERT_TRUE(pool.Publish(left[0], Name(1, 0), Name(0, 1)));
  ASSERT_TRUE(pool.Publish(left[1], Name(1, 1), Name(1, 0)));
  const int32_t right = pool.Take();
  ASSERT_TRUE(pool.Publish(right, Name(2, 0), Name(0, 1)));
  DropAll(pool, trunk);
  DropAll(pool, left);
  pool.Drop(right);
  ASSERT_EQ(pool.pages_available(), 6);
  std::vector<int32_t> taken;
  for (int i = 0; i < 6; ++i) taken.push_back(pool.Take());
  EXPECT_THAT(taken, ElementsAre(5, left[1], left[0], right, trunk[1], trunk[0]));
}

TEST(PagePool, AHeldPageIsNeverTaken) {
  PagePool pool(3);
  const std::vector<int32_t> pages = Fill(pool, 0, 3);
  DropAll(pool, pages);
  pool.Share(pages[0]);
  EXPECT_EQ(pool.pages_available(), 2);
  EXPECT_EQ(pool.Take(), pages[2]);
  EXPECT_EQ(pool.Take(), pages[1]);
  EXPECT_EQ(pool.pages_available(), 0);
}

// A page that somebody made for himself while the one of its name lay idle: what is held does not
// keep what it continues.
TEST(PagePool, WhatIsIdleCanAlwaysBeTaken) {
  PagePool pool(3);
  const std::vector<int32_t> first = Fill(pool, 0, 2);
  const int32_t next = pool.Take();
  ASSERT_TRUE(pool.Publish(next, Name(0, 2), Name(0, 1)));
  DropAll(pool, first);
  ASSERT_EQ(pool.pages_available(), 2);
  EXPECT_EQ(pool.Take(), first[1]);
  EXPECT_EQ(pool.Take(), first[0]);
  EXPECT_EQ(pool.pages_available(), 0);
}

// The plainest pool: every idle page is looked at when one must go.
class Model {
 public:
  explicit Model(int32_t pages) : pages_(static_cast<size_t>(pages)) {
    for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
  }
  struct Page {
    int holders = 0;
    PrefixKey key;
    PrefixKey parent;
    int let_go = 0;
  };
  bool Idle(const Page& page) const { return page.holders == 0 && !page.key.empty(); }
  int Available() const {
    return static_cast<int>(free_.size()) +
           static_cast<int>(std::count_if(pages_.begin(), pages_.end(),
                                          [&](const Page& page) { return Idle(page); }));
  }
  int32_t Take() {
    int32_t taken = -1;
    if (!free_.empty()) {
      taken = free_.back();
      free_.pop_back();
    } else {
      for (size_t i = 0; i < pages_.size(); ++i) {
        const bool is_continued = std::any_of(pages_.begin(), pages_.end(), [&](const Page& other) {
          return Idle(other) && other.parent == pages_[i].key;
        });
        if (!Idle(pages_[i]) || is_continued) continue;
        if (taken < 0 || pages_[i].let_go < pages_[static_cast<size_t>(taken)].let_go) {
          taken = static_cast<int32_t>(i);
        }
      }
      pages_[static_cast<size_t>(taken)] = {};
    }
    ++pages_[static_cast<size_t>(taken)].holders;
    return taken;
  }
  void Drop(int32_t page) {
    Page& p = pages_[static_cast<size_t>(page)];
    if (--p.holders > 0) return;
    p.let_go = ++clock_;
    if (p.key.empty()) free_.push_back(page);
  }
  std::vector<int32_t> Find(const std::vector<PrefixKey>& keys) const {
    std::vector<int32_t> found;
    for (const PrefixKey& key : keys) {
      const auto it = std::find_if(pages_.begin(), pages_.end(),
                                   [&](const Page& page) { return page.key == key; });
      if (it == pages_.end()) break;
      found.push_back(static_cast<int32_t>(it - pages_.begin()));
    }
    return found;
  }
  std::vector<int32_t> Holders() const {
    std::vector<int32_t> holders;
    for (const Page& page : pages_) holders.push_back(page.holders);
    return holders;
  }

  std::vector<Page> pages_;
  std::vector<int32_t> free_;
  int clock_ = 0;
};

TEST(PagePool, AgreesWithItsModelUnderRandomOperations) {
  constexpr int32_t kPages = 12;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    PagePool pool(kPages);
    Model model(kPages);
    for (int step = 0; step < 600; ++step) {
      const auto chain = static_cast<uint8_t>(pick(0, 3));
      const auto index = static_cast<uint8_t>(pick(0, 4));
      const int32_t page = pick(0, kPages - 1);
      Model::Page& at = model.pages_[static_cast<size_t>(page)];
      switch (pick(0, 4)) {
        case 0:
          if (model.Available() > 0) {
            ASSERT_EQ(pool.Take(), model.Take()) << "seed " << seed;
          }
          break;
        case 1:
        case 2:
          if (at.holders == 0) break;
          ASSERT_EQ(pool.Drop(page), at.holders == 1);
          model.Drop(page);
          break;
        case 3: {
          const std::vector<PrefixKey> keys = Chain(chain, static_cast<uint8_t>(index + 1));
          const std::vector<int32_t> found = pool.Find(keys);
          ASSERT_EQ(found, model.Find(keys)) << "seed " << seed;
          for (const int32_t hit : found) {
            pool.Share(hit);
            ++model.pages_[static_cast<size_t>(hit)].holders;
          }
          break;
        }
        default: {
          if (at.holders == 0) break;
          const PrefixKey key = Name(chain, index);
          const bool may = at.key.empty() && model.Find({key}).empty();
          ASSERT_EQ(pool.Publish(page, key, ParentOf(chain, index)), may) << "seed " << seed;
          if (!may) break;
          at.key = key;
          at.parent = ParentOf(chain, index);
        }
      }
      ASSERT_EQ(pool.pages_available(), model.Available()) << "seed " << seed << " step " << step;
      ASSERT_THAT(pool.Audit(model.Holders()), IsOk()) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace shardline
