#include "coordinator/gateway/admin_http.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/version.h"
#include "coordinator/gateway/admin_calls.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/cluster_json.h"
#include "coordinator/gateway/event_stream.h"
#include "coordinator/gateway/health.h"
#include "coordinator/gateway/page.h"
#include "coordinator/gateway/state_feed.h"
#include "coordinator/gateway/status_text.h"

namespace shardline {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

HttpResponse Text(std::string type, std::string body) {
  HttpResponse response{.status = 200, .headers = {}, .body = std::move(body)};
  response.headers = {{"content-type", std::move(type)},
                      {"cache-control", "no-store"},
                      {"x-content-type-options", "nosniff"}};
  return response;
}

HttpResponse JsonText(std::string body) { return Text("application/json", std::move(body)); }

// An operator's mistakes are 400s; what he asks about and is not there is no model in particular.
HttpResponse Failure(const absl::Status& status) {
  ApiError error;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      error = {.status = 404, .type = "invalid_request_error", .code = "not_found"};
      error.message = std::string(status.message());
      break;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDataLoss:
      error = InvalidValue("", std::string(status.message()));
      break;
    case absl::StatusCode::kResourceExhausted:
      error = NotServing("overloaded", std::string(status.message()), absl::Seconds(1));
      break;
    default:
      error = ErrorOf(status);
  }
  HttpResponse response = ErrorResponse(error);
  response.headers.emplace_back("cache-control", "no-store");
  return response;
}

HttpResponse Refusal(const AdminRefusal& refusal) {
  HttpResponse response = ErrorResponse(refusal.error);
  if (!refusal.allow.empty()) response.headers.emplace_back("allow", refusal.allow);
  return response;
}

// Answers with a message, or with why there is none.
template <typename Message>
auto AnswerTo(Exchange exchange) {
  return [exchange = std::move(exchange)](const absl::StatusOr<Message>& message) {
    exchange->Answer(message.ok() ? JsonText(MessageJson(*message)) : Failure(message.status()));
  };
}

// Host is a header, and goes into a text for terminals.
std::string EndpointOf(const HttpRequest& request) {
  std::string host(request.Header("host").substr(0, 255));
  for (char& c : host) {
    if (c <= 0x20 || c == 0x7f) c = '?';
  }
  return host;
}

bool HasFlag(const HttpRequest& request, std::string_view name) {
  const std::string query = absl::StrCat("&", request.query, "&");
  const std::string flag = absl::StrCat("&", std::string(name));
  return query.find(flag + "&") != std::string::npos || query.find(flag + "=") != std::string::npos;
}

}  // namespace

struct AdminHttp::Impl {
  explicit Impl(const World& parts) : world(parts), feed(parts.events, parts.log, parts.clock) {}

  // One overload a call.
  void Do(const Exchange& exchange, const StateCall&);
  void Do(const Exchange& exchange, const EventsCall& call);
  void Do(const Exchange& exchange, const CordonCall& call);
  void Do(const Exchange& exchange, const DrainCall& call);
  void Do(const Exchange& exchange, const RemoveCall& call);
  void Do(const Exchange& exchange, const CancelCall& call);
  void Do(const Exchange& exchange, const PlacementCall& call);
  void Do(const Exchange& exchange, const LoadCall& call);
  void Do(const Exchange& exchange, const UnloadCall& call);
  void Do(const Exchange& exchange, const RequestListCall&);
  void Do(const Exchange& exchange, const RequestCall& call);

  void HandleAdmin(const Exchange& exchange);
  bool HandlePublic(const Exchange& exchange);
  // Answers with what `make` says of the cluster's view, or of why there is none. For what comes
  // often, and from anybody.
  template <typename Make>
  void AnswerFromView(const Exchange& exchange, Make make);

  const World world;
  StateFeed feed;
};

template <typename Make>
void AdminHttp::Impl::AnswerFromView(const Exchange& exchange, Make make) {
  // The feed answers late when the loop is stuck; a probe is told at once.
  const absl::Duration silence = feed.LoopSilence();
  if (silence > kLoopSilenceMax) {
    exchange->Answer(make(absl::StatusOr<ClusterView>(
        absl::UnavailableError(absl::StrCat("no answer for ", absl::FormatDuration(silence))))));
    return;
  }
  feed.WithMoment(kStateInterval, [exchange, make](const absl::StatusOr<ClusterMoment>& moment) {
    exchange->Answer(make(moment.ok() ? absl::StatusOr<ClusterView>(moment->view)
                                      : absl::StatusOr<ClusterView>(moment.status())));
  });
}

void AdminHttp::Impl::Do(const Exchange& exchange, const StateCall&) {
  feed.WithMoment(absl::ZeroDuration(), [exchange](const absl::StatusOr<ClusterMoment>& moment) {
    exchange->Answer(moment.ok() ? JsonText(MomentJson(*moment).json) : Failure(moment.status()));
  });
}

