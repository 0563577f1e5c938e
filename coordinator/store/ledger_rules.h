#pragma once

// What every Store answers alike: limits, and the words of its refusals. Pure.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/id.h"
#include "coordinator/store/store.h"

namespace shardline {

inline constexpr size_t kDetailBytesMax = 256;
inline constexpr size_t kRouteBytesMax = 512;
inline constexpr size_t kKeyBytesMax = 256;  // Of a tenant, too.

// (ledger generation : 15, sequence : 48). The highest bit stays clear, for numbers are kept as
// signed integers.
inline constexpr uint64_t kSequenceBits = 48;
inline constexpr uint64_t kGenerationMax = 32767;

// Where the numbers of a generation begin.
constexpr uint64_t GenerationBase(uint64_t generation) { return generation << kSequenceBits; }

// Why a session ends that no request will end.
inline constexpr char kAbandoned[] = "no client came back after the coordinator was lost";
inline constexpr char kRestored[] = "the ledger was restored from a backup";

// At most `bytes_max` of `text`, without half a UTF-8 character at the end.
std::string Cut(std::string_view text, size_t bytes_max);
// `record` as the ledger keeps it: its detail cut.
AttemptRecord AsKept(const AttemptRecord& record);
// The record of the attempt that `grant` takes the place of, as kept.
AttemptRecord PreviousRecord(const AttemptGrant& grant);
// Of a session that was left without an outcome.
AttemptRecord AbandonedRecord(std::string_view why);
AttemptRecord TakenOverRecord();

// The refusals. `where` names the store.
absl::Status OldTerm(const std::string& where, Term term, Term newest);
absl::Status NoSession(SessionId session);
absl::Status NoAttempt(const AttemptKey& key);
absl::Status BelowFloor(SessionId session, SessionId floor);
absl::Status HasOutcome(SessionId session, AttemptState outcome);
absl::Status NumbersUsedUp(const std::string& where);
// OK, or kInvalidRequest.
absl::Status CheckIdentity(const RequestIdentity& identity);
// OK, or why a request with `identity` is not about the session that is kept so.
absl::Status CheckSameRequest(SessionId session, const RequestIdentity& identity,
                              std::string_view tenant, std::string_view key, uint64_t digest);

}  // namespace shardline
