#pragma once

// The invariants, watched from outside: ghost state fed by what the shells see, and compared with
// what the cores say. The numbers are those of the specification; README.md lists them.
//
// The first violation stays; nothing is checked after it.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "coordinator/membership/node_facts.h"
#include "coordinator/sessions/session_words.h"
#include "coordinator/store/store.h"
#include "node/rounds/head_options.h"
#include "node/stage/compute_job.h"
#include "node/stage/stage_core.h"
#include "tests/sim/sim_cluster.h"
#include "tests/support/memory_store.h"

namespace shardline::sim {

// What must happen in some schedule, or the schedules are too tame.
enum class Sometimes : uint8_t {
  kCompleted,
  kCompletedOnEpoch2,
  kCompletedOnEpoch3,
  kCompletedAfterRestart,  // Of a node, meanwhile.
  kTokensOfTwoCoordinators,
  kCancelledMidStep,
  kFenceBeforeOpen,
  kStepReplayed,
  kStepInFlightAnswered,
  kRowRefused,
  kExpired,
  kFailed,
  kCancelled,
  kZombieFinishRefused,
  kZombieOpenRefused,
  kStaleOpenRefused,
  kPagesPinnedByRelease,
  kKvExhausted,
  kNonFiniteQuarantined,
  kExpiredLocally,
  kNodeLostAndBack,
  kCoordinatorRestarted,
  kReplanned,
  kRestarted,
  kResumed,
  kResumeRefused,
  kOldConnectionShutOut,
  kReattached,
  kReplayedFromLedger,
  kPoisoned,
  kUnverified,
  kForgedRefused,
  kFloorRaised,
  kLinkSilent,
  kUnlistedEnded,
  kPrefixHit,
  kPrefixPartlyHit,
  kPrefixEvicted,
  kPageShared,
  kDraftAccepted,
  kDraftRejected,
  kPlanPromoted,
  kPlanDisplaced,
  kRoundsInFlight,
  kRowsOfSeveral,
  kQueuedAtHead,
  kWaitedForRoom,
  kHaltWithQueued,
  kCount,
};
std::string_view SometimesName(Sometimes what);
using SometimesCounts = std::array<uint64_t, static_cast<size_t>(Sometimes::kCount)>;

struct Violation {
  int invariant = 0;
  std::string what;
};

class Checker {
 public:
  // Both outlive it; the store need not be there yet.
  Checker(SimCluster* cluster, testing::MemoryStore* store) : cluster_(cluster), store_(store) {}

  void Fail(int invariant, std::string what);
  const std::optional<Violation>& violation() const { return violation_; }
  // Whether somebody in this schedule speaks against the protocol; without that no session may
  // fail as if somebody had.
  void AllowAttacks() { attacks_ = true; }
  bool attacks() const { return attacks_; }
  const SometimesCounts& counts() const { return counts_; }
  void Count(Sometimes what) { ++counts_[static_cast<size_t>(what)]; }

  // The ledger.
  void OnTakeover(const SimCoordinator& coordinator, testing::MemoryStore& store);
  void OnGranted(const SimCoordinator& coordinator, testing::MemoryStore& store,
                 const RequestIdentity& identity, Instant deadline,
                 const absl::StatusOr<Admission>& admission);
  void OnFinished(const SimCoordinator& coordinator, const AttemptKey& key,
                  const AttemptRecord& asked, const absl::StatusOr<AttemptRecord>& stored);

  // Sessions.
  void OnOpenSent(const SessionsActions::Open& open);
  void OnFenceSent(const SimCoordinator& coordinator, const SessionsActions::Fence& fence);
  void OnRestarted(const SimCoordinator& coordinator, const SessionsActions::Restarted& restart);
  // The session has killed one more node.
  void OnPoisoned(SessionId session);

  // Membership.
  void OnNodeLost(const SimCoordinator& coordinator, const NodeId& node, Incarnation incarnation);
  void OnNodeWelcomed(const SimCoordinator& coordinator, const NodeId& node,
                      Incarnation incarnation);
  void OnBeat(const SimCoordinator& coordinator, const NodeId& node, const NodeBeat& beat);
  void OnCoordinatorEvent(const SimCoordinator& coordinator);
  void OnCoordinatorDied(const SimCoordinator& coordinator);

  // Nodes.
  // A stage ends, with its shard's life or its process.
  void OnStageGone(const StageCore& stage);
  void OnNodeDied(int node);
  void OnShardLife(int node, Incarnation incarnation);
  void OnOpenAnswered(const SimNode& node, const OpenAttempt& open, const absl::Status& answer);
  void OnFenceObeyed(const SimNode& node, SessionId session, Epoch epoch, FailureKind reason);
  void OnJobGiven(const SimNode& node, const ComputeJob& job);
  void OnJobWrites(const SimNode& node, const ComputeJob& job);
  // `from` has a newer connection than that of `bundle`; it was dropped, or not.
  void OnOldConnection(const SimNode& node, bool dropped);
  // A forged message had an effect, or not.
  void OnForged(const SimNode& node, bool obeyed);
  void OnJobTaken(const SimNode& node, const ComputeJob& job, const ComputeDone& done);
  // Before and after the stage takes a bundle.
  void OnRowsArrive(const SimNode& node, const StageBundle& bundle);
  void OnRowsTaken(const SimNode& node);
  // After the stage took the answer to its question; `before` are its counts until then.
  void OnResumeAnswered(const SimNode& node, const std::vector<InspectStatus>& statuses,
                        const StageStats& before);
  void OnForward(const SimNode& node, const Forward& forward);

