#include "coordinator/gateway/gateway.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/counted_exchange.h"
#include "coordinator/gateway/generation_spec.h"
#include "coordinator/gateway/header_exchange.h"
#include "coordinator/gateway/model_errors.h"
#include "coordinator/gateway/text_endpoints.h"

namespace shardline {
namespace {

constexpr size_t kIgnoredFieldsMax = 256;
// A silent stream's comment, and a client that may come back, are looked at so often.
constexpr int kTicksAnInterval = 4;
constexpr absl::Duration kTickMin = absl::Milliseconds(50);
constexpr absl::Duration kTickMax = absl::Seconds(1);

absl::Duration TickInterval(const GatewayOptions& options) {
  absl::Duration shortest = kTickMax;
  for (const absl::Duration wait : {options.ping_interval, options.return_grace}) {
    if (wait > absl::ZeroDuration()) shortest = std::min(shortest, wait / kTicksAnInterval);
  }
  return std::max(shortest, kTickMin);
}

HttpResponse JsonResponse(const Json& json) {
  return {.headers = {{"Content-Type", "application/json"}}, .body = JsonLine(json)};
}

void Answer(HttpExchange& exchange, const ApiResult<Json>& result) {
  exchange.Answer(result.ok() ? JsonResponse(*result) : ErrorResponse(result.error()));
}

HttpResponse NotAllowed(const RouteMatch& route, const HttpRequest& request) {
  HttpResponse response = ErrorResponse(MethodNotAllowed(request.method, request.path));
  response.headers.emplace_back("Allow", absl::StrJoin(route.methods, ", "));
  return response;
}

// Of few values, whatever clients send.
std::string MethodLabel(const std::string& method) {
  for (const std::string_view known : {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"}) {
    if (method == known) return method;
  }
  return "other";
}

std::string RouteLabel(const RouteMatch& route, std::string_view path) {
  if (route.endpoint != Endpoint::kUnknown) return std::string(route.name);
  switch (PathClassOf(path)) {
    case PathClass::kAdmin:
      return "/admin";
    case PathClass::kPublic:
      return "public";
    case PathClass::kEither:
    case PathClass::kInference:
      break;
  }
  return "other";
}

}  // namespace

Gateway::Gateway(const World& world, const GatewayOptions& options)
    : world_(world), options_(options), timer_(world.clock, [this] { Tick(); }) {}

Gateway::~Gateway() { Stop(); }

void Gateway::Stop() {
  reader_.Stop();
  timer_.Stop();
}

void Gateway::OnRequest(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  Passed passed{.route = MatchRoute(request.path), .arrived = world_.clock->Now()};
  static const auto* const kNoKeys = new ApiKeys();
  const std::shared_ptr<const ApiKeys> keys =
      world_.keys == nullptr ? nullptr : world_.keys->Keys();
  AccessVerdict verdict =
      Decide(options_.access, keys == nullptr ? *kNoKeys : *keys, request, MakeRequestId());
  passed.request_id = verdict.request_id;
  passed.key_name = verdict.key_name;
  exchange = Counted(std::move(exchange), [this, route = RouteLabel(passed.route, request.path),
                                           method = MethodLabel(request.method)](int status) {
    CountRequest(route, method, status);
  });
  passed.exchange = WithHeaders(std::move(exchange), std::move(verdict.headers));
  if (verdict.answer.has_value()) return passed.exchange->Answer(*std::move(verdict.answer));
  if (world_.other_paths && world_.other_paths(passed.exchange)) return;
  Dispatch(std::move(passed));
}

HttpResponse Gateway::Refusal(int status, std::string_view reason) {
  HttpResponse response = ErrorResponse(HttpRefusal(status, reason));
  response.headers.emplace_back("x-request-id", MakeRequestId());
  CountRequest("other", "other", status);
  return response;
}

void Gateway::Dispatch(Passed passed) {
  const HttpRequest& request = passed.exchange->request();
  const RouteMatch& route = passed.route;
  if (route.endpoint == Endpoint::kUnknown) {
    return passed.exchange->Answer(ErrorResponse(UnknownUrl(request.method, request.path)));
  }
  if (route.endpoint == Endpoint::kUnsupported) {
    return passed.exchange->Answer(ErrorResponse(UnsupportedEndpoint(request.path)));
  }
  if (!route.Allows(request.method)) {
    return passed.exchange->Answer(NotAllowed(route, request));
  }
  auto work = [this, passed] {
    switch (passed.route.endpoint) {
      case Endpoint::kChat:
        return Generate(ApiKind::kChat, passed);
      case Endpoint::kCompletions:
        return Generate(ApiKind::kCompletion, passed);
      case Endpoint::kModels:
      case Endpoint::kModel:
      case Endpoint::kProps:
        return AnswerModels(passed);
      case Endpoint::kTokenize:
      case Endpoint::kDetokenize:
      case Endpoint::kApplyTemplate:
        return AnswerText(passed);
      case Endpoint::kUnknown:
      case Endpoint::kUnsupported:
        return;
    }
  };
  if (request.body.size() <= options_.long_body_bytes) return work();
  if (!reader_.Post(work)) passed.exchange->Answer(ErrorResponse(ErrorOfDraining()));
}

void Gateway::Generate(ApiKind kind, const Passed& passed) {
  if (draining_) return passed.exchange->Answer(ErrorResponse(ErrorOfDraining()));
  ApiResult<ApiCall> call = ParseApiCall(kind, passed.exchange->request().body, options_.limits);
  if (!call.ok()) return passed.exchange->Answer(ErrorResponse(call.error()));
  NoteIgnored(*call);
  const std::optional<GatewayModel> model = world_.models->Find(call->model);
  if (!model.has_value()) return RefuseModel(call->model, passed);
  StartGeneration(*std::move(call), *model, passed);
}

void Gateway::StartGeneration(ApiCall call, const GatewayModel& model, const Passed& passed) {
  ApiResult<GenerationSpec> spec =
      MakeGenerationSpec(passed.exchange->request(), std::move(call), model,
                         {.request_id = passed.request_id,
                          .endpoint = std::string(passed.route.name),
                          .key_name = passed.key_name,
                          .nonce = MakeRequestId(),
                          .arrived = passed.arrived,
                          .now = absl::Now()},
                         {.ping_interval = options_.ping_interval,
                          .return_grace = options_.return_grace,
                          .events_queued_max = options_.events_queued_max});
  if (!spec.ok()) return passed.exchange->Answer(ErrorResponse(spec.error()));
  spec->calls = NumberCalls(spec->prepared.requests.size());
  const std::vector<RequestId> calls = spec->calls;
  const auto generation = std::make_shared<Generation>(
      *std::move(spec), passed.exchange, static_cast<GenerationHost*>(this), world_.clock);
  {
    absl::MutexLock lock(&mu_);
    for (size_t i = 0; i < calls.size(); ++i) calls_[calls[i]] = {generation, i};
    ++figures_.generations;
  }
  WakeForTick();
  passed.exchange->OnGone([weak = std::weak_ptr<Generation>(generation)] {
    if (const std::shared_ptr<Generation> left = weak.lock()) left->OnGone();
  });
  for (size_t i = 0; i < calls.size(); ++i) {
    world_.clients->OnGenerate(calls[i], generation->spec().prepared.requests[i]);
    // One that was over before it began was not yet there to be cancelled.
    if (generation->closed()) world_.clients->OnClientGone(calls[i]);
  }
}

void Gateway::AnswerText(const Passed& passed) {
  const ApiResult<Json> body = ParseJson(passed.exchange->request().body);
  if (!body.ok()) return passed.exchange->Answer(ErrorResponse(body.error()));
  const ApiResult<std::string> name = ModelNamed(*body);
  if (!name.ok()) return passed.exchange->Answer(ErrorResponse(name.error()));
  const std::optional<GatewayModel> model = world_.models->Find(*name);
  if (!model.has_value()) return RefuseModel(*name, passed);
  switch (passed.route.endpoint) {
    case Endpoint::kTokenize:
      return Answer(*passed.exchange, Tokenize(*body, *model, absl::Now()));
    case Endpoint::kDetokenize:
      return Answer(*passed.exchange, Detokenize(*body, *model));
    default:
      return Answer(*passed.exchange, ApplyTemplate(*body, *model, absl::Now()));
  }
}

void Gateway::AnswerModels(const Passed& passed) {
  if (passed.route.endpoint == Endpoint::kModels) {
    return passed.exchange->Answer(JsonResponse(ModelList(world_.models->List())));
  }
  const std::optional<GatewayModel> model = world_.models->Find(passed.route.model);
  if (!model.has_value()) return RefuseModel(passed.route.model, passed);
  const bool props = passed.route.endpoint == Endpoint::kProps;
  passed.exchange->Answer(JsonResponse(props ? Props(*model) : ModelEntry(*model)));
}

void Gateway::RefuseModel(const std::string& name, const Passed& passed) {
  world_.admin->WithView(
      [name, exchange = passed.exchange](const absl::StatusOr<ClusterView>& view) {
        exchange->Answer(ErrorResponse(ErrorOfMissingModel(view, name)));
      });
}

bool Gateway::Send(RequestId call, v1::GenerateEvent event) {
  size_t choice = 0;
  const std::shared_ptr<Generation> generation = Find(call, &choice);
  return generation != nullptr && generation->OnEvent(choice, std::move(event));
}

void Gateway::End(RequestId call, const absl::Status& status) {
  size_t choice = 0;
  const std::shared_ptr<Generation> generation = Find(call, &choice);
  if (generation != nullptr) generation->OnEnd(choice, status);
}

void Gateway::Cancel(RequestId call) { world_.clients->OnClientGone(call); }

void Gateway::Explain(const std::string& model, const absl::Status& failure,
                      absl::AnyInvocable<void(const ApiError&)> then) {
  if (draining_) return then(ErrorOfDraining());
  world_.admin->WithView(
      [model, failure, then = std::move(then)](const absl::StatusOr<ClusterView>& view) mutable {
        then(ErrorOfModel(view, model, failure));
      });
}

void Gateway::OnOver(Generation& generation, GenerationEnd end) {
  const RequestRecord& record = end.record;
  LogInfo("request for text ended", {{"request_id", record.request_id},
                                     {"endpoint", record.endpoint},
                                     {"model", record.model},
                                     {"key", record.key_name},
                                     {"session", record.session},
                                     {"status", record.status},
                                     {"reason", record.reason},
                                     {"prompt_tokens", static_cast<uint64_t>(record.prompt_tokens)},
                                     {"tokens", static_cast<uint64_t>(record.tokens)},
                                     {"ttft", record.ttft},
                                     {"total", record.total}});
  {
    absl::MutexLock lock(&mu_);
    for (const RequestId call : generation.spec().calls) calls_.erase(call);
    --figures_.generations;
    if (record.tokens > 0) figures_.ttft_seconds.Observe(absl::ToDoubleSeconds(record.ttft));
    if (end.left) {
      ++figures_.disconnects[{record.endpoint, std::string(GenerationPhaseName(end.phase))}];
    }
    if (end.stalled) ++figures_.streams_stalled;
    if (end.resumed) ++figures_.resumed;
  }
  if (world_.requests == nullptr) return;
  end.record.at_unix_ms = absl::ToUnixMillis(absl::Now() - record.total);  // For people.
  world_.requests->Add(std::move(end.record));
}

GatewayFigures Gateway::figures() const {
  absl::MutexLock lock(&mu_);
  return figures_;
}

void Gateway::CountRequest(const std::string& route, const std::string& method, int status) {
  absl::MutexLock lock(&mu_);
  ++figures_.requests[{route, method, status}];
}

// Once a field and coordinator: clients send the same ones with every request.
void Gateway::NoteIgnored(const ApiCall& call) {
  for (const std::string& field : call.ignored) {
    {
      absl::MutexLock lock(&mu_);
      if (ignored_.size() >= kIgnoredFieldsMax || !ignored_.insert(field).second) continue;
    }
    LogInfo("a field of requests has no effect", {{"field", field}});
  }
}

std::vector<RequestId> Gateway::NumberCalls(size_t count) {
  std::vector<RequestId> calls;
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < count; ++i) calls.push_back(RequestId(next_call_++));
  return calls;
}

std::shared_ptr<Generation> Gateway::Find(RequestId call, size_t* choice) {
  absl::MutexLock lock(&mu_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return nullptr;
  *choice = found->second.choice;
  return found->second.generation;
}

void Gateway::WakeForTick() { timer_.WakeAt(world_.clock->Now() + TickInterval(options_)); }

void Gateway::Tick() {
  std::vector<std::shared_ptr<Generation>> generations;
  {
    absl::MutexLock lock(&mu_);
    tick_asked_ = false;
    for (const auto& [id, call] : calls_) {
      if (call.choice == 0) generations.push_back(call.generation);
    }
  }
  for (const std::shared_ptr<Generation>& generation : generations) generation->OnTick();
  if (!generations.empty()) WakeForTick();
}

}  // namespace shardline
