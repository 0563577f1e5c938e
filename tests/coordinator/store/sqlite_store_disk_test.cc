// The ledger on a disk that fails: at every write and sync of a session's life, at every size.

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/sim_vfs.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::DiskFault;
using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::SimVfs;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StandingClock final : public Clock {
 public:
  Instant Now() const override { return Instant(); }
};

constexpr char kPath[] = "coordinator.db";

AttemptGrant Grant(SessionId session = SessionId()) {
  return {.session = session,
          .plan = PlanEpoch(1),
          .route = std::string(512, 'r'),
          .budget = absl::Seconds(30),
          .tokens_max = 2000,
          .previous = {}};
}

AttemptRecord Record(AttemptState state) {
  return {.state = state,
          .prompt_tokens = 9,
          .tokens = 2,
          .work_tokens = 1 << 30,
          .digest = ~uint64_t{0},
          .kind = FailureKind::kWorkerDeath,
          .detail = std::string(256, 'd')};
}

RequestIdentity Identity(int key) {
  return {.tenant = "t", .key = absl::StrCat("key-", key), .digest = 1, .session = {}};
}

class DiskTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Store>> Open() {
    return OpenSqliteStore(kPath,
                           {.clock = &clock_, .unix_ms = [] { return 1; }, .vfs = disk_.name()});
  }

  StandingClock clock_;
  SimVfs disk_{"sim-disk"};
};

// What a life of sessions was told, until the disk failed.
struct Told {
  std::vector<AttemptKey> granted;
  std::vector<std::pair<AttemptKey, AttemptRecord>> finished;
  std::optional<Term> term;
  bool done = false;
};

// A takeover, three sessions with a failover and keys each, and a floor.
Told Live(Store& store) {
  Told told;
  const absl::StatusOr<Term> term = store.BeginTerm();
  if (!term.ok()) return told;
  told.term = *term;
  if (!store.FenceAllOpen(*term).ok() || !store.EndAbandoned(*term).ok()) return told;
  const std::vector<int32_t> tokens(2000, 5);
  for (int i = 0; i < 3; ++i) {
    const auto first =
        store.Admit(*term, Grant(), Identity(static_cast<int>(term->value()) * 9 + i));
    if (!first.ok()) return told;
    told.granted.push_back(first->key);
    const auto epoch = store.GrantEpoch(*term, Grant(first->key.session));
    if (!epoch.ok()) return told;
    const AttemptKey second{first->key.session, *epoch};
    told.granted.push_back(second);
    told.finished.push_back({first->key, {.state = AttemptState::kFenced}});
    if (i == 1) continue;  // This one stays open.
    const AttemptRecord record = Record(AttemptState::kCompleted);
    if (!store.FinishAttempt(*term, second, record, tokens).ok()) return told;
    told.finished.push_back({second, record});
  }
  if (!store.RaiseFloor(*term, absl::ZeroDuration()).ok()) return told;
  told.done = true;
  return told;
}

// Everything acknowledged is there, once, and the ledger is sound.
void ExpectKept(Store& store, const Told& told) {
  const auto verdict = store.VerifyLedger();
  ASSERT_THAT(verdict, IsOk());
  EXPECT_THAT(verdict->problems, IsEmpty());
  EXPECT_EQ(verdict->work_tokens, verdict->billed_tokens + verdict->wasted_tokens);
  for (const AttemptKey& key : told.granted) {
    EXPECT_TRUE((*store.FindAttempt(key)).has_value()) << key.session.value();
  }
  for (const auto& [key, record] : told.finished) {
    EXPECT_EQ(*store.FindAttempt(key), record) << key.session.value();
    EXPECT_EQ(store.ListRecords({.session = key.session, .state = record.state})->size(), 1U);
  }
}

TEST_F(DiskTest, APowerCutAtEveryOperationLosesNothingThatWasAcknowledged) {
  // One undisturbed life says how many operations there are, and stays as the past of all others.
  ASSERT_TRUE(Live(**Open()).done);
  const int64_t before = disk_.operations();
  ASSERT_TRUE(Live(**Open()).done);
  const int64_t length = disk_.operations() - before;
  ASSERT_GT(length, 60);
  int64_t finished = 0;
  for (int64_t at = 0; at < length; ++at) {
    SCOPED_TRACE(absl::StrCat("cut at ", at));
    Told told;
    {
      disk_.FailAt(disk_.operations() + at, DiskFault::kPowerCut);
      auto store = Open();
      if (store.ok()) told = Live(**store);
      finished += static_cast<int64_t>(told.finished.size());
    }
    disk_.Restart(static_cast<uint64_t>(at));
    auto store = Open();
    ASSERT_THAT(store, IsOk());
    ExpectKept(**store, told);
    if (told.term) {
      EXPECT_GT((*store)->BeginTerm()->value(), told.term->value());
    }
  }
  EXPECT_GT(finished, length);
}

TEST_F(DiskTest, ACutInTheMiddleOfTheFirstStartLeavesAFileThatStarts) {
  for (int64_t at = 0; at < 40; ++at) {
    SCOPED_TRACE(absl::StrCat("cut at ", at));
    SimVfs disk("first-start");
    disk.FailAt(at, DiskFault::kPowerCut);
    const SqliteStoreOptions options{.clock = &clock_, .vfs = disk.name()};
    OpenSqliteStore(kPath, options).status().IgnoreError();
    disk.Restart(static_cast<uint64_t>(at));
    const auto store = OpenSqliteStore(kPath, options);
    ASSERT_THAT(store, IsOk());
    ASSERT_THAT((*store)->BeginTerm(), IsOk());
  }
}

