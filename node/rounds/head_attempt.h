#pragma once

// What a head keeps of the attempts, lanes and rounds it drives: the plain data inside HeadCore.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/id.h"
#include "base/instant.h"
#include "base/prefix_chain.h"
#include "base/route.h"
#include "node/rounds/drafter.h"
#include "node/rounds/run_attempt.h"
#include "node/rounds/sampler_slots.h"
#include "node/stage/round_plan.h"
#include "node/stage/step_ledger.h"

namespace shardline {

// What any cost model may ask of a lane.
inline constexpr int32_t kLaneRoundsMax = 16;

struct HeadAttempt;

// A round on its way: what is left of its rows.
struct HeadRound {
  uint64_t walk = 0;
  int32_t rows_out = 0;       // In the ring.
  int32_t rows_sampling = 0;  // Back, and not sampled yet.
  int32_t rows_sampled = 0;
  int32_t pieces_out = 0;  // Of the rows in the ring.

  // Stragglers do not hold up the next round: what comes back with it may go on.
  bool is_over() const { return rows_sampling == 0 && (rows_out == 0 || rows_sampled > 0); }
};

// The attempts of one tenant in a lane.
struct HeadTenant {
  std::list<HeadAttempt*> filling;  // With prompt left to send, in turn.
  size_t attempts = 0;
};

// The attempts whose routes are the same ring.
struct HeadLane {
  uint64_t id = 0;
  int32_t rounds_in_flight_max = 1;
  uint64_t rounds_begun = 0;
  std::vector<HeadRound> rounds;  // In flight, oldest first.
  std::list<HeadAttempt*> ready;  // With a token to send, in the order in which it was drawn.
  std::map<std::string, HeadTenant> tenants;
  std::string served_last;  // The tenant whose prompt had the last piece.
  size_t attempts = 0;
  size_t decoding = 0;  // Attempts behind their first token.
};

using HeadLanes = std::map<std::vector<StagePeer>, HeadLane>;

// A step on its way round the ring, and until its tokens are drawn.
struct HeadFlight {
  StepIndex step;
  RoundRowKind kind = RoundRowKind::kDecode;
  uint64_t walk = 0;  // Of its round.
  Instant sent;
  int32_t position = 0;
  int32_t token_count = 0;
  int32_t round_tokens = 0;        // Of all its round.
  int32_t piece_rounds_ahead = 0;  // In the ring when it was sent.
  bool own_layers_done = false;
  std::vector<int32_t> drafts;  // Of a verify row.

  bool is_piece() const { return kind == RoundRowKind::kPiece || kind == RoundRowKind::kFinal; }
  bool is_sampled() const { return kind != RoundRowKind::kPiece; }
};

// Lists hold attempts by a node that each attempt brings along, so joining and leaving them needs
// no memory; likewise its end is made when it begins. Neither copied nor moved.
struct HeadAttempt {
  HeadAttempt() = default;
  HeadAttempt(const HeadAttempt&) = delete;
  HeadAttempt& operator=(const HeadAttempt&) = delete;

  RunAttempt run;               // Less prompt and delivered tokens, which are in `tokens`.
  std::vector<int32_t> tokens;  // Prompt, delivered ones, then each as it is drawn.
  int32_t prompt_count = 0;     // Of `tokens`,
  int32_t prefix_count = 0;     // and with the delivered ones.
  std::list<AttemptEnd> end;    // One.

  HeadLanes::iterator lane;
  HeadTenant* tenant = nullptr;           // In the lane.
  std::list<HeadAttempt*> spot;           // Its node, while it is in no list.
  std::list<HeadAttempt*>* list = &spot;  // Where the node is.
  std::list<HeadAttempt*>::iterator node;

  std::shared_ptr<Sampler> sampler;   // Until it is leased a slot.
  std::optional<SamplerLease> lease;  // None: it waits for one.
  Instant arrived;
  Instant admitted;
  Instant deadline;
  Instant progress;                  // Last time a step was sent or came back.
  int32_t tokens_limit = 0;          // Rows of KV it may use.
  int32_t sent = 0;                  // Tokens whose KV every stage has or will have.
  std::unique_ptr<Drafter> drafter;  // None: nothing is guessed.
  int32_t read = 0;                  // Of `tokens`, by the drafter.
  std::vector<int32_t> drafts;       // Guesses that go with its next row.
  int32_t rejected = 0;  // Drafts of the last step that were wrong: goes with the next row.
  uint64_t step_next = 0;
  uint32_t generated = 0;  // Delivered ones included.

  // Steps in the ring, in order, and the one whose tokens are being drawn.
  absl::InlinedVector<HeadFlight, kStepsInFlightMax> flights;
  std::optional<HeadFlight> finishing;
  int32_t resends = 0;
  std::optional<Instant> resend_at;  // The steps in flight go again.
  StepIndex resent_below;            // Steps that went more than once.

  bool is_decoding = false;      // Behind its first token.
  uint64_t rounds_at_ready = 0;  // Of the lane, when it became ready,
  uint64_t rounds_at_token = 0;  // and when its last token was drawn.
  Instant first_token;
  Instant last_token;
  RunTimings timings;

  // The chain over the accepted tokens: base/prefix_chain.h.
  PrefixKey chain;
  int32_t chain_pages = 0;  // That it covers.
  int32_t open_pages = 0;   // Whose keys the stages have from OPEN.
};

}  // namespace shardline
