#include "tests/support/memory_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/planted_bug.h"
#include "base/status_macros.h"
#include "coordinator/store/ledger_audit.h"
#include "coordinator/store/ledger_rules.h"

namespace shardline::testing {
namespace {

constexpr char kName[] = "in memory";

bool Matches(const LedgerQuery& query, const LedgerEntry& entry) {
  return (!query.session || *query.session == entry.key.session) &&
         (!query.state || *query.state == entry.record.state);
}

}  // namespace

MemoryStore::MemoryStore(const Clock* clock) : clock_(clock), ages_(clock->Now(), 0) {}

void MemoryStore::Reopen() {
  broken_ = false;
  ages_ = SessionAges(clock_->Now(), records_.size());
}

std::unique_ptr<MemoryStore> MemoryStore::Clone() const {
  return std::unique_ptr<MemoryStore>(new MemoryStore(*this));
}

absl::Status MemoryStore::BeginWrite(bool takes_room) {
  if (broken_ || fault_ == StoreFault::kLostWrite) {
    broken_ = true;
    return absl::InternalError("store in memory: I/O error");
  }
  if (takes_room && fault_ == StoreFault::kFull) {
    return MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(10)},
                       "store in memory: the disk is full");
  }
  return absl::OkStatus();
}

absl::Status MemoryStore::BeginWriteIn(Term term, bool takes_room) {
  SL_RETURN_IF_ERROR(BeginWrite(takes_room));
  return term == term_ ? absl::OkStatus() : OldTerm(kName, term, term_);
}

absl::Status MemoryStore::EndWrite() {
  if (fault_ != StoreFault::kUnheardWrite) return absl::OkStatus();
  broken_ = true;
  return absl::InternalError("store in memory: I/O error");
}

absl::StatusOr<Term> MemoryStore::BeginTerm() {
  SL_RETURN_IF_ERROR(BeginWrite(false));
  term_ = term_.Next();
  SL_RETURN_IF_ERROR(EndWrite());
  return term_;
}

absl::Status MemoryStore::RaiseGeneration(Term term_at_least) {
  SL_RETURN_IF_ERROR(BeginWrite(false));
  if (generation_ >= kGenerationMax) return NumbersUsedUp(kName);
  ++generation_;
  session_sequence_ = 0;
  term_ = std::max(term_, term_at_least);
  incarnation_ = std::max(incarnation_, GenerationBase(generation_) + 1);
  plan_ = std::max(plan_, GenerationBase(generation_));
  for (auto& [id, session] : sessions_) {
    if (session.outcome == 0) End(term_, id, session, kRestored);
  }
  return EndWrite();
}

absl::StatusOr<Incarnation> MemoryStore::NextIncarnationBlock(Term term) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, false));
  const Incarnation first(incarnation_);
  incarnation_ += kIncarnationBlockSize;
  SL_RETURN_IF_ERROR(EndWrite());
  return first;
}

absl::StatusOr<SessionId> MemoryStore::Insert(Term term, const RequestIdentity& identity) {
  if ((session_sequence_ + 1) >> kSequenceBits != 0) return NumbersUsedUp(kName);
  const SessionId id(GenerationBase(generation_) | ++session_sequence_);
  Session& session = sessions_[id];
  session.term = term;
  session.tenant = identity.tenant;
  session.key = identity.key;
  session.digest = identity.digest;
  if (!identity.key.empty()) keys_[{identity.tenant, identity.key}] = id;
  return id;
}

void MemoryStore::Record(SessionId id, Session& session, const Open& attempt,
                         const AttemptRecord& record) {
  const AttemptKey key{id, attempt.epoch};
  records_.push_back(
      LedgerEntry{.sequence = records_.size() + 1,
                  .key = key,
                  .term = attempt.term,
                  .plan = attempt.plan,
                  .route = attempt.route,
                  .record = record,
                  .finished_unix_ms = absl::ToInt64Milliseconds(clock_->Now().since_origin()),
                  .hash = {}});
  record_of_[key] = records_.size();
  if (record.state != AttemptState::kFenced) session.outcome = records_.size();
}

Epoch MemoryStore::Grant(Term term, SessionId id, Session& session, const AttemptGrant& grant) {
  if (session.open) {
    Record(id, session, *session.open, PreviousRecord(grant));
    session.outcome = 0;
  }
  session.epoch = session.epoch.Next();
  session.term = term;
  session.open = Open{.epoch = session.epoch,
                      .term = term,
                      .plan = grant.plan,
                      .route = Cut(grant.route, kRouteBytesMax)};
  return session.epoch;
}

void MemoryStore::End(Term term, SessionId id, Session& session, std::string_view why) {
  if (session.open) {
    Record(id, session, *session.open, TakenOverRecord());
    session.open.reset();
  }
  session.epoch = session.epoch.Next();
  session.term = term;
  Record(id, session, {.epoch = session.epoch, .term = term, .plan = {}, .route = {}},
         AbandonedRecord(why));
}

absl::StatusOr<SessionId> MemoryStore::CreateSession(Term term) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  SL_ASSIGN_OR_RETURN(const SessionId id, Insert(term, {}));
  SL_RETURN_IF_ERROR(EndWrite());
  return id;
}

