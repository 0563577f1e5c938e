// What operators ask of the coordinator, carried to the loop and back.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "proto/wire/message_conversion.h"

namespace shardline {
namespace {

v1::SessionSummary ToProto(const SessionSummary& session) {
  v1::SessionSummary summary;
  if (session.key.has_value()) {
    summary.set_session(session.key->session.value());
    summary.set_epoch(session.key->epoch.value());
  }
  summary.set_model(session.model);
  summary.set_phase(std::string(session.phase));
  summary.set_prompt_tokens(session.prompt_tokens);
  summary.set_tokens(session.tokens);
  summary.set_attempts(session.attempts);
  summary.set_age_ms(absl::ToInt64Milliseconds(session.age));
  summary.set_budget_ms(absl::ToInt64Milliseconds(session.budget));
  for (const RouteStage& stage : session.route) *summary.add_route() = ToProto(stage);
  return summary;
}

}  // namespace

void Coordinator::WithView(absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)> use) {
  // Shared with the refusal: a strand that refuses drops the task.
  auto shared = std::make_shared<decltype(use)>(std::move(use));
  const bool posted = loop_.TryPost([this, shared] { (*shared)(View()); });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnLoadModel(LoadStreamId stream, v1::LoadModelRequest request) {
  const bool posted = loop_.TryPost([this, stream, request = std::move(request)] {
    if (stopping_) return admin_.End(stream, Busy());
    models_.Load(stream, request);
  });
  if (!posted) admin_.End(stream, Busy());
}

void Coordinator::OnBeginLoad(v1::LoadModelRequest request,
                              absl::AnyInvocable<void(const absl::StatusOr<std::string>&)> done) {
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool posted = loop_.TryPost([this, request = std::move(request), shared] {
    if (stopping_) return (*shared)(Busy());
    (*shared)(models_.BeginLoad(request));
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnUnloadModel(const std::string& name,
                                absl::AnyInvocable<void(absl::Status)> done) {
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool posted = loop_.TryPost([this, name, shared] {
    models_.Unload(name, [shared](absl::Status status) { (*shared)(status); });
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnPreviewModel(const v1::PreviewModelRequest& request, PreviewReply done) {
  auto shared = std::make_shared<PreviewReply>(std::move(done));
  const bool posted = loop_.TryPost([this, request, shared] {
    if (stopping_) return (*shared)(Busy());
    models_.Preview(request, [shared](const auto& preview) { (*shared)(preview); });
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnListSessions(
    absl::AnyInvocable<void(const absl::StatusOr<v1::SessionList>&)> done) {
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool posted = loop_.TryPost([this, shared] {
    v1::SessionList list;
    for (const SessionSummary& session : sessions_.List()) *list.add_sessions() = ToProto(session);
    (*shared)(std::move(list));
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::OnCancelSession(
    SessionId session, const std::string& reason,
    absl::AnyInvocable<void(const absl::StatusOr<v1::CancelSessionReply>&)> done) {
  auto shared = std::make_shared<decltype(done)>(std::move(done));
  const bool posted = loop_.TryPost([this, session, reason, shared] {
    sessions_.CancelSession(session, reason,
                            [shared](absl::StatusOr<SessionDriver::Standing> standing) {
                              if (!standing.ok()) return (*shared)(standing.status());
                              v1::CancelSessionReply reply;
                              reply.set_outcome(std::string(SessionOutcomeName(standing->outcome)));
                              reply.set_epoch(standing->key.epoch.value());
                              (*shared)(std::move(reply));
                            });
  });
  if (!posted) (*shared)(Busy());
}

void Coordinator::WithStore(absl::AnyInvocable<void(const absl::StatusOr<Store*>&)> use) {
  auto shared = std::make_shared<decltype(use)>(std::move(use));
  const bool posted = store_.Post([shared](Store& store) { (*shared)(&store); });
  if (!posted) (*shared)(Busy());
}

void Coordinator::TellRestarts() {
  if (restarts_.empty()) return;
  const auto& [key, reason] = restarts_.front();
  ClusterEvent event{.level = EventLevel::kWarning, .kind = "session_restarted"};
  if (restarts_.size() == 1) {
    event.session = key.session;
    event.text = absl::StrCat("session ", key.session.value(), " goes on by attempt ",
                              key.epoch.value(), ": ");
  } else {
    event.text = absl::StrCat(restarts_.size(), " sessions go on by new attempts: ");
  }
  absl::StrAppend(&event.text, std::string(reason.message()));
  events_.Add(std::move(event));
  restarts_.clear();
}

ClusterView Coordinator::View() {
  ClusterView view{.term = term_,
                   .nodes = membership_.List(clock_->Now()),
                   .models = models_.List(),
                   .problems = models_.Problems(),
                   .sessions_running = static_cast<uint32_t>(sessions_.running_count()),
                   .sessions_waiting = static_cast<uint32_t>(sessions_.queue().waiting()),
                   .sessions_started = sessions_.stats().started,
                   .tokens_delivered = sessions_.stats().tokens_delivered,
                   .draining = stopping_,
                   .refusal = std::string(Serving().message()),
                   .duties = Duties()};
  for (std::string& problem : membership_.Problems(clock_->Now())) {
    view.problems.push_back(std::move(problem));
  }
  if (view.nodes.empty()) {
    view.problems.push_back("no node has joined; start shardline-node on each machine");
  }
  if (view.models.empty() && view.problems.empty()) {
    view.problems.push_back("no model is loaded; shardctl model load PATH");
  }
  return view;
}

}  // namespace shardline
