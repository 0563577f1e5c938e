#include "coordinator/gateway/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failure.h"
#include "coordinator/gateway/model_errors.h"
#include "proto/wire/failure_conversion.h"

namespace shardline {
namespace {

constexpr int kClientGone = 499;  // For logs and metrics: nobody is there to be told.
constexpr std::string_view kPing = ": ping\n\n";

std::string_view ReasonName(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

std::vector<RequestRecord::Stage> StagesOf(
    const google::protobuf::RepeatedPtrField<v1::RouteStage>& route) {
  std::vector<RequestRecord::Stage> stages;
  for (const v1::RouteStage& stage : route) {
    stages.push_back({.node = NodeId(stage.node_id()),
                      .layers = {stage.layers().begin(), stage.layers().end()}});
  }
  return stages;
}

}  // namespace

std::string_view GenerationPhaseName(GenerationPhase phase) {
  switch (phase) {
    case GenerationPhase::kQueue:
      return "queue";
    case GenerationPhase::kPrefill:
      return "prefill";
    case GenerationPhase::kDecode:
      return "decode";
  }
  return "queue";
}

Generation::Generation(GenerationSpec spec, std::shared_ptr<HttpExchange> exchange,
                       GenerationHost* host, const Clock* clock)
    : spec_(std::move(spec)),
      host_(host),
      clock_(clock),
      exchange_(std::move(exchange)),
      answer_(spec_.facts, spec_.call, spec_.prepared),
      ended_(spec_.calls.size()),
      said_at_(spec_.arrived),
      strand_(spec_.events_queued_max) {
  RequestRecord& record = end_.record;
  record.request_id = spec_.request_id;
  record.id = spec_.facts.id;
  record.endpoint = spec_.endpoint;
  record.model = spec_.model.name;
  record.key_name = spec_.key_name;
  end_.resumed = spec_.resume_behind.has_value();
}

// Whoever runs the strand holds a reference until it is left, even if the last task ends it all.
bool Generation::OnEvent(size_t choice, v1::GenerateEvent event) {
  if (closed()) return false;
  const std::shared_ptr<Generation> self = shared_from_this();
  return strand_.TryPost([self, choice, event = std::move(event)] { self->Take(choice, event); });
}

void Generation::OnEnd(size_t choice, const absl::Status& status) {
  const std::shared_ptr<Generation> self = shared_from_this();
  strand_.Post([self, choice, status] { self->TakeEnd(choice, status); });
}

void Generation::OnGone() {
  const std::shared_ptr<Generation> self = shared_from_this();
  strand_.Post([self] { self->TakeGone(); });
}

void Generation::OnTick() {
  const std::shared_ptr<Generation> self = shared_from_this();
  (void)strand_.TryPost([self] { self->TakeTick(); });  // The next one comes soon enough.
}

void Generation::Take(size_t choice, const v1::GenerateEvent& event) {
  if (closed() || ended_[choice]) return;
  Note(choice, event);
  if (closed() || exchange_ == nullptr) return;
  std::string piece = answer_.OnEvent(choice, event, Elapsed());
  if (spec_.call.stream) Say(Placed(event, std::move(piece)));
}

void Generation::TakeEnd(size_t choice, const absl::Status& status) {
  if (ended_[choice]) return;
  ended_[choice] = true;
  ++ended_count_;
  if (closed()) return;
  if (!status.ok()) return Fail(status);
  if (ended_count_ == ended_.size()) Complete();
}

void Generation::TakeGone() {
  if (over_ || exchange_ == nullptr) return;
  exchange_ = nullptr;
  end_.left = true;
  end_.phase = Phase();
  if (spec_.return_grace > absl::ZeroDuration() && !closed()) {
    gone_at_ = clock_->Now();
    return;
  }
  CancelCalls();
  Over(kClientGone, "client_gone");
}

void Generation::TakeTick() {
  if (closed()) return;
  const Instant now = clock_->Now();
  if (gone_at_.has_value() && now - *gone_at_ >= spec_.return_grace) {
    CancelCalls();
    return Over(kClientGone, "client_gone");
  }
  const bool silent =
      spec_.ping_interval > absl::ZeroDuration() && now - said_at_ >= spec_.ping_interval;
  if (spec_.call.stream && exchange_ != nullptr && silent) Say(std::string(kPing));
}

void Generation::Note(size_t choice, const v1::GenerateEvent& event) {
  RequestRecord& record = end_.record;
  if (event.has_token()) {
    ++record.tokens;
    if (record.ttft == absl::ZeroDuration()) record.ttft = Elapsed();
    return;
  }
  if (choice != 0) return;
  if (event.has_started()) {
    started_ = event.started();
    record.session = SessionId(started_.session());
    record.epoch = Epoch(started_.epoch());
    record.queued = Elapsed();
    record.prompt_tokens = started_.prompt_tokens();
    record.stages = StagesOf(started_.route());
    const std::optional<StreamPlace>& behind = spec_.resume_behind;
    if (behind.has_value() && behind->session != started_.session()) {
      Refuse(InvalidValue(
          "Last-Event-ID",
          absl::StrCat("Last-Event-ID is of session ", behind->session,
                       ", but the idempotency key is session ", started_.session(), "'s.")));
    }
  } else if (event.has_restarted()) {
    record.epoch = Epoch(event.restarted().epoch());
    record.stages = StagesOf(event.restarted().route());
    record.restarts.push_back(
        {.at = Elapsed(), .epoch = record.epoch, .reason = event.restarted().reason().message()});
  } else if (event.has_end()) {
    NoteEnd(event.end());
  }
}

void Generation::NoteEnd(const v1::GenerateEnd& end) {
  RequestRecord& record = end_.record;
  record.reason = std::string(ReasonName(end.reason()));
  record.cached_tokens = end.cached_tokens();
  record.timings = end.timings();
  const int stages =
      std::min(static_cast<int>(record.stages.size()), end.timings().stage_us_size());
  for (int i = 0; i < stages; ++i) {
    record.stages[static_cast<size_t>(i)].compute = absl::Microseconds(end.timings().stage_us(i));
  }
}

std::string Generation::Placed(const v1::GenerateEvent& event, std::string piece) const {
  if (!event.has_token()) return piece;
  const uint32_t tokens = event.token().token().index() + 1;
  if (spec_.resume_behind.has_value() && tokens <= spec_.resume_behind->tokens) return {};
  if (!spec_.tell_places) return piece;
  return WithPlace({.session = started_.session(), .tokens = tokens}, std::move(piece));
}

void Generation::Say(std::string piece) {
  if (piece.empty()) return;
  said_at_ = clock_->Now();
  if (!begun_) {
    begun_ = true;
    HttpHeaders headers = Headers("text/event-stream; charset=utf-8");
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    return exchange_->Begin({.headers = std::move(headers), .body = std::move(piece)});
  }
  if (exchange_->Write(std::move(piece))) return;
  // Gone, or it does not read: either way nobody waits for the rest.
  end_.stalled = true;
  end_.phase = Phase();
  exchange_->Abort();
  exchange_ = nullptr;
  CancelCalls();
  Over(kClientGone, "client_too_slow");
}

void Generation::Complete() {
  if (exchange_ == nullptr) return Over(kClientGone, "client_gone");
  if (!answer_.complete()) {
    return Refuse(ErrorOf(absl::InternalError("a call ended well, but without its end")));
  }
  if (spec_.call.stream) {
    Say(answer_.Tail());
    if (over_) return;
    exchange_->Finish();
  } else {
    exchange_->Answer({.headers = Headers("application/json"), .body = answer_.Body()});
  }
  Over(200, std::move(end_.record.reason));
}

void Generation::Fail(const absl::Status& status) {
  if (begun_ || exchange_ == nullptr || !ModelMayExplain(status)) return Refuse(ErrorOf(status));
  closed_ = true;
  CancelCalls();
  host_->Explain(spec_.model.name, status, [self = shared_from_this()](const ApiError& error) {
    self->strand_.Post([self, error] { self->Refuse(error); });
  });
}

void Generation::Refuse(const ApiError& error) {
  if (over_) return;
  if (exchange_ != nullptr && begun_) {
    // Whether it is read or not, the end is abnormal.
    [[maybe_unused]] const bool written = exchange_->Write(ErrorEvent(error));
    exchange_->Abort();
  } else if (exchange_ != nullptr) {
    exchange_->Answer(ErrorResponse(error));
  }
  CancelCalls();
  Over(error.status, error.code.value_or(error.type));
}

void Generation::CancelCalls() {
  for (size_t i = 0; i < ended_.size(); ++i) {
    if (!ended_[i]) host_->Cancel(spec_.calls[i]);
  }
}

void Generation::Over(int status, std::string reason) {
  if (std::exchange(over_, true)) return;
  closed_ = true;
  exchange_ = nullptr;
  end_.record.status = status;
  end_.record.reason = std::move(reason);
  end_.record.total = Elapsed();
  host_->OnOver(*this, std::move(end_));
}

HttpHeaders Generation::Headers(std::string_view content_type) const {
  HttpHeaders headers = {{"Content-Type", std::string(content_type)}};
  if (started_.session() == 0) return headers;
  // What is told again from the ledger does not say which plan it was.
  if (started_.plan_epoch() != 0) {
    headers.emplace_back("x-shardline-plan", absl::StrCat(started_.plan_epoch()));
  }
  headers.emplace_back("x-shardline-session", absl::StrCat(started_.session()));
  std::vector<std::string> nodes;
  for (const v1::RouteStage& stage : started_.route()) nodes.push_back(stage.node_id());
  if (!nodes.empty()) headers.emplace_back("x-shardline-nodes", absl::StrJoin(nodes, ","));
  return headers;
}

GenerationPhase Generation::Phase() const {
  if (end_.record.tokens > 0) return GenerationPhase::kDecode;
  return started_.session() == 0 ? GenerationPhase::kQueue : GenerationPhase::kPrefill;
}

}  // namespace shardline
