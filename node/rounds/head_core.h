#pragma once

// What the head runs next: drives every attempt from its prompt to its one end.
//
// Prompts go round the ring in chunks, a few at once and in turn between attempts, so that a live
// stream's gap stays bounded while a long prompt fills; then one decode step at a time. Steps of
// different attempts overlap freely. Returned rows that want logits are gathered into one finish
// job while the device is busy with the last.
//
// Promises: every attempt OnRun accepted ends exactly once, by its budget or sooner; every step
// has a timer, and a step that does not return names the stages that may hold it. Tokens depend
// only on prompt, parameters and index, never on how work was cut. Will never touch KV, the wire
// or a clock. Sans-IO and not thread-safe: lives on the head's loop thread.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/instant.h"
#include "node/rounds/lap_times.h"
#include "node/rounds/run_attempt.h"
#include "node/stage/compute_job.h"
#include "node/stage/stage_bundle.h"

namespace shardline {

struct HeadOptions {
  NodeId node;
  LayerRange layers;  // Of the own stage.
  int32_t vocab_size = 0;
  int32_t hidden_dim = 0;
  int32_t context_tokens_max = 0;
  int32_t chunk_tokens_max = 64;   // Largest prefill chunk.
  int32_t chunks_in_flight = 2;    // Of one attempt. REQUIRES: <= kStepsInFlightMax.
  int32_t prefill_chunks_max = 4;  // Of all attempts; bounds what a decode step waits behind.
  size_t attempts_max = 64;
  size_t bundle_rows_max = 256;  // As StageOptions.
  size_t samples_max = 64;       // Rows of one finish job.
  // A step may take 8 times the 99th percentile of the laps of its size, within these bounds (the
  // largest while too few laps are known), and as much again for each chunk ahead of it.
  absl::Duration step_timeout_min = absl::Seconds(2);  // Above the lease: beats know who.
  absl::Duration step_timeout_max = absl::Seconds(5);
  // A stage that does not know the attempt yet, since steps overtook its OPEN, gets them again
  // after a pause; the pause doubles.
  absl::Duration resend_pause = absl::Milliseconds(10);
  int32_t resends_max = 6;
  absl::Duration retry_after = absl::Seconds(1);  // Advice in kOverloaded.
};

struct HeadStats {
  uint64_t attempts_started = 0;
  uint64_t attempts_refused = 0;
  uint64_t attempts_ended = 0;
  uint64_t attempts_failed = 0;  // Of those ended.
  uint64_t steps_sent = 0;
  uint64_t tokens_sampled = 0;
  uint64_t returns_ignored = 0;  // Copies, or of attempts that ended.
  uint64_t failures_ignored = 0;
  uint64_t step_timeouts = 0;
  uint64_t steps_resent = 0;  // To stages that did not know the attempt yet.
};

// To be carried out in this order.
struct HeadActions {
  std::vector<ComputeJob> jobs;    // 1. kFinish.
  std::vector<StageBundle> steps;  // 2. To the own StageCore::OnBundle, from the own head.
  std::vector<TokenOut> tokens;    // 3. To the attempts' streams, before
  std::vector<AttemptEnd> ends;    // 4. their ends.

  bool empty() const { return jobs.empty() && steps.empty() && tokens.empty() && ends.empty(); }
};

class HeadCore {
 public:
  // REQUIRES: options are complete.
  explicit HeadCore(HeadOptions options);

  // Starts an attempt. Refused, and then without an end: kInvalidRequest naming the field,
  // kStepConflict if it already runs, kDeadlineExceeded, kOverloaded with retry_after, or the
  // reason of a Halt.
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

  // Ends every attempt at once with `reason` and refuses new ones with it. REQUIRES: not OK.
  void Halt(const absl::Status& reason, Instant now);

  HeadActions TakeActions();

  // When OnTick must be called next; InfiniteFuture if there is nothing to wait for.
  Instant NextWake() const;

  const HeadOptions& options() const { return options_; }
  const HeadStats& stats() const { return stats_; }
  size_t attempts_running() const { return attempts_.size(); }

 private:
  // A step on its way round the ring.
  struct Flight {
    Instant sent;
    int32_t position = 0;
    int32_t token_count = 0;
    bool wants_logits = false;
    bool is_prefill = false;
    bool own_layers_done = false;
    int32_t chunks_ahead = 0;  // Prefill chunks in the ring when it was sent.
  };

  struct Attempt {
    RunAttempt run;
    std::vector<int32_t> prefix;  // Prompt, then delivered tokens.
    std::shared_ptr<Sampler> sampler;
    Instant started;
    Instant deadline;
    Instant progress;          // Last time a step was sent or came back.
    int32_t tokens_limit = 0;  // Rows of KV it may use.
    int32_t sent = 0;          // Tokens sent into the ring.
    uint64_t step_next = 0;
    uint32_t generated = 0;  // Delivered ones included.
    std::map<StepIndex, Flight> flights;
    int32_t resends = 0;
    std::optional<Instant> resend_at;    // The steps in flight go again.
    StepIndex resent_below;              // Steps that went more than once.
    std::optional<StepIndex> finishing;  // The step whose token is being drawn.
    bool finish_is_decode = false;       // Its lap counts as decode.
    std::optional<Instant> first_token;
    Instant last_token;
    RunTimings timings;
  };

  // A row that waits for a finish job.
  struct Finish {
    StepKey key;
    BufferRef hidden;
    int64_t row = 0;
  };

  // Ordered, so that actions come out in one order.
  using Attempts = std::map<AttemptKey, Attempt>;

  absl::Status CheckRun(const RunAttempt& run) const;
  void EndOverdue(Instant now);
  absl::Duration TimeoutOf(const Attempt& attempt) const;
  Instant WakeOf(const Attempt& attempt) const;
  bool SendsAgain(Attempt& attempt, const RowFailure& failure, Instant now);
  void SendAgain(Instant now);
  absl::Status TimedOut(const Attempt& attempt) const;
  absl::Status Fail(FailureKind kind, const AttemptKey& key, const std::string& message,
                    bool blame_self = false) const;
  void End(Attempts::iterator it, absl::Status status, FinishReason reason = FinishReason::kNone,
           int32_t stop_token = -1);

  void SendStep(Attempt& attempt, std::span<const int32_t> tokens, bool wants_logits,
                bool is_prefill, Instant now);
  void PutStep(const StepKey& key, std::span<const int32_t> tokens, const Flight& flight,
               absl::Duration budget);
  void SendChunk(Attempt& attempt, Instant now);
  void SendChunks(Instant now);
  void StartFinish();
  void TakeResult(const StepKey& key, SampleResult result, absl::Duration compute_time,
                  Instant now);
  void FlushSteps();

  const HeadOptions options_;
  Attempts attempts_;
  std::deque<AttemptKey> filling_;  // Attempts with prompt left to send, in turn.
  LapTimes lap_times_;
  int32_t chunks_in_flight_ = 0;  // Prefill steps in the ring, of all attempts.
  std::deque<Finish> finishes_;
  std::optional<uint64_t> finish_job_;  // The one the device has.
  std::vector<StepKey> finish_keys_;    // Its rows.
  uint64_t job_id_next_ = 1;
  StageBundle outgoing_;  // Steps of the current event.
  absl::Status halted_;
  HeadStats stats_;
  HeadActions actions_;
};

}  // namespace shardline