absl::StatusOr<Epoch> MemoryStore::GrantEpoch(Term term, const AttemptGrant& grant) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  auto session = sessions_.find(grant.session);
  if (session == sessions_.end()) return NoSession(grant.session);
  if (session->second.outcome != 0) {
    return HasOutcome(grant.session, records_[session->second.outcome - 1].record.state);
  }
  const Epoch epoch = Grant(term, grant.session, session->second, grant);
  SL_RETURN_IF_ERROR(EndWrite());
  return epoch;
}

absl::StatusOr<AttemptKey> MemoryStore::CreateAndGrant(Term term, const AttemptGrant& grant) {
  SL_ASSIGN_OR_RETURN(const Admission admission, Admit(term, grant, {}));
  return admission.key;
}

absl::StatusOr<MemoryStore::Sessions::iterator> MemoryStore::FindKnown(
    const RequestIdentity& identity) {
  auto session = sessions_.end();
  if (identity.session) {
    if (*identity.session < floor_) return BelowFloor(*identity.session, floor_);
    session = sessions_.find(*identity.session);
    if (session == sessions_.end()) return NoSession(*identity.session);
  } else if (!identity.key.empty() && !Planted(PlantedBug::kKeyForgotten)) {
    auto key = keys_.find({identity.tenant, identity.key});
    if (key != keys_.end()) session = sessions_.find(key->second);
  }
  if (session != sessions_.end()) {
    SL_RETURN_IF_ERROR(CheckSameRequest(session->first, identity, session->second.tenant,
                                        session->second.key, session->second.digest));
  }
  return session;
}

absl::StatusOr<Admission> MemoryStore::Admit(Term term, const AttemptGrant& grant,
                                             const RequestIdentity& identity) {
  // A known session whose outcome is asked for is told it even by a full disk.
  SL_RETURN_IF_ERROR(BeginWriteIn(term, false));
  SL_RETURN_IF_ERROR(CheckIdentity(identity));
  SL_ASSIGN_OR_RETURN(auto session, FindKnown(identity));
  Admission admission;
  admission.known = session != sessions_.end();
  if (admission.known) {
    Session& known = session->second;
    admission.key = {session->first, known.epoch};
    if (known.outcome != 0) {
      admission.outcome = records_[known.outcome - 1].record;
      admission.tokens = known.tokens;
      return admission;
    }
    if (known.open && known.open->term == term) return admission;
  }
  SL_RETURN_IF_ERROR(BeginWrite(true));
  if (!admission.known) {
    SL_ASSIGN_OR_RETURN(const SessionId id, Insert(term, identity));
    session = sessions_.find(id);
  }
  const Epoch epoch = Grant(term, session->first, session->second, grant);
  admission.key = {session->first, epoch};
  admission.granted = true;
  SL_RETURN_IF_ERROR(EndWrite());
  return admission;
}

absl::StatusOr<AttemptRecord> MemoryStore::FinishAttempt(Term term, const AttemptKey& key,
                                                         const AttemptRecord& record,
                                                         absl::Span<const int32_t> tokens) {
  const bool guarded = !Planted(PlantedBug::kTermAndStateIgnored);
  SL_RETURN_IF_ERROR(guarded ? BeginWriteIn(term, false) : BeginWrite(false));
  const AttemptRecord kept = AsKept(record);
  auto session = sessions_.find(key.session);
  const bool known = session != sessions_.end();
  const bool open = known && session->second.open && session->second.open->epoch == key.epoch;
  if (!open) {
    auto standing = record_of_.find(key);
    if (standing == record_of_.end()) return NoAttempt(key);
    LedgerEntry& entry = records_[standing->second - 1];
    if (Planted(PlantedBug::kFinishOverwrites)) entry.record = kept;
    if (guarded || !known) return entry.record;
    Record(key.session, session->second, {key.epoch, term, entry.plan, entry.route}, kept);
    return kept;
  }
  const Open attempt = *std::move(session->second.open);
  session->second.open.reset();
  Record(key.session, session->second, attempt, kept);
  if (kept.state != AttemptState::kFenced && !session->second.key.empty()) {
    session->second.tokens.assign(tokens.begin(), tokens.end());
  }
  SL_RETURN_IF_ERROR(EndWrite());
  return kept;
}

absl::StatusOr<std::optional<AttemptRecord>> MemoryStore::FindAttempt(const AttemptKey& key) {
  auto record = record_of_.find(key);
  if (record != record_of_.end()) return std::optional(records_[record->second - 1].record);
  auto session = sessions_.find(key.session);
  if (session == sessions_.end() || !session->second.open ||
      session->second.open->epoch != key.epoch) {
    return std::optional<AttemptRecord>();
  }
  return std::optional<AttemptRecord>(AttemptRecord());
}

absl::StatusOr<std::vector<UnfinishedAttempt>> MemoryStore::OpenAttempts() {
  std::vector<UnfinishedAttempt> open;
  for (const auto& [id, session] : sessions_) {
    if (!session.open) continue;
    open.push_back({.key = {id, session.open->epoch},
                    .term = session.open->term,
                    .route = session.open->route});
  }
  return open;
}

