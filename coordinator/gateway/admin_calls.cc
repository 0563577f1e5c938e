#include "coordinator/gateway/admin_calls.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/gateway/access.h"
#include "coordinator/gateway/api_json.h"
#include "coordinator/gateway/event_stream.h"

namespace shardline {
namespace {

constexpr size_t kIdBytesMax = 256;
constexpr size_t kReasonBytesMax = 200;  // It goes into the record.
constexpr int64_t kDrainMsDefault = 30000;
constexpr int64_t kDrainMsMax = 24 * 3600 * 1000;
constexpr JsonLimits kBodyLimits = {.bytes_max = 64 * 1024, .depth_max = 8, .values_max = 4096};

using Parts = std::vector<std::string>;
using Reading = std::variant<AdminCall, AdminRefusal>;

AdminRefusal Refuse(ApiError error) { return {.error = std::move(error), .allow = {}}; }

AdminRefusal WrongMethod(const HttpRequest& request, std::string allow) {
  return {.error = MethodNotAllowed(request.method, request.path), .allow = std::move(allow)};
}

AdminRefusal NoSuchPath(const HttpRequest& request) {
  return Refuse(UnknownUrl(request.method, request.path));
}

bool IsRead(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

bool IsId(const std::string& id) {
  return !id.empty() && id.size() <= kIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

// What a page of another site can send without being asked for leave has neither.
std::optional<ApiError> CheckWriter(const HttpRequest& request) {
  if (!IsOwnOrigin(request))
    return PermissionDenied("pages of other sites may change nothing here");
  if (request.method != "POST") return std::nullopt;
  std::string type = absl::AsciiStrToLower(std::string(request.Header("content-type")));
  type = type.substr(0, type.find(';'));
  if (absl::StripAsciiWhitespace(type) == "application/json") return std::nullopt;
  return HttpRefusal(415, "this needs Content-Type: application/json");
}

// An object; an empty body is an empty one.
ApiResult<Json> ReadBody(const HttpRequest& request) {
  if (request.body.empty()) return Json::object();
  ApiResult<Json> json = ParseJson(request.body, kBodyLimits);
  if (json.ok() && !json->is_object()) return InvalidValue("", "the body is no JSON object");
  return json;
}

// The first field that nobody reads is a slip of the pen: an operator means what he writes.
std::optional<ApiError> Finish(JsonFields& fields, std::optional<ApiError>& error) {
  if (!error && !fields.Unasked().empty()) {
    const std::string name = fields.Unasked().front();
    error = Unsupported(name, absl::StrCat("there is no field \"", name, "\" here"));
  }
  return error;
}

// As protobuf reads JSON, by the names of the .proto files; unknown fields are errors.
std::optional<ApiError> FillMessage(const Json& json, google::protobuf::Message& message) {
  const auto status = google::protobuf::util::JsonStringToMessage(JsonLine(json), &message, {});
  if (status.ok()) return std::nullopt;
  return InvalidValue("", std::string(status.message()));
}

Reading ReadDrain(const NodeId& node, const Json& body) {
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  DrainCall call;
  call.request.set_node_id(node.value());
  call.request.set_deadline_ms(fields.Int("deadline_ms", 0, kDrainMsMax).value_or(kDrainMsDefault));
  call.request.set_force(fields.Bool("force").value_or(false));
  if (Finish(fields, error)) return Refuse(*error);
  return call;
}

Reading ReadNodeVerb(const HttpRequest& request, const std::string& id, const std::string& verb,
                     const Json& body) {
  const NodeId node(id);
  if (verb == "drain") return ReadDrain(node, body);
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  if (Finish(fields, error)) return Refuse(*error);
  if (verb == "cordon") return CordonCall{node, true};
  if (verb == "uncordon") return CordonCall{node, false};
  if (verb == "remove") return RemoveCall{node};
  return NoSuchPath(request);
}

Reading ReadCancel(const HttpRequest& request, const std::string& id, const Json& body) {
  uint64_t session = 0;
  if (!absl::SimpleAtoi(id, &session) || session == 0) return NoSuchPath(request);
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  CancelCall call{.session = SessionId(session),
                  .reason = fields.String("reason").value_or("an operator cancelled it")};
  if (call.reason.size() > kReasonBytesMax) {
    fields.Fail(InvalidValue("reason", "reason is longer than 200 bytes"));
  }
  if (Finish(fields, error)) return Refuse(*error);
  return call;
}

Reading ReadPlacement(Json body) {
  PlacementCall call;
  std::optional<ApiError> error;
  {
    JsonFields fields(body, "", &error);
    call.request.set_model(fields.String("model").value_or(""));
  }
  body.erase("model");
  if (!error) error = FillMessage(body, *call.request.mutable_load());
  if (!error && call.request.model().empty() && call.request.load().path().empty()) {
    error = MissingParameter("path");
  }
  if (error) return Refuse(*error);
  return call;
}

Reading ReadLoad(const Json& body) {
  LoadCall call;
  std::optional<ApiError> error = FillMessage(body, call.request);
  if (!error && call.request.path().empty()) error = MissingParameter("path");
  if (error) return Refuse(*error);
  return call;
}

// POST /admin/v1/nodes/{id}/{verb} and the like; `parts` is what follows /admin/v1.
Reading ReadPost(const HttpRequest& request, const Parts& parts, const std::string& id) {
  const ApiResult<Json> body = ReadBody(request);
  if (!body.ok()) return Refuse(body.error());
  if (parts[0] == "placement") return ReadPlacement(*body);
  if (parts[0] == "models") return ReadLoad(*body);
  if (parts[0] == "nodes") return ReadNodeVerb(request, id, parts.back(), *body);
  if (parts.back() != "cancel") return NoSuchPath(request);
  return ReadCancel(request, id, *body);
}

uint64_t AfterOf(const HttpRequest& request) {
  const std::string_view header = request.Header("last-event-id");
  if (!header.empty()) return EventIdOf(header);
  for (const absl::string_view field : absl::StrSplit(request.query, '&')) {
    constexpr absl::string_view kAfter = "after=";
    if (!absl::StartsWith(field, kAfter)) continue;
    const absl::string_view value = field.substr(kAfter.size());
    return EventIdOf({value.data(), value.size()});
  }
  return 0;
}

// What takes GET: {"state"}, {"events"}, {"requests"}, {"requests", id}.
Reading ReadGet(const HttpRequest& request, const Parts& parts, const std::string& rest) {
  if (!IsRead(request)) return WrongMethod(request, "GET, HEAD");
  if (parts[0] == "state") return StateCall{};
  if (parts[0] == "events") return EventsCall{AfterOf(request)};
  if (rest.empty()) return RequestListCall{};
  return RequestCall{rest};
}

}  // namespace

Reading ReadAdminCall(const HttpRequest& request) {
  constexpr std::string_view kRoot = "/admin/v1/";
  if (!request.path.starts_with(kRoot)) return NoSuchPath(request);
  const Parts parts = absl::StrSplit(request.path.substr(kRoot.size()), '/');
  const std::string& noun = parts[0];
  // An id may hold slashes: it is all between the noun and the verb, or all behind the noun.
  const std::string rest = absl::StrJoin(parts.begin() + 1, parts.end(), "/");
  const std::string id =
      parts.size() < 3 ? "" : absl::StrJoin(parts.begin() + 1, parts.end() - 1, "/");

  const bool is_alone = parts.size() == 1;
  if ((noun == "state" || noun == "events") && is_alone) return ReadGet(request, parts, rest);
  if (noun == "requests" && (is_alone || IsId(rest))) return ReadGet(request, parts, rest);
  const bool is_unload = noun == "models" && !is_alone;
  if (is_unload && IsId(rest)) {
    if (request.method != "DELETE") return WrongMethod(request, "DELETE");
    if (const auto error = CheckWriter(request)) return Refuse(*error);
    return UnloadCall{rest};
  }
  const bool is_post = ((noun == "placement" || noun == "models") && is_alone) ||
                       ((noun == "nodes" || noun == "sessions") && IsId(id));
  if (!is_post) return NoSuchPath(request);
  if (request.method != "POST") return WrongMethod(request, "POST");
  if (const auto error = CheckWriter(request)) return Refuse(*error);
  return ReadPost(request, parts, id);
}

}  // namespace shardline
