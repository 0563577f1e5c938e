#pragma once

// What the head runs next: drives every attempt from its prompt to its one end, round by round.
//
// An attempt waits for a sampler slot (admission.h), sends its prompt in pieces and then its
// tokens, one step after the other. A round is one bundle round the ring: the decode rows and
// pieces that may go (round_planner.h). A lane, all attempts of one ring, has as many rounds on
// their way as its route is worth; another begins when one is over, which is when its rows are
// sampled, failed or ended, or those that are back are. Returned rows that want logits are
// gathered into one finish job while the device is busy with the last. Meanwhile the next round is
// prepared as it will be if all goes on (lane_stage.h).
//
// Promises: every attempt OnRun accepted ends exactly once, by its budget or sooner, and by Halt
// even if no memory is left; every step has a timer, and a step that does not return names the
// stages that may hold it; a failed step ends its own attempt only. Tokens depend only on prompt,
// parameters and index, never on how work was cut. Will never touch KV, the wire or a clock.
// Sans-IO and not thread-safe: lives on the head's loop thread.

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "node/rounds/admission.h"
#include "node/rounds/drafter.h"
#include "node/rounds/head_attempt.h"
#include "node/rounds/head_options.h"
#include "node/rounds/lap_times.h"
#include "node/rounds/round_planner.h"
#include "node/rounds/run_attempt.h"
#include "node/rounds/sampler_slots.h"

namespace shardline {

class HeadCore {
 public:
  // REQUIRES: options are complete.
  explicit HeadCore(HeadOptions options);

  HeadCore(const HeadCore&) = delete;
  HeadCore& operator=(const HeadCore&) = delete;

  // Starts an attempt, or lets it wait for a slot. Refused, and then without an end:
  // kInvalidRequest naming the field, kStepConflict if it already runs, kDeadlineExceeded,
  // kOverloaded with retry_after if too many wait or the head drains, or the reason of a Halt.
  absl::Status OnRun(RunAttempt run, Instant now);

  // The hidden state of steps, back from the last stage.
  void OnReturn(StageBundle bundle, Instant now);

  // A finish job ended.
  void OnComputeDone(ComputeDone done, Instant now);

  // The own stage finished its share of a step.
  void OnLayersComputed(const StepKey& key, absl::Duration compute_time, Instant now);

  // A stage refused a step. Copies that are in flight, and steps that are done, are unharmed.
  void OnRowFailure(const RowFailure& failure, Instant now);

  // Ends the attempt with kCancelled; unknown ones are ignored.
  void OnCancel(const AttemptKey& key, Instant now);

  // A fence rose here: ends every attempt of the session up to `epoch` with `kind`, or kCancelled.
  void OnFence(SessionId session, Epoch epoch, FailureKind kind, Instant now);

  // Deadlines and step timers.
  void OnTick(Instant now);

  // Refuses new attempts from now on; those that wait or run go on until `deadline`, and what is
  // left then halts with `reason`. REQUIRES: not OK.
  void Drain(const absl::Status& reason, Instant deadline, Instant now);
  // Drain or Halt was called, and nobody is left.
  bool drained() const { return (drain_.has_value() || !halted_.ok()) && attempts_.empty(); }

  // Ends every attempt at once with `reason` and refuses new ones with it. Needs no memory, and
  // neither does TakeActions after it. REQUIRES: not OK.
  void Halt(const absl::Status& reason, Instant now);

  HeadActions TakeActions();

  // When OnTick must be called next; InfiniteFuture if there is nothing to wait for.
  Instant NextWake() const;

  const HeadOptions& options() const { return options_; }
  const HeadStats& stats() const { return stats_; }
  // Those that wait for a slot included.
  size_t attempts_running() const { return attempts_.size(); }
  size_t attempts_queued() const { return admission_.queued_count(); }
  size_t slots_free() const { return slots_.free_count(); }
  // Lanes whose next round is prepared.
  size_t stages_standing() const;
  size_t rounds_in_flight() const;

 private:
  // Ordered, so that actions come out in one order.
  using Attempts = std::map<AttemptKey, HeadAttempt>;

  // Rows of one step that wait for a finish job.
  struct Finish {
    StepKey key;
    SamplerLease lease;
    BufferRef hidden;
    int64_t row = 0;
    int32_t row_count = 1;
  };
  // A step that the device draws tokens for.
  struct Drawn {
    StepKey key;
    SamplerLease lease;
  };
  struct Draining {
    absl::Status reason;
    Instant deadline;
  };

