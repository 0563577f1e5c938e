#pragma once

// What one stage does with each event: fence, judge, append, compute, commit, forward.
//
// Owns the shard's attempts: their routes, KV pages, step ledgers and fences. Promises: a step
// changes the KV exactly once and in order; nothing of a fenced epoch changes anything; a bad row
// is refused alone and by name; every page comes back by the attempt's own deadline, with no
// message at all. Will never wait, know the time by itself, or touch a byte of KV.
//
// When a link downstream is reset, the steps on it are in doubt: they are kept, the peer is asked
// what it has taken, and what it lacks is sent again if both chains agree. Anything else, or no
// answer in `resume_timeout`, fails them to the head, and the coordinator begins a new epoch.
//
// Rows wait here while the device is busy and then run together, so that a busy stage batches by
// itself. What a sender announces is prepared before it comes (pre_plan.h), and the next stage is
// told what is being computed for it. Sans-IO and not thread-safe: one event and `now` go in on the
// loop thread, then TakeActions() comes out.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "base/shard_cost.h"
#include "node/kv/hot_kv_manager.h"
#include "node/stage/compute_job.h"
#include "node/stage/stage_bundle.h"
#include "node/stage/stage_plan.h"
#include "node/stage/step_ledger.h"

namespace shardline {

struct StageOptions {
  NodeId node;
  Incarnation incarnation;
  Recipe recipe;
  LayerRange layers;         // What this shard holds.
  int32_t layers_total = 0;  // Of the model; a route must cover them all.
  bool is_head = false;      // Stage 0 of every route through this shard.
  int32_t hidden_dim = 0;    // Floats in one token's hidden state.
  int32_t pages_total = 0;   // KV pages.
  int32_t context_tokens_max = 0;
  size_t attempts_max = 1024;   // Open at once.
  size_t sessions_max = 65536;  // Fences remembered. REQUIRES: > attempts_max.
  size_t bundle_rows_max = 256;
  int32_t bundle_tokens_max = 4096;
  // Of the long rows of a job; as many of short ones ride along. A larger row runs as well, but
  // without other long ones.
  int32_t job_tokens_max = 256;
  size_t rows_waiting_max = 4096;
  size_t jobs_in_flight_max = 1;  // The device must finish jobs in the order it got them.
  absl::Duration reclaim_grace = absl::Seconds(1);  // Past its budget an attempt is freed.
  // A job that takes less, by what `job_cost` says, is not announced: to wake the next stage would
  // cost more than it can save. Zero: every job is.
  absl::Duration announce_min;
  ShardCost job_cost;
  // How long steps may stay in doubt after a reset; zero: they fail at once.
  absl::Duration resume_timeout = absl::Seconds(1);
  SessionId floor;  // No session below it opens any more.
  // Whether the OPEN is the coordinator's: kUnauthorised otherwise. Null: every OPEN is.
  std::function<absl::Status(const OpenAttempt&)> authorise;
};

// Counters since construction. Plain numbers, exported by the shell.
struct StageStats {
  uint64_t attempts_opened = 0;
  uint64_t opens_refused = 0;
  uint64_t attempts_fenced = 0;
  uint64_t attempts_expired = 0;  // Freed by the local deadline.
  uint64_t bundles = 0;
  uint64_t rows_committed = 0;  // Rows of bundles: steps.
  uint64_t tokens_committed = 0;
  uint64_t rows_refused = 0;
  std::array<uint64_t, kFailureKindCount> refusals = {};  // The same, by kind.
  uint64_t rows_replayed = 0;
  uint64_t rows_in_flight_copies = 0;
  uint64_t rows_discarded = 0;  // Computed, then found fenced or built on a failed step.
  uint64_t rows_non_finite = 0;
  uint64_t fences_ignored = 0;     // From a coordinator of an older term.
  uint64_t failures_passed = 0;    // From downstream to upstream.
  uint64_t attempts_unlisted = 0;  // Ended because the coordinator no longer lists them.
  uint64_t bundles_shut_out = 0;   // From a connection that a newer one had replaced.
  uint64_t returns_repeated = 0;   // Copies of rows that are back at the head already.
  uint64_t attempts_in_doubt = 0;  // Times that a reset put an attempt's steps in doubt.
  uint64_t attempts_resumed = 0;   // Doubts that ended with certainty.
  uint64_t rows_resent = 0;        // After a resume.
  uint64_t jobs = 0;
  uint64_t plans_staged = 0;     // Bundles prepared before they came.
  uint64_t plans_ignored = 0;    // Announced, and of rows that could not be taken now.
  uint64_t plans_promoted = 0;   // Of those staged: the bundle was what had been announced,
  uint64_t plans_displaced = 0;  // or another one.
};

// A row failure on its way to the head.
struct Refusal {
  StagePeer to;  // The neighbour upstream, or the own head.
  RowFailure failure;
};

struct Forward {
  RouteStage to;
  StageBundle bundle;
};

// What to ask a peer on its new connection, before any bundle of these attempts.
struct Inspect {
  RouteStage to;
  std::vector<InspectRow> rows;
};

// What a peer asked, in the order of its question. Dropped if its link is gone.
struct InspectAnswer {
  StagePeer to;
  std::vector<InspectStatus> statuses;
};

// Rows that are being computed for the next stage. Without budget, timings and chain.
struct Announcement {
  RouteStage to;
  std::vector<BundleRow> rows;
};

// The own share of a step was computed; for the head's timings.
struct StepComputed {
  StepKey key;
  absl::Duration compute_time;  // Of the whole job that the row was part of.
};

// To be carried out in this order.
struct StageActions {
  std::vector<ComputeJob> jobs;        // 1. The device should not idle.
  std::vector<StepComputed> computed;  // 2. Head's stage only: to HeadCore::OnLayersComputed.
  std::vector<Forward> forwards;       // 3. To the next stage's link, or the head's.
  std::vector<StageBundle> returns;    // 4. Head's stage only: to HeadCore::OnReturn.
  std::vector<InspectAnswer> answers;  // 5. To the peer's link, before
  std::vector<Refusal> refusals;       // 6. to the peer's link, or to HeadCore::OnRowFailure.
  std::vector<Inspect> inspects;       // 7. To the stage's link.
  std::vector<RouteStage> redials;     // 8. Connect again, even if nothing is to be sent.
  std::vector<Announcement> plans;     // 9. To the stage's link, behind all forwards; may be lost.

