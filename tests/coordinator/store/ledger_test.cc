// What the ledger promises, of both stores: SQLite's and the simulator's.

#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/ledger_audit.h"
#include "coordinator/store/ledger_rules.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/memory_store.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::IsOk;
using ::shardline::testing::MemoryStore;
using ::shardline::testing::StatusHas;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SetClock final : public Clock {
 public:
  Instant Now() const override { return now; }
  Instant now;
};

AttemptGrant Grant(SessionId session = SessionId()) {
  return AttemptGrant{.session = session,
                      .plan = PlanEpoch(4),
                      .route = "node-a:0-9",
                      .budget = absl::Seconds(30),
                      .tokens_max = 16};
}

AttemptRecord Record(AttemptState state, uint64_t tokens = 3, uint64_t work = 8) {
  return AttemptRecord{
      .state = state, .prompt_tokens = 5, .tokens = tokens, .work_tokens = work, .digest = 77};
}

RequestIdentity Identity(std::string key, uint64_t digest = 9) {
  return {.tenant = "acme", .key = std::move(key), .digest = digest, .session = {}};
}

class LedgerTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      store_ = std::make_unique<MemoryStore>(&clock_);
    } else {
      auto store = OpenSqliteStore(":memory:", {.clock = &clock_});
      ASSERT_THAT(store, IsOk());
      store_ = *std::move(store);
    }
    term_ = *store_->BeginTerm();
  }

  AttemptKey Granted() { return *store_->CreateAndGrant(term_, Grant()); }
  AttemptRecord Finish(const AttemptKey& key, const AttemptRecord& record) {
    const auto standing = store_->FinishAttempt(term_, key, record, {});
    EXPECT_THAT(standing, IsOk());
    return standing.ok() ? *standing : AttemptRecord();
  }
  std::vector<LedgerEntry> All() { return *store_->ListRecords({}); }
  void ExpectSound() {
    const auto verdict = store_->VerifyLedger();
    ASSERT_THAT(verdict, IsOk());
    EXPECT_THAT(verdict->problems, IsEmpty());
    EXPECT_EQ(verdict->work_tokens, verdict->billed_tokens + verdict->wasted_tokens);
  }

  SetClock clock_;
  std::unique_ptr<Store> store_;
  Term term_;
};

INSTANTIATE_TEST_SUITE_P(Stores, LedgerTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Memory" : "Sqlite"; });

TEST_P(LedgerTest, TheFirstTerminalRecordStandsWhateverComesAfter) {
  const AttemptKey key = Granted();
  const AttemptRecord completed = Record(AttemptState::kCompleted);
  EXPECT_EQ(Finish(key, completed), completed);
  EXPECT_EQ(Finish(key, Record(AttemptState::kCancelled)), completed);
  EXPECT_EQ(Finish(key, Record(AttemptState::kCompleted, 4, 9)), completed);
  ASSERT_EQ(All().size(), 1U);
  EXPECT_EQ(All()[0].record, completed);
  ExpectSound();
}

TEST_P(LedgerTest, RecordsAreNumberedAndChainedOverWhatTheySay) {
  const AttemptKey first = Granted();
  const AttemptKey second = Granted();
  Finish(second, Record(AttemptState::kFailed));
  Finish(first, Record(AttemptState::kExpired));
  const std::vector<LedgerEntry> entries = All();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].sequence, 1U);
  EXPECT_EQ(entries[0].key, second);
  EXPECT_EQ(entries[0].plan, PlanEpoch(4));
  EXPECT_EQ(entries[0].route, "node-a:0-9");
  EXPECT_EQ(entries[0].hash, LedgerHash("", entries[0]));
  EXPECT_EQ(entries[1].sequence, 2U);
  EXPECT_EQ(entries[1].hash, LedgerHash(entries[0].hash, entries[1]));
  LedgerEntry other = entries[1];
  ++other.record.work_tokens;
  EXPECT_NE(LedgerHash(entries[0].hash, other), entries[1].hash);
}

TEST_P(LedgerTest, AGrantClosesTheAttemptBeforeItWithTheRecordItIsGiven) {
  const AttemptKey key = Granted();
  AttemptGrant next = Grant(key.session);
  next.previous = Record(AttemptState::kUnverified, 2, 7);
  next.previous->detail.assign(1000, 'x');
  ASSERT_EQ(*store_->GrantEpoch(term_, next), Epoch(2));
  ASSERT_EQ(*store_->GrantEpoch(term_, Grant(key.session)), Epoch(3));
  const std::vector<LedgerEntry> entries = All();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].record.state, AttemptState::kUnverified);
  EXPECT_EQ(entries[0].record.work_tokens, 7U);
  EXPECT_EQ(entries[0].record.detail.size(), kDetailBytesMax);
  EXPECT_EQ(entries[1].record, AttemptRecord{.state = AttemptState::kFenced});
  // The session goes on: neither was its outcome.
  Finish({key.session, Epoch(3)}, Record(AttemptState::kCompleted));
  ExpectSound();
  EXPECT_EQ(store_->VerifyLedger()->billed_tokens, 3U);
  EXPECT_EQ(store_->VerifyLedger()->work_tokens, 15U);
}

