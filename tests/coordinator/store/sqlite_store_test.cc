#include "coordinator/store/sqlite_store.h"

#include <sqlite3.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/store/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::StatusHas;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

AttemptGrant Grant(SessionId session = SessionId()) {
  return AttemptGrant{.session = session,
                      .plan = PlanEpoch(1),
                      .route = "node-a:0-9,node-b:10-19",
                      .budget = absl::Seconds(30)};
}

AttemptRecord Completed(uint64_t tokens) {
  return AttemptRecord{.state = AttemptState::kCompleted, .prompt_tokens = 3, .tokens = tokens};
}

// A raw connection, for what only another program would do to the file.
class RawConnection {
 public:
  explicit RawConnection(const std::string& path) {
    EXPECT_EQ(sqlite3_open(path.c_str(), &db_), SQLITE_OK);
  }
  ~RawConnection() { sqlite3_close(db_); }
  bool Try(const std::string& sql) {
    return sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
  }
  void Execute(const std::string& sql) {
    EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db_);
  }

 private:
  sqlite3* db_ = nullptr;
};

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> Open(const SqliteStoreOptions& options = {}) {
    auto store = OpenSqliteStore(path_, options);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/store.db";
};

TEST_F(SqliteStoreTest, TermsRiseOverReopening) {
  EXPECT_EQ(*Open()->BeginTerm(), Term(1));
  EXPECT_EQ(*Open()->BeginTerm(), Term(2));
}

TEST_F(SqliteStoreTest, IncarnationBlocksNeverOverlapOverReopening) {
  uint64_t end = 1;
  for (int i = 0; i < 3; ++i) {
    auto store = Open();
    const Term term = *store->BeginTerm();
    for (int j = 0; j < 2; ++j) {
      const auto first = store->NextIncarnationBlock(term);
      ASSERT_THAT(first, IsOk());
      EXPECT_GE(first->value(), end);
      end = first->value() + kIncarnationBlockSize;
    }
  }
}

TEST_F(SqliteStoreTest, SessionIdsRiseAndCarryTheGenerationInTheirHighBits) {
  SessionId last;
  for (int i = 0; i < 3; ++i) {
    auto store = Open();
    const Term term = *store->BeginTerm();
    const auto session = store->CreateSession(term);
    ASSERT_THAT(session, IsOk());
    EXPECT_GT(*session, last);
    EXPECT_EQ(session->value() >> 48, 1U);
    last = *session;
  }
  EXPECT_EQ(last.value() & 0xFFFFFFFFFFFF, 3U);
}

TEST_F(SqliteStoreTest, AGrantClosesTheAttemptBeforeItAsFenced) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  const SessionId session = *store->CreateSession(term);
  EXPECT_EQ(*store->GrantEpoch(term, Grant(session)), Epoch(1));
  EXPECT_EQ(*store->GrantEpoch(term, Grant(session)), Epoch(2));
  EXPECT_EQ((*store->FindAttempt({session, Epoch(1)}))->state, AttemptState::kFenced);
  const auto open = store->OpenAttempts();
  ASSERT_THAT(open, IsOk());
  ASSERT_THAT(*open, SizeIs(1));
  EXPECT_EQ(open->front().key, (AttemptKey{session, Epoch(2)}));
  EXPECT_EQ(open->front().route, "node-a:0-9,node-b:10-19");
  EXPECT_THAT(store->GrantEpoch(term, Grant(SessionId(77))),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("77")));
}

TEST_F(SqliteStoreTest, ATerminalRecordIsWrittenOnceAndTheFirstOneStands) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  const AttemptKey key = *store->CreateAndGrant(term, Grant());
  EXPECT_EQ(*store->FinishAttempt(term, key, Completed(7), {}), Completed(7));
  const AttemptRecord late{.state = AttemptState::kCancelled,
                           .kind = FailureKind::kCancelled,
                           .detail = "the client hung up"};
  EXPECT_EQ(*store->FinishAttempt(term, key, late, {}), Completed(7));
  store.reset();
  EXPECT_EQ(**Open()->FindAttempt(key), Completed(7));
}

TEST_F(SqliteStoreTest, ASessionWithAnOutcomeGetsNoFurtherEpoch) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  const AttemptKey key = *store->CreateAndGrant(term, Grant());
  ASSERT_THAT(store->FinishAttempt(term, key, Completed(1), {}), IsOk());
  EXPECT_THAT(store->GrantEpoch(term, Grant(key.session)),
              StatusHas(absl::StatusCode::kFailedPrecondition, HasSubstr("completed")));
}

