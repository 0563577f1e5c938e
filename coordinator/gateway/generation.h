#pragma once

// One HTTP request whose answer is generated: its calls to the coordinator, one a choice, and what
// the client is told of them.
//
// Until the first token (or progress that was asked for, or a comment that keeps the connection)
// nothing is sent, so a failure before it is a plain error with a status of its own. After it a
// failure is an error event and an abnormal end. One choice that fails ends all. A client that is
// gone, or reads too slowly, cancels every call at once; one that gave an idempotency key may come
// back, and is waited for.
//
// Events come from the coordinator's loop, hang-ups from the server, ticks from a timer: a strand
// of its own puts them in order, and no other request waits for it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/strand.h"
#include "coordinator/gateway/api_answer.h"
#include "coordinator/gateway/gateway_models.h"
#include "coordinator/gateway/http_message.h"
#include "coordinator/gateway/request_log.h"
#include "coordinator/gateway/stream_place.h"
#include "coordinator/sessions/session_words.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

class Generation;

// How far it was when its client left.
enum class GenerationPhase { kQueue, kPrefill, kDecode };
std::string_view GenerationPhaseName(GenerationPhase phase);

// How it ended, for whoever counts.
struct GenerationEnd {
  RequestRecord record;
  GenerationPhase phase = GenerationPhase::kQueue;
  bool left = false;     // The client was gone,
  bool stalled = false;  // or did not read.
  bool resumed = false;
};

// What a generation needs of the gateway. Any thread; called without locks.
class GenerationHost {
 public:
  virtual ~GenerationHost() = default;
  // Nobody waits for this call any more.
  virtual void Cancel(RequestId call) = 0;
  // Why the model did not answer, for a client that has heard nothing yet.
  virtual void Explain(const std::string& model, const absl::Status& failure,
                       absl::AnyInvocable<void(const ApiError&)> then) = 0;
  // Once, last: nothing more is said to the client.
  virtual void OnOver(Generation& generation, GenerationEnd end) = 0;
};

struct GenerationSpec {
  std::string request_id;  // x-request-id.
  std::string endpoint;    // Template of the path.
  std::string key_name;    // Of the API key.
  GatewayModel model;
  ApiCall call;
  PreparedCall prepared;  // With tenant and keys in its requests.
  AnswerFacts facts;
  std::vector<RequestId> calls;  // One a request of `prepared`.
  Instant arrived;
  absl::Duration ping_interval;  // Zero: no comments.
  absl::Duration return_grace;   // Time for a client that left to come back; zero: none.
  bool tell_places = false;      // Events carry ids.
  std::optional<StreamPlace> resume_behind;  // What the client has already.
  size_t events_queued_max = 4096;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `host` and `clock` outlive this.
  Generation(GenerationSpec spec, std::shared_ptr<HttpExchange> exchange, GenerationHost* host,
             const Clock* clock);

  const GenerationSpec& spec() const { return spec_; }
  // Nobody listens any more.
  bool closed() const { return closed_.load(); }

  // Any thread; none blocks. Those of a call come in order.
  [[nodiscard]] bool OnEvent(size_t choice, v1::GenerateEvent event);
  void OnEnd(size_t choice, const absl::Status& status);
  void OnGone();
  void OnTick();

 private:
  // On the strand.
  void Take(size_t choice, const v1::GenerateEvent& event);
  void TakeEnd(size_t choice, const absl::Status& status);
  void TakeGone();
  void TakeTick();
  // For the records, and for what headers tell.
  void Note(size_t choice, const v1::GenerateEvent& event);
  void NoteEnd(const v1::GenerateEnd& end);
  // The piece with its id, or nothing of what the client has already.
  std::string Placed(const v1::GenerateEvent& event, std::string piece) const;
  void Say(std::string piece);
  void Complete();
  void Fail(const absl::Status& status);
  void Refuse(const ApiError& error);
  void CancelCalls();
  void Over(int status, std::string reason);

  HttpHeaders Headers(std::string_view content_type) const;
  GenerationPhase Phase() const;
  absl::Duration Elapsed() const { return clock_->Now() - spec_.arrived; }

  // Constant after construction.
  const GenerationSpec spec_;
  GenerationHost* const host_;
  const Clock* const clock_;

  std::atomic<bool> closed_ = false;

  // Owned by the strand.
  std::shared_ptr<HttpExchange> exchange_;  // Null once the client is gone or has been told all.
  ApiAnswer answer_;
  std::vector<bool> ended_;  // By choice.
  size_t ended_count_ = 0;
  bool begun_ = false;  // The head of a stream is out.
  bool over_ = false;
  Instant said_at_;
  std::optional<Instant> gone_at_;  // Whoever has the key may come back.
  v1::GenerateStarted started_;     // Of the first choice.
  GenerationEnd end_;

  Strand strand_;  // Last: its tasks use the others.
};

}  // namespace shardline