  // Beginning, ending, timers: head_run.cc.
  absl::Status CheckRun(const RunAttempt& run) const;
  absl::Status Judge(const RunAttempt& run) const;
  Attempts::iterator Begin(RunAttempt run, Instant now);
  void FillIn(HeadAttempt& attempt, RunAttempt run, Instant now) const;
  void FindLane(HeadAttempt& attempt);
  void Admit(Instant now);
  void End(Attempts::iterator it, const absl::Status& status,
           FinishReason reason = FinishReason::kNone, int32_t stop_token = -1);
  void LeaveLane(HeadAttempt& attempt);
  void TellAndGoOn(HeadAttempt& attempt, const RowFailure& failure, Instant now);
  void EndOverdue(Instant now);
  absl::Duration TimeoutOf(const HeadAttempt& attempt) const;
  Instant WakeOf(const HeadAttempt& attempt) const;
  bool SendsAgain(HeadAttempt& attempt, const RowFailure& failure, Instant now);
  absl::Status TimedOut(const HeadAttempt& attempt) const;
  absl::Status Fail(FailureKind kind, const AttemptKey& key, const std::string& message,
                    bool blame_self = false) const;
  absl::Status FailOrSpare(FailureKind kind, const AttemptKey& key, const char* message) const;

  // Composing and sending rounds: head_rounds.cc.
  // Whatever may go on goes on; to be called at the end of every event.
  void Advance(Instant now);
  bool BeginRound(HeadLane& lane, Instant now);
  RoundPlan Compose(HeadLane& lane);
  void ViewReady(const HeadLane& lane);
  // As it will be when the round `coming_back` is.
  void ViewFilling(const HeadLane& lane, std::optional<uint64_t> coming_back = std::nullopt);
  RoundLimits Limits() const;
  // The one place that every round goes through.
  void Dispatch(HeadLane& lane, const RoundPlan& plan, Instant now);
  void SendRow(HeadAttempt& attempt, const RowHeader& header, HeadFlight flight,
               StageBundle& bundle);
  // What sending `row` next would send, and make of the attempt's chain.
  static RowHeader HeaderOf(const HeadAttempt& attempt, const RoundRow& row);
  void SendAgain(Instant now);
  static void Move(HeadAttempt& attempt, std::list<HeadAttempt*>& to);
  // A step left its round: it is back, drawn from, or its attempt ended.
  void LeaveRing(HeadLane& lane, const HeadFlight& flight);
  void TellProgress(const HeadAttempt& attempt, int32_t tokens_done);
  static void TakeStageTimes(HeadAttempt& attempt, const BundleRow& row);
  static void SpreadOverStages(RunTimings& timings);
  void LeaveSampling(HeadLane& lane, const HeadFlight& flight, bool is_sampled);
  static HeadRound* FindRound(HeadLane& lane, uint64_t walk);
  static void ForgetGone(HeadLane& lane);

  // Drafts: head_drafts.cc.
  std::unique_ptr<Drafter> MakeDrafter(const RunAttempt& run) const;
  static bool ReadOn(HeadAttempt& attempt);
  void DraftReady(HeadLane& lane);

  // Preparing the next round: head_ahead.cc.
  void StageNext(HeadLane& lane);
  std::unique_ptr<LaneStage> MakeStage();
  RoundPlan Predict(const HeadLane& lane);
  static const HeadFlight* FlightOf(const HeadAttempt& attempt, uint64_t walk);
  std::vector<RowHeader> Promote(HeadLane& lane, const RoundPlan& plan);
  void DropStage(HeadLane& lane);
  void DropStageOf(const HeadAttempt& attempt);

  // Sampling and results: head_finish.cc.
  void TakeReturn(const StageBundle& bundle, size_t index, int64_t hidden_row, Instant now);
  void StartFinish();
  std::vector<Finish> PickFinishes();
  BufferRef Gather(std::vector<Finish>& picked) const;
  bool Stands(const StepKey& key, const SamplerLease& lease) const;
  void TakeResult(const Drawn& drawn, SampleResult result, absl::Duration compute_time,
                  Instant now);
  bool TakeTokens(Attempts::iterator it, const HeadFlight& flight, std::vector<SampledToken> tokens,
                  bool is_text_over, Instant now);
  bool TakeToken(Attempts::iterator it, SampledToken token, bool is_last, Instant now);

  const HeadOptions options_;
  std::vector<absl::Status> spares_;  // By kind: ends for when there is no memory for their names.
  Attempts attempts_;
  HeadLanes lanes_;
  SlotAdmission admission_;
  SamplerSlots slots_;
  LapTimes lap_times_;
  uint64_t lap_walk_ = 0;  // The round that the last lap was taken of.
  uint64_t lane_next_ = 1;
  uint64_t walk_next_ = 1;
  int32_t piece_rounds_ = 0;  // Rounds with pieces in flight, of all lanes.
  std::deque<Finish> finishes_;
  std::optional<uint64_t> finish_job_;  // The one the device has,
  std::vector<Drawn> drawn_;            // and its steps.
  uint64_t job_id_next_ = 1;
  std::vector<ReadyRow> ready_view_;  // Scratch.
  std::vector<FillingPrompt> filling_view_;
  std::vector<const std::list<HeadAttempt*>*> turns_;
  std::vector<std::list<HeadAttempt*>::const_iterator> next_in_turn_;
  std::optional<Draining> drain_;
  absl::Status halted_;
  HeadStats stats_;
  HeadActions actions_;
};

}  // namespace shardline