TEST_P(LedgerTest, OnlyCompletedWorkIsBilledAndTheRestIsWaste) {
  Finish(Granted(), Record(AttemptState::kCompleted, 3, 8));
  Finish(Granted(), Record(AttemptState::kFailed, 4, 9));
  Finish(Granted(), Record(AttemptState::kUnverified, 1, 6));
  const LedgerVerdict verdict = *store_->VerifyLedger();
  EXPECT_THAT(verdict.problems, IsEmpty());
  EXPECT_EQ(verdict.records, 3U);
  EXPECT_EQ(verdict.billed_tokens, 3U);
  EXPECT_EQ(verdict.wasted_tokens, 5U + 9U + 6U);
  EXPECT_EQ(verdict.work_tokens, 23U);
}

TEST_P(LedgerTest, MoreBilledThanWorkedIsAProblemThatNamesItsRecord) {
  Finish(Granted(), Record(AttemptState::kCompleted));
  Finish(Granted(), Record(AttemptState::kCompleted, 9, 8));
  EXPECT_THAT(store_->VerifyLedger()->problems, ElementsAre(HasSubstr("record 2 (session ")));
}

TEST_P(LedgerTest, TheSameKeyIsTheSameSession) {
  const Admission first = *store_->Admit(term_, Grant(), Identity("k"));
  EXPECT_TRUE(first.granted);
  EXPECT_FALSE(first.known);
  const Admission again = *store_->Admit(term_, Grant(), Identity("k"));
  EXPECT_FALSE(again.granted);
  EXPECT_TRUE(again.known);
  EXPECT_FALSE(again.outcome.has_value());
  EXPECT_EQ(again.key, first.key);
  EXPECT_THAT(store_->Admit(term_, Grant(), Identity("k", 10)),
              FailsWith(FailureKind::kKeyConflict));
  RequestIdentity other_tenant = Identity("k", 10);
  other_tenant.tenant = "b";
  EXPECT_FALSE(store_->Admit(term_, Grant(), other_tenant)->known);
  EXPECT_THAT(store_->Admit(term_, Grant(), Identity(std::string(257, 'k'))),
              FailsWith(FailureKind::kInvalidRequest));
}

TEST_P(LedgerTest, ASessionThatIsOverAnswersWithItsRecordAndTokens) {
  const Admission first = *store_->Admit(term_, Grant(), Identity("k"));
  const std::vector<int32_t> tokens = {5, -1, 1 << 30};
  const AttemptRecord record = Record(AttemptState::kCompleted);
  ASSERT_THAT(store_->FinishAttempt(term_, first.key, record, tokens), IsOk());
  const Admission again = *store_->Admit(term_, Grant(), Identity("k"));
  EXPECT_FALSE(again.granted);
  EXPECT_EQ(again.key, first.key);
  EXPECT_EQ(again.outcome, record);
  EXPECT_EQ(again.tokens, tokens);

  // Without a key nothing is kept but the record.
  const Admission plain = *store_->Admit(term_, Grant(), Identity(""));
  ASSERT_THAT(store_->FinishAttempt(term_, plain.key, record, tokens), IsOk());
  RequestIdentity back = Identity("");
  back.session = plain.key.session;
  EXPECT_EQ(store_->Admit(term_, Grant(), back)->outcome, record);
  EXPECT_THAT(store_->Admit(term_, Grant(), back)->tokens, IsEmpty());
}

TEST_P(LedgerTest, AClientThatComesBackMustBeTheSame) {
  const AttemptKey key = store_->Admit(term_, Grant(), Identity("k"))->key;
  RequestIdentity back = Identity("k");
  back.session = key.session;
  EXPECT_EQ(store_->Admit(term_, Grant(), back)->key, key);
  back.key = "";
  EXPECT_EQ(store_->Admit(term_, Grant(), back)->key, key);
  back.key = "other";
  EXPECT_THAT(store_->Admit(term_, Grant(), back), FailsWith(FailureKind::kKeyConflict));
  back.key = "k";
  back.digest = 10;
  EXPECT_THAT(store_->Admit(term_, Grant(), back), FailsWith(FailureKind::kKeyConflict));
  back.tenant = "b";
  EXPECT_THAT(store_->Admit(term_, Grant(), back),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("no session")));
  back.session = SessionId(12345);
  EXPECT_THAT(store_->Admit(term_, Grant(), back),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("12345")));
}

