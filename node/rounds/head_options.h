#pragma once

// What a head is given, counts and asks for: the plain data round HeadCore.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/failure.h"
#include "base/id.h"
#include "base/layer_range.h"
#include "model/grammar/token_trie.h"
#include "node/rounds/draft_pricer.h"
#include "node/rounds/proposer.h"
#include "node/rounds/run_attempt.h"
#include "node/stage/compute_job.h"
#include "node/stage/stage_bundle.h"
#include "node/stage/step_ledger.h"

namespace shardline {

struct HeadOptions {
  NodeId node;
  LayerRange layers;  // Of the own stage.
  int32_t vocab_size = 0;
  int32_t hidden_dim = 0;
  int32_t context_tokens_max = 0;
  int32_t chunk_tokens_max = 64;  // Largest piece of a prompt.
  // Pieces of one attempt in the ring, if its lane has as many rounds there.
  int32_t chunks_in_flight = static_cast<int32_t>(kStepsInFlightMax);  // REQUIRES: <= that.
  // Of all pieces of one round: what a token waits behind, and what a round holds when no attempt
  // of its lane decodes.
  int32_t piece_tokens_decoding = 64;
  int32_t piece_tokens_idle = 256;
  size_t attempts_max = 64;       // Sampler slots: attempts that run at once.
  size_t queue_max = 256;         // Attempts that wait for one,
  size_t tenant_queue_max = 64;   // and those of one tenant.
  size_t tenant_running_max = 0;  // Slots that one tenant may hold; 0: all.
  size_t bundle_rows_max = 256;   // As StageOptions, like the next.
  int32_t bundle_tokens_max = 4096;
  size_t samples_max = 64;  // Rows of one finish job.
  bool drafts = false;      // Rows that would ride for free carry guesses.
  DraftPricerOptions draft_pricer;
  // What guesses for an attempt; null: DefaultProposers.
  std::function<std::vector<std::unique_ptr<Proposer>>(const RunAttempt&)> proposers;
  // Of the model, for rules on the text; null: attempts that have some are refused.
  std::shared_ptr<const TokenTrie> vocabulary;
  bool stages_ahead = true;  // Prepares the next round while one runs.
  // A step may take 8 times the 99th percentile of the laps of its size, within these bounds (the
  // largest while too few laps are known), and as much again for each round with pieces ahead.
  absl::Duration step_timeout_min = absl::Seconds(2);  // Above the lease: beats know who.
  absl::Duration step_timeout_max = absl::Seconds(5);
  // A stage that does not know the attempt yet, since steps overtook its OPEN, gets them again
  // after a pause; the pause doubles.
  absl::Duration resend_pause = absl::Milliseconds(10);
  int32_t resends_max = 6;
  absl::Duration retry_after = absl::Seconds(1);  // Advice in kOverloaded.
};

struct HeadStats {
  uint64_t attempts_started = 0;  // Taken: admitted or queued.
  uint64_t attempts_refused = 0;
  std::array<uint64_t, kFailureKindCount> refusals = {};  // The same, by kind.
  uint64_t attempts_ended = 0;
  uint64_t attempts_failed = 0;   // Of those ended.
  uint64_t attempts_waited = 0;   // For a slot,
  uint64_t attempts_skipped = 0;  // and for one of their tenant's.
  uint64_t rounds = 0;
  uint64_t rows = 0;              // Of rounds.
  uint64_t rounds_staged = 0;     // Prepared before their turn.
  uint64_t rounds_promoted = 0;   // Of those: it was the round that came,
  uint64_t rounds_displaced = 0;  // or another one.
  uint64_t decode_rows = 0;
  uint64_t piece_tokens = 0;
  // Rounds of 1, 2, 3 to 4, 5 to 8 … rows; the last one holds the rest.
  std::array<uint64_t, 9> rounds_of_rows = {};
  uint64_t steps_sent = 0;
  uint64_t tokens_sampled = 0;
  uint64_t tokens_drafted = 0;
  uint64_t tokens_accepted = 0;  // Of those drafted.
  uint64_t returns_ignored = 0;  // Copies, or of attempts that ended.
  uint64_t failures_ignored = 0;
  uint64_t step_timeouts = 0;
  uint64_t steps_resent = 0;  // To stages that did not know the attempt yet.
};

// To be carried out in this order.
struct HeadActions {
  std::vector<ComputeJob> jobs;    // 1. kFinish.
  bool plan_is_off = false;        // 2. To the own StageCore::OnPlan, from the own head: no rows.
  std::vector<StageBundle> steps;  // 3. To its OnBundle.
  // 4. To its OnPlan: the rows of the next bundle, if all goes on as it does.
  std::optional<std::vector<BundleRow>> plan;
  std::vector<ProgressOut> progress;  // 5. To the attempts' streams, before
  std::vector<TokenOut> tokens;       // 6. their tokens, before
  std::list<AttemptEnd> ends;  // 7. their ends. A list: each is made when its attempt begins.

  bool empty() const {
    return jobs.empty() && !plan_is_off && steps.empty() && !plan && progress.empty() &&
           tokens.empty() && ends.empty();
  }
};

}  // namespace shardline
