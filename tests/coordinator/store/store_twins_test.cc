// SqliteStore and MemoryStore answer alike, whatever they are asked.

#include <random>

#include "absl/strings/str_cat.h"
#include "coordinator/store/sqlite_store.h"
#include "gtest/gtest.h"
#include "tests/support/memory_store.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;
using ::shardline::testing::MemoryStore;
using ::shardline::testing::StatusOf;

constexpr int kRuns = 40;
constexpr int kOperations = 5000;  // Of one run.

class SetClock final : public Clock {
 public:
  Instant Now() const override { return now; }
  Instant now;
};

std::string Text(const absl::Status& status) {
  return absl::StrCat(status.code() == absl::StatusCode::kOk ? "" : "failed ",
                      static_cast<int>(status.code()), "/",
                      static_cast<int>(FailureKindOf(status)));
}
std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(uint64_t value) { return absl::StrCat(value); }
template <typename Tag>
std::string Text(Id<Tag> id) {
  return absl::StrCat(id.value());
}
std::string Text(const AttemptKey& key) {
  return absl::StrCat(key.session.value(), "/", key.epoch.value());
}
std::string Text(const AttemptRecord& record) {
  return absl::StrCat("[", std::string(AttemptStateName(record.state)), " ", record.prompt_tokens,
                      " ", record.tokens, " ", record.work_tokens, " ", record.digest, " ",
                      static_cast<int>(record.kind), " ", record.detail, "]");
}
std::string Text(const Admission& admission) {
  std::string text =
      absl::StrCat(Text(admission.key), " granted ", admission.granted, " known ", admission.known);
  if (admission.outcome) absl::StrAppend(&text, Text(*admission.outcome));
  for (const int32_t token : admission.tokens) absl::StrAppend(&text, " ", token);
  return text;
}
std::string Text(const UnfinishedAttempt& open) {
  return absl::StrCat(Text(open.key), " of ", open.term.value(), " on ", open.route);
}
std::string Text(const LedgerEntry& entry) {
  return absl::StrCat(entry.sequence, ": ", Text(entry.key), " ", entry.term.value(), " ",
                      entry.plan.value(), " ", entry.route, Text(entry.record), " ",
                      entry.finished_unix_ms, " ", entry.hash);
}
std::string Text(const LedgerVerdict& verdict) {
  std::string text =
      absl::StrCat(verdict.records, " ", verdict.open_attempts, " ", verdict.billed_tokens, " ",
                   verdict.wasted_tokens, " ", verdict.work_tokens, " ", verdict.head_hash);
  for (const std::string& problem : verdict.problems) absl::StrAppend(&text, "\n", problem);
  return text;
}
template <typename T>
std::string Text(const std::optional<T>& value) {
  return value ? Text(*value) : "none";
}
template <typename T>
std::string Text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) absl::StrAppend(&text, Text(value), "\n");
  return text;
}
template <typename T>
std::string Text(const absl::StatusOr<T>& value) {
  return value.ok() ? Text(*value) : Text(value.status());
}

// Asks both the same, from a seed. Names few sessions, keys and terms, so that they meet often.
class Twins {
 public:
  explicit Twins(uint64_t seed)
      : random_(seed),
        memory_(&clock_),
        sqlite_(*OpenSqliteStore(":memory:", {.clock = &clock_, .unix_ms = [this] {
                                                return absl::ToInt64Milliseconds(
                                                    clock_.now.since_origin());
                                              }})) {}

  // Says what was asked and what differs; empty when nothing does.
  std::string Step() {
    clock_.now = clock_.now + absl::Milliseconds(Below(2000));
    switch (Below(20)) {
      case 0:
        if (Below(8) == 0) return Begin();
        return Compare("open", [](Store& store) { return store.OpenAttempts(); });
      case 1:
        return Compare("create", [t = AnyTerm()](Store& store) { return store.CreateSession(t); });
      case 2:
      case 3:
        return Compare("grant", [t = AnyTerm(), grant = AnyGrant()](Store& store) {
          return store.GrantEpoch(t, grant);
        });
      case 4:
        return Compare("create and grant", [t = AnyTerm(), grant = AnyGrant()](Store& store) {
          return store.CreateAndGrant(t, grant);
        });
      case 5:
      case 6:
      case 7:
      case 8:
        return Compare("admit", [t = AnyTerm(), grant = AnyGrant(), identity = AnyIdentity()](
                                    Store& store) { return store.Admit(t, grant, identity); });
      case 9:
      case 10:
      case 11:
      case 12:
      case 13:
        return Compare("finish", [t = AnyTerm(), key = AnyAttempt(), record = AnyRecord(),
                                  tokens = AnyTokens()](Store& store) {
          return store.FinishAttempt(t, key, record, tokens);
        });
      case 14:
        return Compare("find", [key = AnyAttempt()](Store& s) { return s.FindAttempt(key); });
      case 15:
        return Compare("list", [query = AnyQuery()](Store& s) { return s.ListRecords(query); });
      case 16:
        return Compare("count", [query = AnyQuery()](Store& s) { return s.CountRecords(query); });
      case 17:
        return Compare("raise the floor",
                       [t = AnyTerm(), retention = absl::Seconds(Below(200))](Store& store) {
                         return store.RaiseFloor(t, retention);
                       });
      case 18:
        return Compare("abandon", [t = AnyTerm()](Store& s) { return s.EndAbandoned(t); });
      default:
        return Rare();
    }
  }