TEST_F(SqliteStoreTest, AFencedAttemptCannotComplete) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  const AttemptKey old_key = *store->CreateAndGrant(term, Grant());
  const Epoch epoch = *store->GrantEpoch(term, Grant(old_key.session));
  EXPECT_EQ(store->FinishAttempt(term, old_key, Completed(9), {})->state, AttemptState::kFenced);
  EXPECT_THAT(store->FinishAttempt(term, {old_key.session, Epoch(9)}, Completed(9), {}),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("/9")));
  EXPECT_EQ(*store->FinishAttempt(term, {old_key.session, epoch}, Completed(9), {}), Completed(9));
}

TEST_F(SqliteStoreTest, AnOlderTermIsRefusedByEveryWriteOfTheLedger) {
  auto old_store = Open();
  const Term old_term = *old_store->BeginTerm();
  const AttemptKey key = *old_store->CreateAndGrant(old_term, Grant());
  auto new_store = Open();
  const Term new_term = *new_store->BeginTerm();
  EXPECT_EQ(*new_store->FenceAllOpen(new_term), 1);

  EXPECT_THAT(old_store->FinishAttempt(old_term, key, Completed(1), {}),
              FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->GrantEpoch(old_term, Grant(key.session)),
              FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->CreateAndGrant(old_term, Grant()), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->CreateSession(old_term), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->NextIncarnationBlock(old_term), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->FenceAllOpen(old_term), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->CreatePlan(old_term, "x"), FailsWith(FailureKind::kStaleEpoch));
  EXPECT_THAT(old_store->RememberNode(old_term, NodeId("n"), "a"),
              FailsWith(FailureKind::kStaleEpoch));
  // A term nobody began is no better.
  EXPECT_THAT(new_store->CreateSession(Term(99)), FailsWith(FailureKind::kStaleEpoch));
  // The session goes on under the new term, on an epoch of its own.
  EXPECT_EQ(*new_store->GrantEpoch(new_term, Grant(key.session)), Epoch(2));
}

TEST_F(SqliteStoreTest, ATakeoverFencesEverythingOpenAndNothingElse) {
  auto store = Open();
  Term term = *store->BeginTerm();
  const AttemptKey done = *store->CreateAndGrant(term, Grant());
  ASSERT_THAT(store->FinishAttempt(term, done, Completed(2), {}), IsOk());
  (void)*store->CreateAndGrant(term, Grant());
  (void)*store->CreateAndGrant(term, Grant());
  term = *store->BeginTerm();
  EXPECT_EQ(*store->FenceAllOpen(term), 2);
  EXPECT_EQ(*store->FenceAllOpen(term), 0);
  EXPECT_TRUE(store->OpenAttempts()->empty());
  EXPECT_EQ(**store->FindAttempt(done), Completed(2));
}

TEST_F(SqliteStoreTest, PlansKeepTheirEpochsAndAForgottenOneIsNotReused) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  EXPECT_FALSE(store->LatestPlan()->has_value());
  const std::string blob("plan\0one", 8);
  EXPECT_EQ(*store->CreatePlan(term, blob), PlanEpoch(1));
  EXPECT_EQ(*store->CreatePlan(term, "two"), PlanEpoch(2));
  ASSERT_THAT(store->ForgetPlan(term, PlanEpoch(2)), IsOk());
  EXPECT_EQ((*store->LatestPlan())->epoch, PlanEpoch(1));
  EXPECT_EQ((*store->LatestPlan())->text, blob);
  EXPECT_EQ(*store->CreatePlan(term, "three"), PlanEpoch(3));
  store.reset();
  EXPECT_THAT(*Open()->Plans(), SizeIs(2));
}

TEST_F(SqliteStoreTest, NodesAndManifestsAreRemembered) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  ASSERT_THAT(store->RememberNode(term, NodeId("node-b"), "b:1"), IsOk());
  ASSERT_THAT(store->RememberNode(term, NodeId("node-a"), "a:1"), IsOk());
  ASSERT_THAT(store->RememberNode(term, NodeId("node-a"), "a:2"), IsOk());
  EXPECT_THAT(*store->KnownNodes(), ::testing::ElementsAre(NodeId("node-a"), NodeId("node-b")));
  ASSERT_THAT(store->ForgetNode(term, NodeId("node-a")), IsOk());
  EXPECT_THAT(*store->KnownNodes(), ::testing::ElementsAre(NodeId("node-b")));

  const Store::FileKey file{.path = "m.gguf", .size = 10, .modified_ns = 5};
  EXPECT_FALSE(store->FindManifest(file)->has_value());
  ASSERT_THAT(store->PutManifest(file, "digests"), IsOk());
  EXPECT_EQ(**store->FindManifest(file), "digests");
  EXPECT_FALSE(store->FindManifest({"m.gguf", 11, 5})->has_value());
  EXPECT_FALSE(store->FindManifest({"m.gguf", 10, 6})->has_value());
}