  bool empty() const {
    return jobs.empty() && computed.empty() && forwards.empty() && returns.empty() &&
           answers.empty() && refusals.empty() && inspects.empty() && redials.empty() &&
           plans.empty();
  }
};

class StageCore {
 public:
  // REQUIRES: options are complete.
  explicit StageCore(StageOptions options);

  StageCore(const StageCore&) = delete;
  StageCore& operator=(const StageCore&) = delete;

  // Opens an attempt, closing any older one of its session; repeating an open attempt's OPEN is
  // answered as granted. A refusal changes nothing:
  //   kWorkerDeath         names another incarnation than this one
  //   kUnauthorised        is not the coordinator's
  //   kStaleEpoch          an older term, or an epoch that was fenced or superseded
  //   kIncompatibleRecipe  another model, numerics, plan, or layer range
  //   kInvalidRequest      a route or numbers that cannot be
  //   kStepConflict        the same key with other content
  //   kKvExhausted, kOverloaded, kDeadlineExceeded
  // What is cached of its prefix keys is held for it from now on. Its first step may begin at the
  // end of any of these pages; the others are named as they are committed.
  absl::StatusOr<OpenReply> Open(const OpenAttempt& open, Instant now);

  // Ends this epoch and every older one of the session, and remembers it: a late OPEN is refused.
  // Always succeeds; the fence of an older term changes nothing.
  FenceReply Fence(SessionId session, Epoch epoch, Term term, Instant now);