TEST_F(DiskTest, AFailedSyncStopsEveryWriteUntilTheStoreIsOpenedAnew) {
  ASSERT_TRUE(Live(**Open()).done);
  for (const DiskFault fault : {DiskFault::kSyncError, DiskFault::kWriteError}) {
    for (int64_t at = 0; at < 60; ++at) {
      SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(fault), " at ", at));
      Told told;
      bool broken = false;
      {
        auto store = Open();
        ASSERT_THAT(store, IsOk());
        disk_.FailAt(disk_.operations() + at, fault);
        told = Live(**store);
        broken = !told.done;
        if (broken) {
          // The disk is well again, and nothing is tried.
          const int64_t operations = disk_.operations();
          const absl::Status refused = (*store)->BeginTerm().status();
          EXPECT_TRUE(StoreIsBroken(refused)) << refused;
          EXPECT_THAT(refused, StatusHas(absl::StatusCode::kInternal, HasSubstr("restart")));
          EXPECT_EQ(disk_.operations(), operations);
        }
      }
      // What the failed sync was to keep is gone, as if the machine had stopped.
      if (broken) disk_.Restart(static_cast<uint64_t>(at));
      disk_.FailAt(std::numeric_limits<int64_t>::max(), fault);
      auto store = Open();
      ASSERT_THAT(store, IsOk());
      ExpectKept(**store, told);
    }
  }
}

// Grants until the disk refuses; whatever was granted can be finished, with all its tokens.
TEST_F(DiskTest, OnADiskOfAnySizeAGrantedAttemptCanBeFinished) {
  const std::vector<int32_t> tokens(2000, 5);
  int granted_most = 0;
  for (int64_t more = 0; more < (4 << 20); more += 40961) {
    SCOPED_TRACE(absl::StrCat(more, " bytes free"));
    SimVfs disk("full");
    const SqliteStoreOptions options{.clock = &clock_, .vfs = disk.name()};
    auto store = OpenSqliteStore(kPath, options);
    ASSERT_THAT(store, IsOk());
    ASSERT_TRUE(Live(**store).done);
    const Term term = *(*store)->BeginTerm();
    ASSERT_THAT((*store)->FenceAllOpen(term), IsOk());
    disk.SetCapacity(disk.bytes_used() + more);
    std::vector<AttemptKey> open;
    absl::Status refused;
    while (open.size() < 100) {
      const auto admission =
          (*store)->Admit(term, Grant(), Identity(1000 + static_cast<int>(open.size())));
      refused = admission.status();
      if (!refused.ok()) break;
      open.push_back(admission->key);
    }
    EXPECT_THAT(refused, FailsWith(FailureKind::kOverloaded));
    granted_most = std::max(granted_most, static_cast<int>(open.size()));
    // A failover in the middle of it is refused at worst, and takes no record's room.
    for (const AttemptKey& key : open) {
      const auto epoch = (*store)->GrantEpoch(term, Grant(key.session));
      if (!epoch.ok()) {
        EXPECT_THAT(epoch, FailsWith(FailureKind::kOverloaded));
      }
      const AttemptKey last{key.session, epoch.ok() ? *epoch : key.epoch};
      ASSERT_THAT((*store)->FinishAttempt(term, last, Record(AttemptState::kCompleted), tokens),
                  IsOk());
    }
    // A takeover finds its room, too.
    const Term next = *(*store)->BeginTerm();
    ASSERT_THAT((*store)->FenceAllOpen(next), IsOk());
    EXPECT_THAT((*store)->VerifyLedger()->problems, IsEmpty());
    // Space comes back, and with it grants.
    disk.SetCapacity(disk.bytes_used() + (64 << 20));
    EXPECT_THAT((*store)->CreateAndGrant(next, Grant()), IsOk());
  }
  EXPECT_GT(granted_most, 10);
}

TEST_F(DiskTest, ABitThatFlipsInARecordIsNamedByItsNumber) {
  {
    auto store = Open();
    ASSERT_TRUE(Live(**store).done);
  }
  // In the detail of some record: only the chain can see it.
  const std::string bytes = disk_.Contents(kPath);
  const size_t at = bytes.find(std::string(200, 'd'));
  ASSERT_NE(at, std::string::npos);
  disk_.FlipBit(kPath, static_cast<int64_t>(at) + 100, 1);
  EXPECT_THAT(Open(), StatusHas(absl::StatusCode::kDataLoss,
                                AllOf(HasSubstr("record "), HasSubstr("damaged"))));
}

TEST_F(DiskTest, ASlowDiskIsOnlySlow) {
  int syncs = 0;
  disk_.SetOnSync([&syncs] { ++syncs; });
  auto store = Open();
  ASSERT_TRUE(Live(**store).done);
  // A commit is one sync.
  const int before = syncs;
  const Term term = *(*store)->BeginTerm();
  (void)*(*store)->CreateAndGrant(term, Grant());
  EXPECT_EQ(syncs - before, 2);  // A term and a grant.
}

TEST_F(DiskTest, WhatBreaksTheStoreIsToldOnce) {
  std::vector<absl::Status> told;
  auto store = OpenSqliteStore(
      kPath, {.clock = &clock_, .vfs = disk_.name(), .on_broken = [&told](const absl::Status& why) {
                told.push_back(why);
              }});
  ASSERT_TRUE(Live(**store).done);
  EXPECT_THAT(told, IsEmpty());
  disk_.FailAt(disk_.operations(), DiskFault::kSyncError);
  EXPECT_FALSE(Live(**store).done);
  EXPECT_FALSE(Live(**store).done);
  EXPECT_THAT(told, ElementsAre(StatusHas(absl::StatusCode::kInternal, HasSubstr(kPath))));
}

}  // namespace
}  // namespace shardline