TEST_F(SqliteStoreTest, AFullDiskIsATypedRefusalThatWritesNothing) {
  auto store = Open({.pages_max = 40});
  const Term term = *store->BeginTerm();
  AttemptGrant large = Grant();
  large.route = std::string(3000, 'r');
  uint64_t granted = 0;
  absl::StatusOr<AttemptKey> key = store->CreateAndGrant(term, large);
  for (; key.ok() && granted < 1000; ++granted) key = store->CreateAndGrant(term, large);
  EXPECT_THAT(key, FailsWith(FailureKind::kOverloaded));
  EXPECT_GT(granted, 0U);
  // The store goes on; what was acknowledged is there, and nothing else.
  const auto open = store->OpenAttempts();
  EXPECT_EQ(open->size(), granted);
  // Every attempt has room for its record, whatever it says.
  for (const UnfinishedAttempt& attempt : *open) {
    const AttemptRecord record{.state = AttemptState::kFailed,
                               .prompt_tokens = 1u << 31,
                               .tokens = 1u << 31,
                               .kind = FailureKind::kWorkerDeath,
                               .detail = std::string(1000, 'd')};
    const auto standing = store->FinishAttempt(term, attempt.key, record, {});
    ASSERT_THAT(standing, IsOk());
    EXPECT_EQ(standing->detail.size(), 256U);
    EXPECT_EQ(**store->FindAttempt(attempt.key), *standing);
  }
}

TEST_F(SqliteStoreTest, AFileThatAnotherProcessHoldsIsATypedRefusal) {
  auto store = Open({.busy_timeout = absl::ZeroDuration()});
  const Term term = *store->BeginTerm();
  RawConnection other(path_);
  other.Execute("BEGIN IMMEDIATE");
  EXPECT_THAT(store->CreateAndGrant(term, Grant()), FailsWith(FailureKind::kOverloaded));
  other.Execute("ROLLBACK");
  EXPECT_THAT(store->CreateAndGrant(term, Grant()), IsOk());
}

TEST_F(SqliteStoreTest, ADamagedFileIsRefusedByName) {
  {
    auto store = Open();
    const Term term = *store->BeginTerm();
    for (int i = 0; i < 200; ++i) ASSERT_THAT(store->CreateAndGrant(term, Grant()), IsOk());
  }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 3);
    for (int i = 0; i < 4096 * 4; ++i) file.put(static_cast<char>(0x5A));
  }
  EXPECT_THAT(OpenSqliteStore(path_),
              StatusHas(absl::StatusCode::kDataLoss, HasSubstr("store.db")));
  std::ofstream(path_, std::ios::trunc | std::ios::binary) << std::string(8192, 'x');
  EXPECT_THAT(OpenSqliteStore(path_),
              StatusHas(absl::StatusCode::kDataLoss, HasSubstr("store.db")));
}

TEST_F(SqliteStoreTest, ForeignDatabasesAndUnknownSchemasAreRefused) {
  Open().reset();
  RawConnection(path_).Execute("PRAGMA user_version = 99");
  EXPECT_THAT(OpenSqliteStore(path_),
              StatusHas(absl::StatusCode::kFailedPrecondition,
                        AllOf(HasSubstr("schema 99"), HasSubstr("knows 2"))));
  const std::string foreign = folder_.path() + "/foreign.db";
  RawConnection(foreign).Execute("CREATE TABLE t (x)");
  EXPECT_THAT(OpenSqliteStore(foreign),
              StatusHas(absl::StatusCode::kFailedPrecondition, HasSubstr("another program")));
  EXPECT_THAT(OpenSqliteStore(folder_.path() + "/no/such/store.db"),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("directory")));
}

TEST_F(SqliteStoreTest, AStoreInMemoryWorksAlike) {
  auto store = OpenSqliteStore(":memory:");
  ASSERT_THAT(store, IsOk());
  const Term term = *(*store)->BeginTerm();
  EXPECT_THAT((*store)->CreateAndGrant(term, Grant()), IsOk());
}

// The file itself holds it, should the code above ever forget.
TEST_F(SqliteStoreTest, TheFileRefusesASecondOpenAttemptOfASession) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  const AttemptKey key = *store->CreateAndGrant(term, Grant());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  const std::string sql =
      "INSERT INTO attempts VALUES (" + std::to_string(key.session.value()) + ", 2, 1, 1, '', 0)";
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_CONSTRAINT);
  sqlite3_close(db);
}

TEST_F(SqliteStoreTest, TheFileRefusesARecordToChangeToGoOrToLeaveAGap) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  const AttemptKey key = *store->CreateAndGrant(term, Grant());
  ASSERT_THAT(store->FinishAttempt(term, key, Completed(2), {}), IsOk());
  RawConnection raw(path_);
  EXPECT_FALSE(raw.Try("UPDATE records SET tokens = 9"));
  EXPECT_FALSE(raw.Try("DELETE FROM records"));
  EXPECT_FALSE(
      raw.Try("INSERT INTO records SELECT 7, session, 9, term, plan, route, state, "
              "prompt_tokens, tokens, work_tokens, digest, kind, detail, finished_ms, "
              "hash FROM records"));
}

