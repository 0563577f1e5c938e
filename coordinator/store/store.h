#pragma once

// What the coordinator must not forget: terms, incarnations, sessions, their attempts, plans.
//
// Every write is durable before its call returns, and so blocks for a disk flush: call it from
// one writer thread, never from the strand or a gRPC thread. Epochs are unique by
// compare-and-set in the store, not by time or lease; every write of the ledger names the term
// of its coordinator and is refused once a later term has begun.
//
// Errors: kStaleEpoch when a later term exists. kOverloaded (resource exhausted) when the disk is
// full or another process holds the file: nothing was written, and a later try may succeed. A
// grant reserves the room of its terminal record in the file, so it is grants that are refused
// first. Data loss, naming the file, when it is damaged. Internal for an I/O error: stop, do not
// try again.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"

namespace shardline {

// How an attempt stands in the ledger. The numbers are stored: never renumber, only append.
enum class AttemptState : int32_t {
  kOpen = 0,
  kCompleted = 1,  // The only billable one.
  kFailed = 2,
  kCancelled = 3,
  kExpired = 4,
  kFenced = 5,  // A newer epoch or a newer coordinator took its place.
};
std::string_view AttemptStateName(AttemptState state);

struct AttemptGrant {
  SessionId session;
  PlanEpoch plan;
  std::string route;      // For people: "node-a:0-9,node-b:10-19". Cut to 512 bytes.
  absl::Duration budget;  // What was left of the request's deadline.
};

// The terminal record of an attempt. Written once, never changed.
struct AttemptRecord {
  AttemptState state = AttemptState::kOpen;
  uint64_t prompt_tokens = 0;
  uint64_t tokens = 0;  // Generated and handed to the client.
  FailureKind kind = FailureKind::kNone;
  std::string detail;  // Cut to 256 bytes: its room is reserved by the grant.

  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

struct OpenAttempt {
  AttemptKey key;
  Term term;
  std::string route;
};

struct StoredPlan {
  PlanEpoch epoch;
  std::string text;  // Whatever the caller put in: a serialised plan.
};

// How many incarnations NextIncarnationBlock hands out at once.
inline constexpr uint64_t kIncarnationBlockSize = 1000000;

class Store {
 public:
  virtual ~Store() = default;

  // Begins a reign: one above every term before it. Writes with older terms are refused from
  // here on.
  virtual absl::StatusOr<Term> BeginTerm() = 0;
  // The first of kIncarnationBlockSize node incarnations that nobody was given before.
  virtual absl::StatusOr<Incarnation> NextIncarnationBlock(Term term) = 0;

  // Ids rise: (ledger generation : 16, sequence : 48).
  virtual absl::StatusOr<SessionId> CreateSession(Term term) = 0;
  // The session's next epoch, from 1. The same transaction closes the attempt that was open as
  // FENCED. NotFound: no such session. FailedPrecondition: it has its outcome already.
  virtual absl::StatusOr<Epoch> GrantEpoch(Term term, const AttemptGrant& grant) = 0;
  // Both in one transaction, for the first attempt of a new session; `grant.session` is ignored.
  virtual absl::StatusOr<AttemptKey> CreateAndGrant(Term term, const AttemptGrant& grant) = 0;
  // OPEN to `record`, once. Returns the record that stands: the caller's, or an earlier one.
  // REQUIRES: record.state is terminal. NotFound: no such attempt.
  virtual absl::StatusOr<AttemptRecord> FinishAttempt(Term term, const AttemptKey& key,
                                                      const AttemptRecord& record) = 0;
  virtual absl::StatusOr<std::optional<AttemptRecord>> FindAttempt(const AttemptKey& key) = 0;
  virtual absl::StatusOr<std::vector<OpenAttempt>> OpenAttempts() = 0;
  // Takeover: every open attempt becomes FENCED; says how many. An old epoch is never adopted.
  virtual absl::StatusOr<int64_t> FenceAllOpen(Term term) = 0;

  // Plans are immutable; the next epoch is one above the last.
  virtual absl::StatusOr<PlanEpoch> CreatePlan(Term term, std::string_view text) = 0;
  virtual absl::StatusOr<std::optional<StoredPlan>> LatestPlan() = 0;
  // All that are not forgotten, oldest first: what a restarted coordinator takes up again.
  virtual absl::StatusOr<std::vector<StoredPlan>> Plans() = 0;
  // After an unload: no query returns it any more. Its epoch is never used again.
  virtual absl::Status ForgetPlan(Term term, PlanEpoch epoch) = 0;

  virtual absl::Status RememberNode(Term term, const NodeId& node, std::string_view address) = 0;
  virtual absl::StatusOr<std::vector<NodeId>> KnownNodes() = 0;
  virtual absl::Status ForgetNode(Term term, const NodeId& node) = 0;

  // A cache of blobs by (path, size, modification time): model manifests. A file that changed is
  // simply not found.
  struct FileKey {
    std::string path;
    uint64_t size = 0;
    int64_t modified_ns = 0;
  };
  virtual absl::Status PutManifest(const FileKey& file, std::string_view manifest) = 0;
  virtual absl::StatusOr<std::optional<std::string>> FindManifest(const FileKey& file) = 0;
};

}  // namespace shardline