  std::string CompareAll() {
    std::string difference = Compare("verify", [](Store& store) { return store.VerifyLedger(); });
    if (!difference.empty()) return difference;
    return Compare("list all", [](Store& store) { return store.ListRecords({.limit = ~0ULL}); });
  }
  size_t problems() { return memory_.VerifyLedger()->problems.size(); }
  uint64_t records() { return memory_.VerifyLedger()->records; }

 private:
  template <typename Ask>
  std::string Compare(const char* what, Ask ask) {
    const std::string in_sqlite = Text(ask(*sqlite_));
    const std::string in_memory = Text(ask(memory_));
    if (in_sqlite == in_memory) return "";
    return absl::StrCat(what, ": SQLite says\n", in_sqlite, "\nmemory says\n", in_memory);
  }

  std::string Begin() {
    std::string difference = Compare("begin", [this](Store& store) {
      const auto term = store.BeginTerm();
      if (term.ok()) term_ = *term;
      return term;
    });
    if (!difference.empty() || Below(2) == 0) return difference;
    return Compare("fence", [this](Store& store) { return store.FenceAllOpen(term_); });
  }
  std::string Rare() {
    switch (Below(24)) {
      case 0:
        return Compare("restore", [t = Term(Below(5) + term_.value())](Store& store) {
          return store.RaiseGeneration(t);
        });
      case 1:
      case 2:
        return Compare("verify", [](Store& store) { return store.VerifyLedger(); });
      case 3:
        return Compare("fence", [t = AnyTerm()](Store& store) { return store.FenceAllOpen(t); });
      case 4:
        return Compare("block", [t = AnyTerm()](Store& s) { return s.NextIncarnationBlock(t); });
      case 5:
        return Compare("plan", [t = AnyTerm()](Store& store) { return store.CreatePlan(t, "p"); });
      case 6:
        return Compare("forget", [t = AnyTerm(), p = PlanEpoch(Below(9))](Store& store) {
          return store.ForgetPlan(t, p);
        });
      default:
        return Compare("floor", [](Store& store) { return store.Floor(); });
    }
  }

  uint64_t Below(uint64_t n) { return random_() % n; }
  Term AnyTerm() { return Below(16) == 0 ? Term(Below(term_.value() + 2)) : term_; }
  SessionId AnySession() {
    const SessionId floor = *memory_.Floor();
    const uint64_t base = floor.value() == 0 ? (1ULL << 48) : floor.value();
    return SessionId(base - 3 + Below(24));
  }
  AttemptKey AnyAttempt() { return {AnySession(), Epoch(Below(4) + 1)}; }
  AttemptRecord AnyRecord() {
    return {.state = static_cast<AttemptState>(Below(6) + 1),
            .prompt_tokens = Below(100),
            .tokens = Below(100),
            .work_tokens = 100 + Below(100),
            .digest = random_(),
            .kind = static_cast<FailureKind>(Below(kFailureKindCount)),
            .detail = std::string(Below(300), 'd')};
  }
  std::vector<int32_t> AnyTokens() {
    std::vector<int32_t> tokens(Below(4));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random_());
    return tokens;
  }
  AttemptGrant AnyGrant() {
    AttemptGrant grant{.session = AnySession(),
                       .plan = PlanEpoch(Below(3)),
                       .route = std::string(Below(600), 'r'),
                       .budget = absl::Milliseconds(Below(9999)),
                       .tokens_max = static_cast<uint32_t>(Below(64)),
                       .previous = {}};
    if (Below(2) == 0) {
      grant.previous = AnyRecord();
      if (grant.previous->state == AttemptState::kCompleted) grant.previous.reset();
    }
    return grant;
  }
  RequestIdentity AnyIdentity() {
    RequestIdentity identity{.tenant = Below(4) == 0 ? "b" : "a",
                             .key = Below(3) == 0 ? "" : absl::StrCat("k", Below(30)),
                             .digest = Below(20) == 0 ? 1ULL : 0ULL,
                             .session = {}};
    if (Below(200) == 0) identity.key.assign(300, 'k');
    if (Below(4) == 0) identity.session = AnySession();
    return identity;
  }
  LedgerQuery AnyQuery() {
    LedgerQuery query{.session = {}, .state = {}, .after = Below(50), .limit = Below(20)};
    if (Below(2) == 0) query.session = AnySession();
    if (Below(2) == 0) query.state = static_cast<AttemptState>(Below(7));
    return query;
  }

  std::mt19937_64 random_;
  SetClock clock_;
  MemoryStore memory_;
  std::unique_ptr<Store> sqlite_;
  Term term_;
};

TEST(StoreTwins, SqliteAndMemoryAnswerAlikeOver200000Operations) {
  uint64_t records = 0;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    Twins twins(seed);
    for (int i = 0; i < kOperations; ++i) {
      const std::string difference = twins.Step();
      ASSERT_EQ(difference, "") << "seed " << seed << ", operation " << i;
    }
    ASSERT_EQ(twins.CompareAll(), "") << "seed " << seed;
    ASSERT_EQ(twins.problems(), 0U) << "seed " << seed;
    records += twins.records();
  }
  EXPECT_GT(records, 1000U);
}

}  // namespace
}  // namespace shardline
