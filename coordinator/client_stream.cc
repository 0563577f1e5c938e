#include "coordinator/client_stream.h"

#include <utility>

#include "base/failure.h"
#include "coordinator/transport/node_conversion.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/message_conversion.h"

namespace shardline {

ClientStream::ClientStream(ClientSink* clients, RequestId id, std::shared_ptr<const ModelFile> file,
                           uint32_t prompt_tokens, const std::vector<int32_t>& tokens_held)
    : clients_(clients), id_(id), file_(std::move(file)), prompt_tokens_(prompt_tokens) {
  for (const int32_t token : tokens_held) TextOf(token);  // Which the client has.
}

void ClientStream::OnStarted(const SessionStart& start) {
  v1::GenerateEvent event;
  v1::GenerateStarted& started = *event.mutable_started();
  started.set_session(start.key.session.value());
  started.set_epoch(start.key.epoch.value());
  started.set_plan_epoch(start.route.plan.value());
  started.set_model(start.model);
  started.set_prompt_tokens(prompt_tokens_);
  for (const RouteStage& stage : start.route.stages) *started.add_route() = ToProto(stage);
  Send(std::move(event));
}

void ClientStream::OnRestarted(const SessionRestart& restart) {
  v1::GenerateEvent event;
  v1::GenerateRestarted& restarted = *event.mutable_restarted();
  restarted.set_epoch(restart.key.epoch.value());
  *restarted.mutable_reason() = ToProto(restart.reason);
  for (const RouteStage& stage : restart.route.stages) *restarted.add_route() = ToProto(stage);
  Send(std::move(event));
}

void ClientStream::OnProgress(const SessionProgress& progress) {
  v1::GenerateEvent event;
  event.mutable_progress()->set_prompt_tokens_done(progress.tokens_done);
  event.mutable_progress()->set_prompt_tokens(progress.tokens);
  Send(std::move(event));
}

bool ClientStream::OnToken(const SessionToken& token) {
  v1::GenerateEvent event;
  v1::RunToken& out = *event.mutable_token()->mutable_token();
  if (token.detail != nullptr) out = *token.detail;
  out.set_index(token.index);
  out.set_token(token.token);
  event.mutable_token()->set_text(TextOf(token.token));
  return Send(std::move(event));
}

void ClientStream::OnEnd(const SessionEnd& end) {
  if (end.status.ok()) {
    v1::GenerateEvent event;
    v1::GenerateEnd& out = *event.mutable_end();
    out.set_reason(ToProto(end.result.reason));
    out.set_text(hold_.Flush());
    out.set_prompt_tokens(prompt_tokens_);
    out.set_generated_tokens(end.result.tokens);
    out.set_cached_tokens(end.result.cached_tokens);
    out.set_ttft_us(absl::ToInt64Microseconds(end.ttft));
    out.set_total_us(absl::ToInt64Microseconds(end.total));
    *out.mutable_timings() = ToProto(end.result.timings);
    if (!Send(std::move(event))) return;
  }
  clients_->End(id_, end.status);
}

bool ClientStream::Send(v1::GenerateEvent event) {
  if (clients_->Send(id_, std::move(event))) return true;
  // Gone, or it does not read: either way nobody waits for the rest.
  clients_->EndNow(id_, MakeFailure(FailureKind::kOverloaded,
                                    "the client reads more slowly than the model answers, and its "
                                    "queue is full"));
  return false;
}

// The bytes that may go out once `token` is there.
std::string ClientStream::TextOf(int32_t token) {
  const Tokenizer& tokenizer = *file_->tokenizer;
  const bool is_text = token >= 0 && token < tokenizer.vocab_size() && !tokenizer.IsControl(token);
  return is_text ? hold_.Push(tokenizer.TokenBytes(token)) : std::string();
}

}  // namespace shardline
