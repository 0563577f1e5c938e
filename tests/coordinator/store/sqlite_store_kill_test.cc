// A writer is killed at any moment: what it acknowledged is there, and no number comes twice.

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>

#include "coordinator/store/sqlite_store.h"
#include "gtest/gtest.h"
#include "tests/coordinator/store/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;

// One acknowledged write, as the writer tells it through a pipe.
struct Acknowledged {
  uint64_t session;
  uint64_t epoch;
  uint64_t finished;  // 1: the attempt was completed.
};

// In the child: grants, re-grants and finishes until it is killed.
[[noreturn]] void WriteForEver(const std::string& path, int out) {
  auto store = OpenSqliteStore(path);
  if (!store.ok()) _exit(2);
  const auto term = (*store)->BeginTerm();
  if (!term.ok()) _exit(3);
  const auto tell = [out](uint64_t session, uint64_t epoch, uint64_t finished) {
    const Acknowledged ack{session, epoch, finished};
    if (write(out, &ack, sizeof(ack)) != sizeof(ack)) _exit(4);
  };
  while (true) {
    const auto key = (*store)->CreateAndGrant(*term, AttemptGrant{.route = "node-a:0-9"});
    if (!key.ok()) _exit(5);
    tell(key->session.value(), key->epoch.value(), 0);
    const auto epoch =
        (*store)->GrantEpoch(*term, AttemptGrant{.session = key->session, .route = "node-b:0-9"});
    if (!epoch.ok()) _exit(6);
    tell(key->session.value(), epoch->value(), 0);
    const auto record = (*store)->FinishAttempt(
        *term, {key->session, *epoch},
        AttemptRecord{.state = AttemptState::kCompleted, .tokens = epoch->value()}, {});
    if (!record.ok()) _exit(7);
    tell(key->session.value(), epoch->value(), 1);
  }
}

// Half a transaction would leave a session whose last epoch is neither open nor recorded, or both,
// or one whose outcome is not its last record.
int64_t HalfWrittenSessions(const std::string& path) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  sqlite3_stmt* stmt = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2(db, R"sql(
      SELECT count(*) FROM sessions s
      LEFT JOIN attempts a ON a.session = s.id AND a.epoch = s.epoch
      LEFT JOIN records r ON r.session = s.id AND r.epoch = s.epoch
      WHERE (a.session IS NULL) = (r.session IS NULL)
         OR s.outcome != CASE WHEN r.state != 5 THEN r.sequence ELSE 0 END)sql",
                               -1, &stmt, nullptr),
            SQLITE_OK);
  EXPECT_EQ(sqlite3_step(stmt), SQLITE_ROW);
  const int64_t count = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  sqlite3_close(db);
  return count;
}

TEST(SqliteStoreKill, WhatWasAcknowledgedSurvivesAKillWholeAndNoEpochIsGrantedTwice) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/store.db";
  std::set<AttemptKey> granted;
  std::set<AttemptKey> finished;
  for (int round = 0; round < 15; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      WriteForEver(path, ends[1]);
    }
    close(ends[1]);
    // Kill after some acknowledgements; the child is then anywhere in its next transactions.
    Acknowledged ack;
    int taken = 0;
    while (read(ends[0], &ack, sizeof(ack)) == sizeof(ack)) {
      if (++taken == 6 + round) ASSERT_EQ(kill(child, SIGKILL), 0);
      const AttemptKey key{SessionId(ack.session), Epoch(ack.epoch)};
      if (ack.finished == 1) {
        finished.insert(key);
      } else {
        ASSERT_TRUE(granted.insert(key).second) << "granted twice: " << ack.session;
      }
    }
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer gave up with " << WEXITSTATUS(status);

    ASSERT_EQ(HalfWrittenSessions(path), 0);
    auto store = OpenSqliteStore(path);
    ASSERT_THAT(store, IsOk());
    for (const AttemptKey& key : granted) {
      const auto found = (*store)->FindAttempt(key);
      ASSERT_THAT(found, IsOk());
      ASSERT_TRUE(found->has_value()) << "lost: " << key.session.value();
    }
    for (const AttemptKey& key : finished) {
      ASSERT_EQ((*(*store)->FindAttempt(key))->state, AttemptState::kCompleted);
    }
    // At most the last transaction is open, and the takeover closes it for good.
    ASSERT_LE((*store)->OpenAttempts()->size(), 1U);
    const auto term = (*store)->BeginTerm();
    ASSERT_THAT((*store)->FenceAllOpen(*term), IsOk());
    ASSERT_TRUE((*store)->OpenAttempts()->empty());
  }
  EXPECT_GT(finished.size(), 30U);
}

}  // namespace
}  // namespace shardline