TEST_P(LedgerTest, AfterATakeoverOneWhoComesBackGoesOnAndTheOthersEndFailed) {
  const AttemptKey comes_back = store_->Admit(term_, Grant(), Identity("k"))->key;
  const AttemptKey stays_away = Granted();
  const Term old_term = term_;
  term_ = *store_->BeginTerm();
  EXPECT_EQ(*store_->FenceAllOpen(term_), 2);
  EXPECT_EQ(*store_->FenceAllOpen(term_), 0);

  EXPECT_THAT(store_->Admit(old_term, Grant(), Identity("k")), FailsWith(FailureKind::kStaleEpoch));
  const Admission next = *store_->Admit(term_, Grant(), Identity("k"));
  EXPECT_TRUE(next.known);
  EXPECT_TRUE(next.granted);
  EXPECT_EQ(next.key, (AttemptKey{comes_back.session, Epoch(2)}));

  EXPECT_EQ(*store_->EndAbandoned(term_), 1);
  EXPECT_EQ(*store_->EndAbandoned(term_), 0);
  EXPECT_EQ((*store_->FindAttempt(stays_away))->state, AttemptState::kFenced);
  EXPECT_EQ((*store_->FindAttempt({stays_away.session, Epoch(2)}))->state, AttemptState::kFailed);
  EXPECT_THAT(store_->GrantEpoch(term_, Grant(stays_away.session)),
              StatusHas(absl::StatusCode::kFailedPrecondition, HasSubstr("failed")));
  EXPECT_EQ((*store_->FindAttempt(next.key))->state, AttemptState::kOpen);
  ExpectSound();
}

TEST_P(LedgerTest, TheFloorPassesOnlyWhatIsOverForLongEnough) {
  const AttemptKey first = store_->Admit(term_, Grant(), Identity("k"))->key;
  const AttemptKey second = Granted();
  const AttemptKey third = Granted();
  const absl::Duration retention = absl::Hours(24);
  Finish(first, Record(AttemptState::kCompleted));
  Finish(third, Record(AttemptState::kCompleted));
  clock_.now = clock_.now + absl::Minutes(2);
  EXPECT_EQ(*store_->RaiseFloor(term_, retention), SessionId());
  clock_.now = clock_.now + absl::Hours(23);
  EXPECT_EQ(*store_->RaiseFloor(term_, retention), SessionId());
  clock_.now = clock_.now + absl::Hours(1);
  // The second still runs: it pins the third.
  EXPECT_EQ(*store_->RaiseFloor(term_, retention), second.session);
  EXPECT_EQ(*store_->Floor(), second.session);

  RequestIdentity back = Identity("k");
  back.session = first.session;
  EXPECT_THAT(store_->Admit(term_, Grant(), back), FailsWith(FailureKind::kStaleEpoch));
  // Records outlive their session, and still stand against a late finish.
  EXPECT_EQ(Finish(first, Record(AttemptState::kFailed)), Record(AttemptState::kCompleted));
  Finish(second, Record(AttemptState::kFailed));
  clock_.now = clock_.now + absl::Minutes(2);
  EXPECT_EQ(*store_->RaiseFloor(term_, retention), second.session);
  clock_.now = clock_.now + retention;
  EXPECT_EQ(*store_->RaiseFloor(term_, retention), third.session.Next());
  EXPECT_EQ(All().size(), 3U);
  ExpectSound();
}

TEST_P(LedgerTest, ARestoredLedgerEndsWhatWasOpenAndNeverRepeatsANumber) {
  const AttemptKey open = Granted();
  const PlanEpoch plan = *store_->CreatePlan(term_, "p");
  const Incarnation life = *store_->NextIncarnationBlock(term_);
  ASSERT_THAT(store_->RaiseGeneration(Term(40)), IsOk());
  EXPECT_THAT(store_->CreateSession(term_), FailsWith(FailureKind::kStaleEpoch));
  term_ = *store_->BeginTerm();
  EXPECT_EQ(term_, Term(41));
  EXPECT_EQ((*store_->FindAttempt(open))->state, AttemptState::kFenced);
  EXPECT_EQ((*store_->FindAttempt({open.session, Epoch(2)}))->state, AttemptState::kFailed);
  const uint64_t base = GenerationBase(2);
  EXPECT_EQ(*store_->CreateSession(term_), SessionId(base + 1));
  EXPECT_EQ(*store_->CreatePlan(term_, "q"), PlanEpoch(base + 1));
  EXPECT_EQ(*store_->NextIncarnationBlock(term_), Incarnation(base + 1));
  EXPECT_GT(base, plan.value() + life.value() + kIncarnationBlockSize);
  ExpectSound();
}

TEST_P(LedgerTest, RecordsAreFoundBySessionByStateAndInPages) {
  const AttemptKey first = Granted();
  ASSERT_THAT(store_->GrantEpoch(term_, Grant(first.session)), IsOk());
  Finish({first.session, Epoch(2)}, Record(AttemptState::kCompleted));
  for (int i = 0; i < 5; ++i) Finish(Granted(), Record(AttemptState::kFailed));
  EXPECT_EQ(store_->ListRecords({.session = first.session})->size(), 2U);
  EXPECT_EQ(*store_->CountRecords({.state = AttemptState::kFailed}), 5U);
  EXPECT_EQ(*store_->CountRecords({.session = first.session, .state = AttemptState::kFenced}), 1U);
  const auto page = *store_->ListRecords({.state = AttemptState::kFailed, .after = 4, .limit = 2});
  ASSERT_EQ(page.size(), 2U);
  EXPECT_EQ(page[0].sequence, 5U);
  EXPECT_EQ(page[1].sequence, 6U);
}

}  // namespace
}  // namespace shardline