  // The coordinator's snapshot of what is live on this node, which covers every OPEN up to
  // `as_of`: attempts that it covers and does not list end as if fenced. Returns them, for the
  // head core. That of an older term changes nothing.
  std::vector<AttemptKey> OnLiveAttempts(Term term, uint64_t as_of,
                                         const std::vector<AttemptKey>& keys, Instant now);

  // Every session below `floor` is over: none opens any more, and their fences are forgotten.
  void OnFloor(Term term, SessionId floor);

  // The head may run `key`: it is open here with this capability (else kUnauthorised), and term
  // and incarnation are current. The pointer is valid until the next call that is not const.
  absl::StatusOr<const OpenAttempt*> CheckRun(const AttemptKey& key, Term term,
                                              Incarnation incarnation,
                                              const std::string& capability) const;

  // A peer's new connection, before it is welcomed: bundles of its older ones are dropped from now
  // on, and so are those of older lives of its node. Refused if a newer one stands, or a later life
  // (kWorkerDeath).
  absl::Status OnLinkAccepted(const StagePeer& from, uint64_t connection);

  // Rows for this stage, or back at the head. `from` is the link's peer, or the own head.
  void OnBundle(const StagePeer& from, StageBundle bundle, Instant now);

  // Rows that `from` is about to send in one bundle; none: what it announced is not to come. A
  // hint, which no reply and no KV depends on: rows that could not be taken now are ignored, and
  // another bundle than the one announced drops what was prepared. One plan a sender is kept.
  void OnPlan(const StagePeer& from, const std::vector<BundleRow>& rows, Instant now);

  void OnComputeDone(ComputeDone done, Instant now);

  // A row failed downstream; it is passed upstream. `from` is the link's peer. For rows that a
  // shell could not hand to a link, `from` is the peer it could not reach.
  void OnRowFailure(const StagePeer& from, RowFailure failure, Instant now);

  // The link to `peer` broke. A reset (kStreamReset, kChecksumMismatch or no kind) puts the steps
  // on it in doubt; any other reason fails them at once: with kHeartbeatLost if that is it, else
  // with kStreamReset. `node` is then the peer and `reporter` this node. After kHeartbeatLost
  // nothing is sent to the peer until OnLinkUp or the next OPEN of a route through it.
  void OnLinkLost(const StagePeer& peer, const absl::Status& reason, Instant now);

  // A new connection to `peer` was welcomed: asks about what is in doubt.
  void OnLinkUp(const StagePeer& peer, Instant now);

  // A peer upstream asks what was taken of its steps, after OnLinkAccepted shut out its older
  // connections. Failures that may have been lost with them are told again.
  void OnInspect(const StagePeer& from, const std::vector<InspectRow>& rows, Instant now);

  // The answer of the peer downstream. What nobody asked for is ignored.
  void OnInspectReply(const StagePeer& from, const std::vector<InspectStatus>& rows, Instant now);

  // Frees what is past its deadline, and fails what was too long in doubt.
  void OnTick(Instant now);

  // Closes every attempt and fences its epoch: the shard is going away.
  FenceReply CloseAll(Instant now);

  bool has_actions() const { return !actions_.empty(); }
  StageActions TakeActions();

  // When OnTick must be called next; InfiniteFuture if there is nothing to wait for.
  Instant NextWake() const;

  const StageOptions& options() const { return options_; }
  const StageStats& stats() const { return stats_; }
  const HotKvManager& kv() const { return kv_; }
  size_t attempts_open() const { return attempts_.size(); }
  size_t rows_waiting() const { return waiting_.size(); }
  size_t attempts_doubted() const { return doubts_.size(); }

 private:
  // A budget shrinks on every hop, even if no time passes.
  static constexpr absl::Duration kLeastShrink = absl::Microseconds(1);
  static constexpr int32_t kShortRowTokens = 16;  // Decode and verify rows are no longer.

