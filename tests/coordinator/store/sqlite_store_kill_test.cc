// A writer is killed at any moment, again and again: what it acknowledged is there, no number comes
// twice, and the ledger is sound. SL_KILL_CYCLES asks for more cycles than the 200 of a test run.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/store/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;
using ::testing::IsEmpty;

constexpr int kCycles = 200;
constexpr int kVerifyEvery = 50;  // Cycles; each open checks the newest 10,000 records.

// One acknowledged write, as the writer tells it through a pipe.
struct Acknowledged {
  uint64_t session;
  uint64_t epoch;
  uint64_t finished;  // 1: the attempt was completed.
};

AttemptRecord Completed(const AttemptKey& key) {
  return {.state = AttemptState::kCompleted,
          .tokens = key.session.value() % 1000,
          .work_tokens = 2000,
          .detail = std::string(key.session.value() % 256, 'd')};
}

// In the child: a takeover, then admits, re-grants and finishes until it is killed.
[[noreturn]] void WriteForEver(const std::string& path, int out, uint64_t cycle) {
  auto store = OpenSqliteStore(path);
  if (!store.ok()) _exit(2);
  const auto term = (*store)->BeginTerm();
  if (!term.ok() || !(*store)->FenceAllOpen(*term).ok()) _exit(3);
  if (!(*store)->EndAbandoned(*term).ok()) _exit(4);
  const auto tell = [out](const AttemptKey& key, uint64_t finished) {
    const Acknowledged ack{key.session.value(), key.epoch.value(), finished};
    if (write(out, &ack, sizeof(ack)) != sizeof(ack)) _exit(5);
  };
  const std::vector<int32_t> tokens(300, 7);
  for (uint64_t i = 0;; ++i) {
    const RequestIdentity identity{
        .tenant = "t", .key = absl::StrCat(cycle, "-", i), .digest = 1, .session = {}};
    const AttemptGrant grant{
        .session = {}, .route = "node-a:0-9", .tokens_max = 300, .previous = {}};
    const auto admission = (*store)->Admit(*term, grant, identity);
    if (!admission.ok() || !admission->granted) _exit(6);
    tell(admission->key, 0);
    AttemptKey key = admission->key;
    if (i % 2 == 0) {
      const auto epoch = (*store)->GrantEpoch(
          *term, {.session = key.session, .route = "node-b:0-9", .previous = {}});
      if (!epoch.ok()) _exit(7);
      key.epoch = *epoch;
      tell(key, 0);
    }
    if (!(*store)->FinishAttempt(*term, key, Completed(key), tokens).ok()) _exit(8);
    tell(key, 1);
  }
}

int Cycles() {
  const char* asked = std::getenv("SL_KILL_CYCLES");
  int cycles = kCycles;
  if (asked != nullptr && !absl::SimpleAtoi(asked, &cycles)) return kCycles;
  return cycles;
}

// What one cycle was told.
struct Told {
  std::vector<AttemptKey> granted;
  std::vector<AttemptKey> finished;
};

// Starts a writer and kills it after `acknowledgements`; it is then anywhere in what comes next.
Told RunAndKill(const std::string& path, uint64_t cycle, uint64_t acknowledgements) {
  Told told;
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    close(ends[0]);
    WriteForEver(path, ends[1], cycle);
  }
  close(ends[1]);
  if (acknowledgements == 0) {
    EXPECT_EQ(kill(child, SIGKILL), 0);
  }
  Acknowledged ack;
  uint64_t taken = 0;
  while (read(ends[0], &ack, sizeof(ack)) == sizeof(ack)) {
    if (++taken == acknowledgements) {
      EXPECT_EQ(kill(child, SIGKILL), 0);
    }
    (ack.finished == 1 ? told.finished : told.granted)
        .push_back({SessionId(ack.session), Epoch(ack.epoch)});
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer gave up with " << WEXITSTATUS(status);
  return told;
}

void ExpectSound(Store& store) {
  const auto verdict = store.VerifyLedger();
  ASSERT_THAT(verdict, IsOk());
  ASSERT_THAT(verdict->problems, IsEmpty());
  ASSERT_EQ(verdict->work_tokens, verdict->billed_tokens + verdict->wasted_tokens);
}

TEST(SqliteStoreKill, WhatWasAcknowledgedSurvivesAKillOnceAndTheLedgerIsSound) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/store.db";
  std::mt19937_64 random(1);
  std::set<AttemptKey> granted;
  std::vector<AttemptKey> finished;
  const int cycles = Cycles();
  for (int cycle = 1; cycle <= cycles; ++cycle) {
    const Told told = RunAndKill(path, static_cast<uint64_t>(cycle), random() % 24);
    for (const AttemptKey& key : told.granted) {
      ASSERT_TRUE(granted.insert(key).second) << "granted twice: " << key.session.value();
    }
    finished.insert(finished.end(), told.finished.begin(), told.finished.end());
    auto store = OpenSqliteStore(path);
    ASSERT_THAT(store, IsOk());
    for (const AttemptKey& key : told.granted) {
      const auto found = (*store)->FindAttempt(key);
      ASSERT_THAT(found, IsOk());
      ASSERT_TRUE(found->has_value()) << "lost: " << key.session.value();
    }
    for (const AttemptKey& key : told.finished) {
      ASSERT_EQ(**(*store)->FindAttempt(key), Completed(key));
    }
    // At most the last transaction is open; the next writer closes it for good.
    ASSERT_LE((*store)->OpenAttempts()->size(), 1U);
    if (cycle % kVerifyEvery == 0 || cycle == cycles) ExpectSound(**store);
  }
  auto store = OpenSqliteStore(path);
  ASSERT_THAT(store, IsOk());
  for (const AttemptKey& key : finished) {
    ASSERT_EQ(
        (*store)->ListRecords({.session = key.session, .state = AttemptState::kCompleted})->size(),
        1U);
  }
  EXPECT_GT(finished.size(), static_cast<size_t>(cycles));
}

}  // namespace
}  // namespace shardline