void AdminHttp::Impl::Do(const Exchange& exchange, const EventsCall& call) {
  if (exchange->request().method == "HEAD") {
    return exchange->Answer(Text("text/event-stream; charset=utf-8", ""));
  }
  const absl::Status watched = feed.Watch(exchange, call.after);
  if (!watched.ok()) exchange->Answer(Failure(watched));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const CordonCall& call) {
  world.events->OnCordonNode(call.node, call.cordon, AnswerTo<v1::NodeSummary>(exchange));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const DrainCall& call) {
  world.events->OnDrainNode(call.request, AnswerTo<v1::NodeSummary>(exchange));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const RemoveCall& call) {
  world.events->OnRemoveNode(call.node, AnswerTo<v1::NodeSummary>(exchange));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const CancelCall& call) {
  world.events->OnCancelSession(call.session, call.reason,
                                AnswerTo<v1::CancelSessionReply>(exchange));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const PlacementCall& call) {
  world.events->OnPreviewModel(call.request, AnswerTo<v1::ModelPreview>(exchange));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const LoadCall& call) {
  world.events->OnBeginLoad(call.request, [exchange](const absl::StatusOr<std::string>& name) {
    if (!name.ok()) return exchange->Answer(Failure(name.status()));
    v1::UnloadModelRequest named;  // {"name"}.
    named.set_name(*name);
    HttpResponse response = JsonText(MessageJson(named));
    response.status = 202;
    exchange->Answer(std::move(response));
  });
}

void AdminHttp::Impl::Do(const Exchange& exchange, const UnloadCall& call) {
  world.events->OnUnloadModel(call.model, [exchange](const absl::Status& status) {
    exchange->Answer(status.ok() ? JsonText("{}") : Failure(status));
  });
}

void AdminHttp::Impl::Do(const Exchange& exchange, const RequestListCall&) {
  exchange->Answer(JsonText(RequestListJson(world.requests->List())));
}

void AdminHttp::Impl::Do(const Exchange& exchange, const RequestCall& call) {
  const std::optional<RequestRecord> record = world.requests->Find(call.id);
  exchange->Answer(
      record ? JsonText(RequestJson(*record))
             : Failure(absl::NotFoundError("no such request is among the last that have ended")));
}

void AdminHttp::Impl::HandleAdmin(const Exchange& exchange) {
  const std::variant<AdminCall, AdminRefusal> read = ReadAdminCall(exchange->request());
  if (const auto* refusal = std::get_if<AdminRefusal>(&read)) {
    return exchange->Answer(Refusal(*refusal));
  }
  std::visit([&](const auto& call) { Do(exchange, call); }, std::get<AdminCall>(read));
}

bool AdminHttp::Impl::HandlePublic(const Exchange& exchange) {
  const HttpRequest& request = exchange->request();
  const std::optional<HttpResponse> page = PageResponse(request);
  const std::string& path = request.path;
  const bool is_ours = page.has_value() || path == "/livez" || path == "/readyz" ||
                       path == "/health" || path == "/status.txt" || path == "/version";
  if (!is_ours) return false;
  if (request.method != "GET" && request.method != "HEAD") {
    exchange->Answer(
        Refusal({.error = MethodNotAllowed(request.method, path), .allow = "GET, HEAD"}));
  } else if (page.has_value()) {
    exchange->Answer(*page);
  } else if (path == "/livez") {
    exchange->Answer(LivezResponse(feed.LoopSilence()));
  } else if (path == "/readyz") {
    AnswerFromView(exchange, [verbose = HasFlag(request, "verbose")](const auto& view) {
      return ReadyzResponse(view, verbose);
    });
  } else if (path == "/health") {
    AnswerFromView(exchange, [](const auto& view) { return HealthResponse(view); });
  } else if (path == "/status.txt") {
    AnswerFromView(exchange, [endpoint = EndpointOf(request)](const auto& view) {
      return view.ok() ? Text("text/plain; charset=utf-8", StatusText(*view, endpoint))
                       : Failure(view.status());
    });
  } else {
    exchange->Answer(JsonText(absl::StrCat(R"({"version":")", std::string(kVersion), R"("})")));
  }
  return true;
}

AdminHttp::AdminHttp(const World& world) : impl_(std::make_unique<Impl>(world)) {}

AdminHttp::~AdminHttp() { Stop(); }

bool AdminHttp::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  const std::string& path = exchange->request().path;
  if (path == "/admin" || path.starts_with("/admin/")) {
    impl_->HandleAdmin(exchange);
    return true;
  }
  return impl_->HandlePublic(exchange);
}

void AdminHttp::Stop() { impl_->feed.Stop(); }

}  // namespace shardline
