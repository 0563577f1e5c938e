#include "coordinator/store/ledger_rules.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline {

std::string Cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  const auto continues = [&text](size_t at) { return (text[at] & 0xC0) == 0x80; };
  while (end > 0 && continues(end)) --end;
  return std::string(text.substr(0, end));
}

AttemptRecord AsKept(const AttemptRecord& record) {
  SL_CHECK(record.state != AttemptState::kOpen);
  AttemptRecord kept = record;
  kept.detail = Cut(kept.detail, kDetailBytesMax);
  return kept;
}

AttemptRecord PreviousRecord(const AttemptGrant& grant) {
  if (!grant.previous) return AttemptRecord{.state = AttemptState::kFenced};
  SL_CHECK(grant.previous->state != AttemptState::kCompleted);
  return AsKept(*grant.previous);
}

AttemptRecord AbandonedRecord(std::string_view why) {
  return AttemptRecord{
      .state = AttemptState::kFailed, .kind = FailureKind::kUncertain, .detail = std::string(why)};
}

AttemptRecord TakenOverRecord() {
  return AttemptRecord{.state = AttemptState::kFenced, .detail = "taken over"};
}

absl::Status OldTerm(const std::string& where, Term term, Term newest) {
  return MakeFailure(FailureKind::kStaleEpoch,
                     absl::StrCat("store ", where, ": term ", term.value(),
                                  " is not the newest, which is ", newest.value()));
}

absl::Status NoSession(SessionId session) {
  return absl::NotFoundError(absl::StrCat("no session ", session.value()));
}

absl::Status NoAttempt(const AttemptKey& key) {
  return absl::NotFoundError(
      absl::StrCat("no attempt ", key.session.value(), "/", key.epoch.value()));
}

absl::Status BelowFloor(SessionId session, SessionId floor) {
  return MakeFailure({.kind = FailureKind::kStaleEpoch, .session = session},
                     absl::StrCat("session ", session.value(),
                                  " is over and forgotten: the floor is ", floor.value()));
}

absl::Status HasOutcome(SessionId session, AttemptState outcome) {
  return absl::FailedPreconditionError(absl::StrCat(
      "session ", session.value(), " has its outcome: ", std::string(AttemptStateName(outcome))));
}

absl::Status NumbersUsedUp(const std::string& where) {
  return absl::OutOfRangeError(absl::StrCat("store ", where, ": all numbers are used"));
}

absl::Status CheckIdentity(const RequestIdentity& identity) {
  if (identity.key.size() > kKeyBytesMax || identity.tenant.size() > kKeyBytesMax) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("an idempotency key of ", identity.key.size(), " bytes for a tenant of ",
                     identity.tenant.size(), "; each may have ", kKeyBytesMax));
  }
  return absl::OkStatus();
}

absl::Status CheckSameRequest(SessionId session, const RequestIdentity& identity,
                              std::string_view tenant, std::string_view key, uint64_t digest) {
  if (identity.tenant != tenant) return NoSession(session);
  const bool other_key = !identity.key.empty() && identity.key != key;
  if (other_key || identity.digest != digest) {
    return MakeFailure({.kind = FailureKind::kKeyConflict, .session = session},
                       absl::StrCat("session ", session.value(), " belongs to another ",
                                    other_key ? "key" : "request with the same key"));
  }
  return absl::OkStatus();
}

bool StoreIsBroken(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsDataLoss(status);
}

std::string_view AttemptStateName(AttemptState state) {
  switch (state) {
    case AttemptState::kOpen:
      return "open";
    case AttemptState::kCompleted:
      return "completed";
    case AttemptState::kFailed:
      return "failed";
    case AttemptState::kCancelled:
      return "cancelled";
    case AttemptState::kExpired:
      return "expired";
    case AttemptState::kFenced:
      return "fenced";
    case AttemptState::kUnverified:
      return "unverified";
  }
  return "unknown";
}

}  // namespace shardline