  // Rounds: checker_rounds.cc.
  void OnRunAccepted(const SimNode& node, const AttemptKey& key, int32_t in_flight);
  // Before they are carried out.
  void OnHeadActions(const SimNode& node, const HeadActions& actions);
  // The shard's life is over, and everybody was told.
  void OnHalted(const SimNode& node);
  // A row computed again would leave something else in the page that it shares.
  void OnOtherCell(const StepKey& step, int32_t position);
  // The rows that `from` announced were prepared, or not; and its next bundle came.
  void OnPlanTaken(const SimNode& node, const StagePeer& from, bool is_staged);
  void OnBundleTaken(const SimNode& node, const StagePeer& from, bool is_promoted);

  // Something that is open at the node, for who would forge a message to it.
  struct Target {
    OpenAttempt open;
    StagePeer upstream;
    std::optional<BundleRow> last;  // Of the steps that were taken.
  };
  std::optional<Target> AnyOpened(const SimNode& node) const;
  // The same of a step that has failed for certain at the node.
  std::optional<Target> FailedStep(const SimNode& node, const StepKey& step) const;

  // Clients.
  void OnAsked(const SimClient& client);
  void OnClientToken(const SimClient& client, uint32_t index, int32_t token);
  void OnClientEnd(const SimClient& client, const ClientWords& words);

  // Full walks: now and then, and when everything is over.
  void CheckAll();
  void CheckQuiet();

 private:
  struct Attempt {
    Term term;
    std::optional<AttemptRecord> record;
    std::vector<RouteStage> route;     // As opened.
    std::vector<int> fences;           // By stage: how often one was sent.
    std::optional<Instant> fenced_at;  // By the coordinator's clock.
  };
  // One session as one reign of a coordinator drives it.
  struct Reign {
    int grants = 0;
    Instant deadline;
  };
  // What one node has been told of a session, over all its incarnations.
  struct Watermark {
    Epoch lowest;  // That may still be opened or written.
  };
  // A step that came to a node, or several times: the most generous of its copies.
  struct Arrived {
    uint64_t step = 0;
    Instant deadline;  // By the node's clock.
    absl::Duration budget = absl::ZeroDuration();
    std::optional<uint64_t> digest;  // Of what was computed for it.
    bool failed = false;             // For certain, and not come again since.
    BundleRow row;
  };
  // An attempt that is open at a node, as far as can be seen from outside.
  struct Opened {
    OpenAttempt open;
    Instant reclaim;                 // By the node's clock.
    uint64_t step_next = 0;          // Steps applied are 0 to step_next - 1.
    int32_t length = 0;              // Tokens of those.
    std::array<Arrived, 8> arrived;  // By step, the last ones.

    // Null for a step so old that nothing is remembered of it.
    Arrived* At(StepIndex step) {
      Arrived& slot = arrived[step.value() % arrived.size()];
      if (slot.step > step.value()) return nullptr;
      if (slot.step != step.value()) slot = {.step = step.value()};
      return &slot;
    }
  };
  // One Join stream's proof of life, judged anew.
  struct Life {
    Incarnation incarnation;
    uint64_t echo = 0;
    Instant echoed_at;
    uint64_t jobs_done = 0;
    bool busy = false;
    Instant progress_at;
    std::optional<Instant> late_since;
  };
  using NodeAttempt = std::pair<int, AttemptKey>;

  // Earlier attempts of the session in this term that found no room.
  int FullAttempts(const AttemptKey& key, Term term) const;
  void CheckNode(const SimNode& node);
  void CountPrefix(const SimNode& node, const OpenAttempt& open);
  void CheckPages(const SimNode& node, const JobSlice& slice);
  void CheckFannedOut(const AttemptKey& key, const Attempt& attempt);

  // What stands in the ledger for the session, if that is over.
  std::optional<AttemptRecord> OutcomeOf(SessionId session);

  SimCluster* const cluster_;
  testing::MemoryStore* const store_;
  std::optional<Violation> violation_;
  SometimesCounts counts_ = {};

  std::map<AttemptKey, Attempt> attempts_;
  std::map<SessionId, Epoch> current_;
  std::map<std::pair<SessionId, Term>, Reign> reigns_;
  std::map<std::string, std::pair<SessionId, uint64_t>> keys_;  // Session and digest.
  std::map<SessionId, int> deaths_;  // Since the last takeover: they are not on record.
  int takeovers_ = 0;
  absl::flat_hash_map<std::pair<int, SessionId>, Watermark> watermarks_;
  std::map<NodeAttempt, Opened> opened_;
  std::map<NodeAttempt, int32_t> running_;  // At heads: rounds in flight of their lanes.
  // By node and who announced them; true: a failure has come between.
  std::map<std::pair<int, StagePeer>, bool> plans_staged_;
  std::map<std::pair<int, NodeId>, Life> lives_;  // By coordinator and node.
  std::map<int, Instant> lives_good_until_;       // By coordinator: nobody is late before.
  bool node_died_ = false;
  bool attacks_ = false;
  std::optional<uint64_t> came_again_;  // Copies in flight before a failed step came again.
};

}  // namespace shardline::sim
