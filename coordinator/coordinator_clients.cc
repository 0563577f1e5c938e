// Clients' calls, over gRPC and over HTTP: from the shell to a session and back.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/client_stream.h"
#include "coordinator/coordinator.h"

namespace shardline {

// Whose call it is: each shell numbers its own.
ClientSink* Coordinator::SinkOf(RequestId request) {
  if (request.value() >= kFirstHttpCall) return gateway_.get();
  return &inference_;
}

void Coordinator::OnGenerate(RequestId request, v1::GenerateRequest message) {
  // Tokenizing takes time in proportion to the prompt: here, not on the loop. A model that is not
  // in service is left to the loop to explain.
  const std::optional<ModelLoads::Served> served = models_.Find(message.model());
  std::optional<absl::StatusOr<PreparedRequest>> prepared;
  if (served.has_value()) {
    prepared = PrepareRequest(message, served->file, served->context_tokens_max);
  }
  const bool posted = loop_.TryPost(
      [this, request, message = std::move(message), prepared = std::move(prepared)]() mutable {
        StartGenerate(request, message, std::move(prepared));
      });
  if (!posted) SinkOf(request)->End(request, Busy());
}

void Coordinator::StartGenerate(RequestId request, const v1::GenerateRequest& message,
                                std::optional<absl::StatusOr<PreparedRequest>> prepared) {
  if (stopping_) return SinkOf(request)->End(request, Busy());
  if (const absl::Status serving = Serving(); !serving.ok()) {
    return SinkOf(request)->End(request, serving);
  }
  std::string model = message.model();
  if (!prepared.has_value()) {
    // There is no such model; or no name was given, and of several models one may be ready.
    const absl::StatusOr<Route> route = FindRoute(model, {});
    if (!route.ok()) return SinkOf(request)->End(request, route.status());
    model = route->model;
    const std::optional<ModelLoads::Served> served = models_.Find(model);
    if (!served.has_value()) return SinkOf(request)->End(request, Busy());
    prepared = PrepareRequest(message, served->file, served->context_tokens_max);
  }
  if (!prepared->ok()) return SinkOf(request)->End(request, prepared->status());
  const absl::StatusOr<SessionIdentity> identity = IdentityOf(message, **prepared);
  if (!identity.ok()) return SinkOf(request)->End(request, identity.status());
  const auto& held = message.reattach().tokens_held();
  const std::vector<int32_t> tokens_held(held.begin(), held.end());
  auto stream = std::make_unique<ClientStream>(SinkOf(request), request, (*prepared)->file,
                                               static_cast<uint32_t>((*prepared)->prompt.size()),
                                               tokens_held);
  sessions_.RunWithFailover({.call = request,
                             .model = std::move(model),
                             .prepared = **std::move(prepared),
                             .identity = *identity,
                             .tokens_held = tokens_held},
                            std::move(stream));
}

void Coordinator::OnClientGone(RequestId request) {
  loop_.Post([this, request] { sessions_.Cancel(request); });
}

absl::StatusOr<v1::TokenizeReply> Coordinator::OnTokenize(const v1::TokenizeRequest& request) {
  const std::optional<ModelLoads::Served> served = models_.Find(request.model());
  if (!served.has_value()) {
    return absl::NotFoundError(absl::StrCat("no model ", request.model(), " is in service"));
  }
  SL_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      served->file->tokenizer->Encode(
          request.text(), {.add_special = true, .parse_special = request.parse_special()}));
  v1::TokenizeReply reply;
  reply.mutable_ids()->Assign(ids.begin(), ids.end());
  return reply;
}

}  // namespace shardline