absl::StatusOr<int64_t> MemoryStore::FenceAllOpen(Term term) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, false));
  int64_t fenced = 0;
  for (auto& [id, session] : sessions_) {
    if (!session.open) continue;
    Record(id, session, *session.open, TakenOverRecord());
    session.open.reset();
    ++fenced;
  }
  SL_RETURN_IF_ERROR(EndWrite());
  return fenced;
}

absl::StatusOr<int64_t> MemoryStore::EndAbandoned(Term term) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, false));
  int64_t ended = 0;
  for (auto& [id, session] : sessions_) {
    if (session.outcome != 0 || session.term >= term) continue;
    End(term, id, session, kAbandoned);
    ++ended;
  }
  SL_RETURN_IF_ERROR(EndWrite());
  return ended;
}

void MemoryStore::HashAll() {
  for (; hashed_ < records_.size(); ++hashed_) {
    records_[hashed_].hash = LedgerHash(
        hashed_ == 0 ? std::string_view() : records_[hashed_ - 1].hash, records_[hashed_]);
  }
}

absl::StatusOr<std::vector<LedgerEntry>> MemoryStore::ListRecords(const LedgerQuery& query) {
  HashAll();
  std::vector<LedgerEntry> found;
  for (size_t i = query.after; i < records_.size() && found.size() < query.limit; ++i) {
    if (Matches(query, records_[i])) found.push_back(records_[i]);
  }
  return found;
}

absl::StatusOr<uint64_t> MemoryStore::CountRecords(const LedgerQuery& query) {
  return static_cast<uint64_t>(
      std::count_if(records_.begin(), records_.end(),
                    [&query](const LedgerEntry& entry) { return Matches(query, entry); }));
}

absl::StatusOr<LedgerVerdict> MemoryStore::VerifyLedger() {
  HashAll();
  LedgerAudit audit;
  for (const LedgerEntry& entry : records_) audit.AddRecord(entry);
  for (const auto& [id, session] : sessions_) {
    audit.AddSession(id, session.epoch, session.outcome, session.open.has_value());
  }
  return audit.Verdict();
}

absl::StatusOr<SessionId> MemoryStore::Floor() { return floor_; }

absl::StatusOr<SessionId> MemoryStore::RaiseFloor(Term term, absl::Duration retention) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  const uint64_t older = ages_.Older(clock_->Now(), records_.size(), retention);
  auto end = sessions_.begin();
  for (uint64_t i = 0; i < kFloorStepMax && end != sessions_.end(); ++i, ++end) {
    if (end->second.outcome == 0 || end->second.outcome > older) break;
    floor_ = end->first.Next();
    if (!end->second.key.empty()) keys_.erase({end->second.tenant, end->second.key});
  }
  sessions_.erase(sessions_.begin(), end);
  SL_RETURN_IF_ERROR(EndWrite());
  return floor_;
}

absl::StatusOr<PlanEpoch> MemoryStore::CreatePlan(Term term, std::string_view text) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  const PlanEpoch epoch(++plan_);
  plans_.emplace(epoch, text);
  SL_RETURN_IF_ERROR(EndWrite());
  return epoch;
}

absl::StatusOr<std::optional<StoredPlan>> MemoryStore::LatestPlan() {
  if (plans_.empty()) return std::optional<StoredPlan>();
  return std::optional(StoredPlan{plans_.rbegin()->first, plans_.rbegin()->second});
}

absl::StatusOr<std::vector<StoredPlan>> MemoryStore::Plans() {
  std::vector<StoredPlan> plans;
  for (const auto& [epoch, text] : plans_) plans.push_back({epoch, text});
  return plans;
}

absl::Status MemoryStore::ForgetPlan(Term term, PlanEpoch epoch) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  plans_.erase(epoch);
  return EndWrite();
}

absl::Status MemoryStore::RememberNode(Term term, const NodeId& node, std::string_view address) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  nodes_[node] = std::string(address);
  return EndWrite();
}

absl::StatusOr<std::vector<NodeId>> MemoryStore::KnownNodes() {
  std::vector<NodeId> nodes;
  for (const auto& [node, address] : nodes_) nodes.push_back(node);
  return nodes;
}

absl::Status MemoryStore::ForgetNode(Term term, const NodeId& node) {
  SL_RETURN_IF_ERROR(BeginWriteIn(term, true));
  nodes_.erase(node);
  return EndWrite();
}

absl::Status MemoryStore::PutManifest(const FileKey& file, std::string_view manifest) {
  SL_RETURN_IF_ERROR(BeginWrite(true));
  manifests_[file.path] = {file, std::string(manifest)};
  return EndWrite();
}

absl::StatusOr<std::optional<std::string>> MemoryStore::FindManifest(const FileKey& file) {
  auto found = manifests_.find(file.path);
  if (found == manifests_.end() || found->second.first.size != file.size ||
      found->second.first.modified_ns != file.modified_ns) {
    return std::optional<std::string>();
  }
  return std::optional(found->second.second);
}

}  // namespace shardline::testing