  // The link downstream was reset, and what the peer has taken is not known.
  struct Doubt {
    Instant until;
    bool asked = false;  // On the connection that stands.
  };

  struct Attempt {
    OpenAttempt open;
    Instant deadline;  // Of the request.
    Instant reclaim;   // Past it everything is freed.
    StepLedger ledger;
    StepLedger returns;      // Head's stage only: the rows back from the last stage.
    uint64_t chain_out = 0;  // Over all that was sent downstream.
    int32_t taken_back = 0;  // Of the last committed step's drafts.
    std::optional<Doubt> doubt;
    std::optional<RowFailure> told;  // Upstream, for the earliest step; lost with a reset.
  };

  // A row of a bundle: judged, then waiting for the device, then computing. From when it is taken
  // until it is done its attempt is pinned.
  struct PendingRow {
    BundleRow row;
    Instant deadline;     // Arrival plus the row's budget, and not past the attempt's.
    uint64_t digest = 0;  // Of the content.
    std::vector<int32_t> tokens;
    BufferRef hidden;        // The bundle's;
    int64_t hidden_row = 0;  // this row's first token is here.
    std::vector<int32_t> pages;
    std::optional<BundleRow> onward;  // Prepared for the next stage's plan.
    bool discarded = false;           // Fenced, or built on a failed step, while it computed.
  };

  // What was prepared for a bundle's rows, one each; none if it had not been announced.
  struct Prepared {
    std::vector<std::vector<int32_t>> tables;
    std::vector<BundleRow> onward;
  };

  // An output on its way; those of one event to one place become one bundle.
  struct Outbound {
    RouteStage to;           // Unset for a return.
    bool is_return = false;  // To the own head core.
    BundleRow row;
    StepOutput output;
  };

  using Attempts = std::map<SessionId, Attempt>;

  // Opening and closing: stage_open.cc.
  absl::Status CheckOpen(const OpenAttempt& open) const;
  absl::Status CheckRoute(const OpenAttempt& open) const;
  absl::Status CheckFence(const AttemptKey& key) const;
  OpenReply GrantOf(const AttemptKey& key) const;
  void RaiseFence(SessionId session, Epoch lowest);
  bool IsForgotten(SessionId session) const;
  FenceReply Close(Attempts::iterator it);
  void Expire(Instant now);

  // Cached prefixes: stage_prefix.cc.
  absl::Status CheckPrefix(const OpenAttempt& open) const;
  absl::Status CheckPrefixKey(const BundleRow& row) const;
  // After the commit of `row`'s step: names what is complete.
  void PublishPages(const Attempt& attempt, const BundleRow& row);

  // Arriving rows: stage_rows.cc.
  absl::Status CheckShape(const StagePeer& from, const StageBundle& bundle) const;
  absl::Status TakeRow(const StagePeer& from, PendingRow pending, Instant now);
  absl::Status TakeReturn(const StagePeer& from, Attempt& attempt, const PendingRow& pending,
                          Instant now);
  absl::Status TakeBack(Attempt& attempt, const BundleRow& row);
  bool PlantedAsItsOwn(const Attempt& attempt, BundleRow& row) const;
  absl::StatusOr<Attempt*> FindOpen(const StepKey& key);
  void Refuse(const StagePeer& to, const StepKey& key, absl::Status status);
  void Tell(const StagePeer& to, RowFailure failure);

  // What is known ahead: stage_ahead.cc.
  bool CanTake(const StagePeer& from, const std::vector<BundleRow>& rows) const;
  StagedBundle& StagedBy(const StagePeer& from);
  Prepared Promote(const StagePeer& from, const std::vector<BundleRow>& rows);
  void DropPlans();
  void DropPlanOf(const StagePeer& from);
  BundleRow OnwardRow(const Attempt& attempt, const BundleRow& row) const;
  void AnnounceJob();
  bool IsWorthAPlan(const std::vector<PendingRow>& rows) const;

