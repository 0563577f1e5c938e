#include "coordinator/store/ledger_audit.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline {
namespace {

constexpr size_t kProblemsMax = 100;  // More say nothing new.

void Append(uint64_t value, std::string& bytes) {
  char little_endian[8];
  for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<char>(value >> (8 * i));
  bytes.append(little_endian, sizeof(little_endian));
}

void Append(std::string_view text, std::string& bytes) {
  Append(text.size(), bytes);
  bytes.append(text);
}

}  // namespace

std::string LedgerHash(std::string_view previous, const LedgerEntry& entry) {
  std::string bytes;
  bytes.reserve(256 + entry.route.size() + entry.record.detail.size());
  Append(previous, bytes);
  for (const uint64_t number :
       {entry.sequence, entry.key.session.value(), entry.key.epoch.value(), entry.term.value(),
        entry.plan.value(), static_cast<uint64_t>(entry.record.state), entry.record.prompt_tokens,
        entry.record.tokens, entry.record.work_tokens, entry.record.digest,
        static_cast<uint64_t>(entry.record.kind), static_cast<uint64_t>(entry.finished_unix_ms)}) {
    Append(number, bytes);
  }
  Append(entry.route, bytes);
  Append(entry.record.detail, bytes);
  // Fetched once: EVP_sha256() would be looked up again for every record.
  static EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  SL_CHECK(sha256 != nullptr);
  std::string hash(32, '\0');
  SL_CHECK(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(hash.data()),
                      nullptr, sha256, nullptr) == 1);
  return hash;
}

void LedgerAudit::AddProblem(std::string problem) {
  if (verdict_.problems.size() < kProblemsMax) verdict_.problems.push_back(std::move(problem));
}

void LedgerAudit::AddRecord(const LedgerEntry& entry) {
  const std::string name =
      absl::StrCat("record ", entry.sequence, " (session ", entry.key.session.value(), ", epoch ",
                   entry.key.epoch.value(), ")");
  if (entry.sequence != sequence_ + 1) {
    AddProblem(absl::StrCat(name, ": follows record ", sequence_));
  }
  sequence_ = entry.sequence;
  if (entry.hash != LedgerHash(verdict_.head_hash, entry)) {
    AddProblem(absl::StrCat(name, ": its hash does not fit its content or the record before it"));
  }
  verdict_.head_hash = entry.hash;

  Last& last = last_[entry.key.session];
  if (entry.key.epoch != last.epoch.Next()) {
    AddProblem(absl::StrCat(name, ": follows epoch ", last.epoch.value()));
  }
  if (last.state == AttemptState::kCompleted) {
    AddProblem(absl::StrCat(name, ": the session was completed by record ", last.sequence));
  }
  last = {.epoch = entry.key.epoch, .state = entry.record.state, .sequence = entry.sequence};

  ++verdict_.records;
  verdict_.work_tokens += entry.record.work_tokens;
  if (entry.record.state == AttemptState::kOpen) {
    AddProblem(absl::StrCat(name, ": it is not terminal"));
  }
  if (entry.record.state != AttemptState::kCompleted) {
    verdict_.wasted_tokens += entry.record.work_tokens;
    return;
  }
  verdict_.billed_tokens += entry.record.tokens;
  if (entry.record.tokens > entry.record.work_tokens) {
    AddProblem(absl::StrCat(name, ": bills ", entry.record.tokens, " tokens of ",
                            entry.record.work_tokens, " worked"));
  } else {
    verdict_.wasted_tokens += entry.record.work_tokens - entry.record.tokens;
  }
}

void LedgerAudit::AddSession(SessionId session, Epoch last, uint64_t outcome, bool open) {
  const std::string name = absl::StrCat("session ", session.value());
  auto found = last_.find(session);
  const Last recorded = found == last_.end() ? Last{} : found->second;
  if (open) ++verdict_.open_attempts;
  const uint64_t expected = recorded.epoch.value() + (open ? 1 : 0);
  if (last.value() != expected) {
    AddProblem(absl::StrCat(name, ": epoch ", last.value(), " was granted, its records and open ",
                            "attempts end at ", expected));
  }
  if (open && outcome != 0) AddProblem(absl::StrCat(name, ": an attempt is open after its end"));
  if (outcome != 0 && outcome != recorded.sequence) {
    AddProblem(absl::StrCat(name, ": its outcome is record ", outcome, ", its last record is ",
                            recorded.sequence));
  }
  const bool fenced = recorded.state == AttemptState::kFenced;
  if (outcome != 0 && fenced) AddProblem(absl::StrCat(name, ": its outcome is fenced"));
  if (outcome == 0 && !open && recorded.sequence != 0 && !fenced) {
    AddProblem(absl::StrCat(name, ": record ", recorded.sequence, " ended it, it has no outcome"));
  }
}

}  // namespace shardline