// Whoever takes the guards out first still cannot mend the chain behind the record.
TEST_F(SqliteStoreTest, VerifyNamesTheRecordThatSomebodyChanged) {
  auto store = Open();
  const Term term = *store->BeginTerm();
  for (int i = 0; i < 5; ++i) {
    const AttemptKey key = *store->CreateAndGrant(term, Grant());
    AttemptRecord record = Completed(2);
    record.work_tokens = 5;
    ASSERT_THAT(store->FinishAttempt(term, key, record, {}), IsOk());
  }
  EXPECT_TRUE(store->VerifyLedger()->problems.empty());
  RawConnection raw(path_);
  raw.Execute("DROP TRIGGER records_never_change; DROP TRIGGER records_never_go");
  raw.Execute("UPDATE records SET tokens = 1 WHERE sequence = 3");
  EXPECT_THAT(store->VerifyLedger()->problems,
              ::testing::ElementsAre(HasSubstr("record 3 (session ")));
  raw.Execute("DELETE FROM records WHERE sequence = 2");
  EXPECT_THAT(store->VerifyLedger()->problems, ::testing::Contains(HasSubstr("follows record 1")));
  store.reset();
  EXPECT_THAT(OpenSqliteStore(path_),
              StatusHas(absl::StatusCode::kDataLoss, HasSubstr("record 3")));
}

// The tables of schema 1, as the build before this one wrote them.
TEST_F(SqliteStoreTest, ALedgerOfSchema1IsTakenOver) {
  {
    RawConnection raw(path_);
    raw.Execute(R"sql(
CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL,
  term INTEGER NOT NULL, sequence INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  plan INTEGER NOT NULL);
INSERT INTO meta VALUES (1, 1, 6, 3, 2000001, 1);
CREATE TABLE sessions (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, outcome INTEGER NOT NULL);
CREATE TABLE attempts (session INTEGER NOT NULL, epoch INTEGER NOT NULL, term INTEGER NOT NULL,
  plan INTEGER NOT NULL, route TEXT NOT NULL, budget_ms INTEGER NOT NULL, state INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL, tokens INTEGER NOT NULL, kind INTEGER NOT NULL,
  detail TEXT NOT NULL, PRIMARY KEY (session, epoch)) WITHOUT ROWID;
CREATE UNIQUE INDEX attempts_one_open ON attempts (session) WHERE state = 0;
CREATE TABLE plans (epoch INTEGER PRIMARY KEY, text BLOB NOT NULL, forgotten INTEGER NOT NULL);
CREATE TABLE nodes (id TEXT PRIMARY KEY, address TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE manifests (path TEXT PRIMARY KEY, size INTEGER NOT NULL, modified_ns INTEGER NOT NULL,
  manifest BLOB NOT NULL);
INSERT INTO plans VALUES (1, x'70', 0);
INSERT INTO sessions VALUES (281474976710657, 2, 1), (281474976710658, 1, -1),
  (281474976710659, 1, -1);
INSERT INTO attempts VALUES
  (281474976710657, 1, 5, 1, x'61', 9, 5, 0, 0, 0, x''),
  (281474976710657, 2, 5, 1, x'61', 9, 1, 4, 3, 0, x'6f6b'),
  (281474976710658, 1, 6, 1, x'61', 9, 0, 0, 0, 0, zeroblob(288)),
  (281474976710659, 1, 5, 1, x'61', 9, 5, 0, 0, 0, x'');
PRAGMA application_id = 1397510724;
PRAGMA user_version = 1)sql");
  }
  auto store = Open();
  EXPECT_TRUE(store->VerifyLedger()->problems.empty());
  EXPECT_EQ(store->VerifyLedger()->billed_tokens, 3U);
  EXPECT_EQ(store->VerifyLedger()->open_attempts, 1U);
  const SessionId first(281474976710657);
  EXPECT_EQ(**store->FindAttempt({first, Epoch(2)}),
            (AttemptRecord{.state = AttemptState::kCompleted,
                           .prompt_tokens = 4,
                           .tokens = 3,
                           .work_tokens = 7,
                           .detail = "ok"}));
  EXPECT_THAT(*store->Plans(), SizeIs(1));
  const Term term = *store->BeginTerm();
  EXPECT_EQ(term, Term(7));
  EXPECT_EQ(*store->FenceAllOpen(term), 1);
  EXPECT_EQ(*store->EndAbandoned(term), 2);
  EXPECT_EQ(store->CreateSession(term)->value(), first.value() + 3);
  EXPECT_TRUE(store->VerifyLedger()->problems.empty());
}

}  // namespace
}  // namespace shardline