  // Computing and sending: stage_core.cc.
  void StartJobs(Instant now);
  void FailExpiredRows(Instant now);
  std::vector<PendingRow> PickRows();
  ComputeJob BuildJob(std::vector<PendingRow>& rows);
  void FinishRow(PendingRow& pending, const ComputeDone& done, size_t slice, int64_t hidden_row,
                 Instant now);
  void FailRows(Attempt& attempt, StepIndex from, const absl::Status& status);
  absl::Status Emit(const Attempt& attempt, const StepKey& key, const StepOutput& output,
                    Instant now);
  StepOutput OutputOf(const Attempt& attempt, const PendingRow& pending, const ComputeDone& done,
                      int64_t hidden_row);
  uint64_t ChainAfter(const Attempt& attempt, const StepKey& key, const StepOutput& output) const;
  void EmitFenced(const PendingRow& pending, const ComputeDone& done, int64_t hidden_row,
                  Instant now);
  void TrimOutput(const Attempt& attempt, StepOutput& output) const;
  BundleRow RowOf(const Attempt& attempt, const StepKey& key, const StepOutput& output) const;
  void FlushOutputs();
  BufferRef Gather(const std::vector<StepOutput>& outputs) const;

  // Links and doubts: stage_links.cc.
  bool HasNewerLife(const StagePeer& peer) const;
  bool IsShutOut(const StagePeer& from, uint64_t connection) const;
  bool SendsTo(const Attempt& attempt, const StagePeer& peer) const;
  void FailDoubt(Attempt& attempt, FailureKind kind, const std::string& reason);
  void EndDoubt(Attempt& attempt);
  void ExpireDoubts(Instant now);
  void Redial(const RouteStage& stage);
  InspectStatus StatusFor(const StagePeer& from, const AttemptKey& key);
  void Resume(Attempt& attempt, const InspectStatus& status, Instant now);
  absl::Status LinkFailure(const Attempt& attempt, FailureKind kind, StepIndex step,
                           const std::string& reason) const;

  bool IsHeadOf(const Attempt& attempt) const { return attempt.open.stage_index == 0; }
  bool IsSilent(const RouteStage& stage) const {
    return !silent_.empty() && silent_.contains(stage.peer());
  }
  StagePeer UpstreamOf(const Attempt& attempt) const;
  const RouteStage& DownstreamOf(const Attempt& attempt) const;
  absl::Status Blame(FailureKind kind, const StepKey& key, const std::string& message) const;

  const StageOptions options_;
  HotKvManager kv_;
  Term term_;  // The highest seen.
  // By session: one open attempt each. Ordered, so that actions come out in one order.
  Attempts attempts_;
  std::set<std::pair<absl::Duration, SessionId>> reclaims_;  // (since origin, session).
  // The lowest epoch that may still open, by session; at most sessions_max.
  absl::flat_hash_map<SessionId, Epoch> fences_;
  std::set<SessionId> closed_;  // Sessions in fences_ that have no open attempt.
  SessionId forgotten_;         // A session below it that is not in fences_ was forgotten.
  SessionId floor_;             // A session below it is over, says the coordinator.
  std::set<std::pair<absl::Duration, SessionId>> doubts_;  // As reclaims_.
  std::set<StagePeer> silent_;                 // Lost without resume; no connection since.
  std::map<StagePeer, uint64_t> connections_;  // The newest of each peer upstream.
  std::map<AttemptKey, Attempt> undead_;       // Planted bugs only.
  std::map<StagePeer, StagedBundle> ahead_;    // By sender.
  uint64_t plan_next_ = 1;
  uint64_t announced_ = 0;  // The last job that was.
  std::deque<PendingRow> waiting_;
  std::map<uint64_t, std::vector<PendingRow>> running_;  // By job id.
  uint64_t job_id_next_ = 1;
  std::vector<Outbound> outbound_;  // Of the current event.
  StageStats stats_;
  StageActions actions_;
};

}  // namespace shardline
