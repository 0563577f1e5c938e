#pragma once

// The Store in memory, for the simulator and as SqliteStore's twin: the same answers, no SQL.
//
// It plays the disk's failures, too. A crash of the coordinator is the end of the old Term and the
// beginning of a new one on the same object; a restored backup is Clone() from earlier and
// RaiseGeneration(). Hashes are computed when somebody asks for them.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/store/session_ages.h"
#include "coordinator/store/store.h"

namespace shardline::testing {

// What a write meets.
enum class StoreFault {
  kNone,
  kFull,         // The disk: nothing that takes room is written; records and takeovers have theirs.
  kLostWrite,    // An I/O error, and the write is not there. Breaks the store.
  kUnheardWrite  // An I/O error, and the write is there all the same. Breaks the store.
};

class MemoryStore final : public Store {
 public:
  // `clock` outlives the store. Records are stamped with its milliseconds.
  explicit MemoryStore(const Clock* clock);

  // Of every write from now on. A broken store stays broken until Reopen.
  void SetFault(StoreFault fault) { fault_ = fault; }
  bool broken() const { return broken_; }
  // As closing and opening the file: mends what is broken; ages of sessions count anew.
  void Reopen();
  // The whole store as of now: a backup.
  std::unique_ptr<MemoryStore> Clone() const;

  absl::StatusOr<Term> BeginTerm() override;
  absl::Status RaiseGeneration(Term term_at_least) override;
  absl::StatusOr<Incarnation> NextIncarnationBlock(Term term) override;
  absl::StatusOr<SessionId> CreateSession(Term term) override;
  absl::StatusOr<Epoch> GrantEpoch(Term term, const AttemptGrant& grant) override;
  absl::StatusOr<AttemptKey> CreateAndGrant(Term term, const AttemptGrant& grant) override;
  absl::StatusOr<Admission> Admit(Term term, const AttemptGrant& grant,
                                  const RequestIdentity& identity) override;
  absl::StatusOr<AttemptRecord> FinishAttempt(Term term, const AttemptKey& key,
                                              const AttemptRecord& record,
                                              absl::Span<const int32_t> tokens) override;
  absl::StatusOr<std::optional<AttemptRecord>> FindAttempt(const AttemptKey& key) override;
  absl::StatusOr<std::vector<UnfinishedAttempt>> OpenAttempts() override;
  absl::StatusOr<int64_t> FenceAllOpen(Term term) override;
  absl::StatusOr<int64_t> EndAbandoned(Term term) override;
  absl::StatusOr<std::vector<LedgerEntry>> ListRecords(const LedgerQuery& query) override;
  absl::StatusOr<uint64_t> CountRecords(const LedgerQuery& query) override;
  absl::StatusOr<LedgerVerdict> VerifyLedger() override;
  absl::StatusOr<SessionId> Floor() override;
  absl::StatusOr<SessionId> RaiseFloor(Term term, absl::Duration retention) override;
  absl::StatusOr<PlanEpoch> CreatePlan(Term term, std::string_view text) override;
  absl::StatusOr<std::optional<StoredPlan>> LatestPlan() override;
  absl::StatusOr<std::vector<StoredPlan>> Plans() override;
  absl::Status ForgetPlan(Term term, PlanEpoch epoch) override;
  absl::Status RememberNode(Term term, const NodeId& node, std::string_view address) override;
  absl::StatusOr<std::vector<NodeId>> KnownNodes() override;
  absl::Status ForgetNode(Term term, const NodeId& node) override;
  absl::Status PutManifest(const FileKey& file, std::string_view manifest) override;
  absl::StatusOr<std::optional<std::string>> FindManifest(const FileKey& file) override;

 private:
  struct Open {
    Epoch epoch;
    Term term;
    PlanEpoch plan;
    std::string route;
  };
  struct Session {
    Epoch epoch;  // The last one granted.
    Term term;    // That created it or granted last.
    uint64_t outcome = 0;
    std::string tenant;
    std::string key;
    uint64_t digest = 0;
    std::vector<int32_t> tokens;
    std::optional<Open> open;
  };
  using Sessions = std::map<SessionId, Session>;

  MemoryStore(const MemoryStore&) = default;

  // Whether a write may begin; `takes_room` says that a full disk refuses it.
  absl::Status BeginWrite(bool takes_room);
  absl::Status BeginWriteIn(Term term, bool takes_room);
  // What the caller hears of a write that is in memory now.
  absl::Status EndWrite();

  absl::StatusOr<SessionId> Insert(Term term, const RequestIdentity& identity);
  Epoch Grant(Term term, SessionId id, Session& session, const AttemptGrant& grant);
  // Writes the record of the open attempt, or of one that never opened.
  void Record(SessionId id, Session& session, const Open& attempt, const AttemptRecord& record);
  void End(Term term, SessionId id, Session& session, std::string_view why);
  absl::StatusOr<Sessions::iterator> FindKnown(const RequestIdentity& identity);
  void HashAll();

  const Clock* const clock_;
  StoreFault fault_ = StoreFault::kNone;
  bool broken_ = false;

  uint64_t generation_ = 1;
  Term term_;
  uint64_t session_sequence_ = 0;
  uint64_t incarnation_ = 1;
  uint64_t plan_ = 0;
  SessionId floor_;
  Sessions sessions_;
  std::map<std::pair<std::string, std::string>, SessionId> keys_;  // By tenant and key.
  std::vector<LedgerEntry> records_;                               // By sequence, from 1.
  absl::flat_hash_map<AttemptKey, uint64_t> record_of_;
  size_t hashed_ = 0;  // Of records_, from the front.
  SessionAges ages_;
  std::map<PlanEpoch, std::string> plans_;
  std::map<NodeId, std::string> nodes_;
  std::map<std::string, std::pair<FileKey, std::string>> manifests_;
};

}  // namespace shardline::testing
