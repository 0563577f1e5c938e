#include "coordinator/gateway/api_error.h"

#include <map>
#include <set>

#include "base/failure.h"
#include "coordinator/gateway/api_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

std::map<std::string, std::string> HeadersOf(const ApiError& error) {
  const HttpResponse response = ErrorResponse(error);
  return {response.headers.begin(), response.headers.end()};
}

struct Row {
  ApiError error;
  int status;
  std::string type;
  std::optional<std::string> code;
};

// Section 4 of the API's reference.
std::vector<Row> Rows() {
  const absl::Duration wait = absl::Seconds(2);
  return {
      {InvalidValue("temperature", "no"), 400, "invalid_request_error", "invalid_value"},
      {MissingParameter("messages"), 400, "invalid_request_error", "missing_required_parameter"},
      {Unsupported("audio", "no"), 400, "invalid_request_error", "unsupported_parameter"},
      {ContextLengthExceeded("messages", 9, 0, 8), 400, "invalid_request_error",
       "context_length_exceeded"},
      {InvalidApiKey("no key"), 401, "authentication_error", "invalid_api_key"},
      {PermissionDenied("not yours"), 403, "permission_error", std::nullopt},
      {ModelNotFound("gpt-4"), 404, "invalid_request_error", "model_not_found"},
      {UnknownUrl("GET", "/v2"), 404, "invalid_request_error", "unknown_url"},
      {MethodNotAllowed("PUT", "/v1/models"), 405, "invalid_request_error", "method_not_allowed"},
      {HttpRefusal(413, "too large"), 413, "invalid_request_error", "request_too_large"},
      {HttpRefusal(415, "what?"), 415, "invalid_request_error", "unsupported_media_type"},
      {HttpRefusal(503, "full"), 503, "server_error", "too_many_connections"},
      {InternalError("oh"), 500, "server_error", "internal_error"},
      {UnsupportedEndpoint("/v1/embeddings"), 501, "not_implemented_error", "unsupported_endpoint"},
      {NotServing("model_loading", "soon", wait), 503, "server_error", "model_loading"},
      {NotServing("draining", "bye", wait), 503, "server_error", "draining"},
      {NotServing("no_plan", "no nodes", wait), 503, "server_error", "no_plan"},
  };
}

TEST(ApiError, EveryRowHasItsStatusTypeAndCodeAndAllFourKeys) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(ErrorBody(row.error));
    EXPECT_EQ(row.error.status, row.status);
    const Json body = Json::parse(ErrorBody(row.error));
    const Json& error = body["error"];
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key));
    EXPECT_EQ(error["type"], row.type);
    EXPECT_EQ(error["code"], row.code ? Json(*row.code) : Json());
    EXPECT_TRUE(error["param"].is_null() || error["param"].is_string());
    EXPECT_THAT(HeadersOf(row.error), Contains(Pair("Content-Type", "application/json")));
  }
}

TEST(ApiError, WhatMayBeTriedAgainSaysWhen) {
  for (const Row& row : Rows()) {
    const bool waits = row.status == 429 || row.status == 503;
    EXPECT_EQ(HeadersOf(row.error).contains("Retry-After"), waits) << row.status;
  }
  const auto told = [](absl::Duration wait) {
    return HeadersOf(NotServing("no_plan", "", wait))["Retry-After"];
  };
  EXPECT_EQ(told(absl::ZeroDuration()), "1");
  EXPECT_EQ(told(absl::Milliseconds(1500)), "2");
  EXPECT_EQ(told(absl::InfiniteDuration()), "60");
}

TEST(ApiError, ADeterministicFailureOfTheServerIsNotToBeTriedAgain) {
  const auto says_no = [](const ApiError& error) {
    return HeadersOf(error).contains("x-should-retry");
  };
  EXPECT_TRUE(says_no(UnsupportedEndpoint("/v1/embeddings")));
  EXPECT_TRUE(says_no(ErrorOf(MakeFailure(FailureKind::kNonFinite, "stage 1"))));
  EXPECT_TRUE(says_no(ErrorOf(MakeFailure(FailureKind::kPoison, "two nodes died"))));
  EXPECT_FALSE(says_no(InternalError("oh")));
  EXPECT_FALSE(says_no(ErrorOf(MakeFailure(FailureKind::kWorkerDeath, "n1 died"))));
}

TEST(ApiError, AMissingKeyIsAskedForAsHttpAsks) {
  EXPECT_THAT(HeadersOf(InvalidApiKey("no key")), Contains(Pair("WWW-Authenticate", "Bearer")));
}

TEST(ApiError, ContextOverflowSpeaksTheWordsClientsLookForWithBothNumbers) {
  for (const uint64_t asked : {0, 100}) {
    const ApiError error = ContextLengthExceeded("messages", 10061, asked, 8192);
    EXPECT_THAT(error.message, HasSubstr("This model's maximum context length is 8192 tokens. "
                                         "However, you"));
    EXPECT_THAT(error.message, HasSubstr("10061"));
    EXPECT_EQ(error.param, "messages");
    const Json body = Json::parse(ErrorBody(error));
    EXPECT_EQ(body["error"]["n_prompt_tokens"], 10061);
    EXPECT_EQ(body["error"]["n_ctx"], 8192);
  }
}

TEST(ApiError, LoadingStandsBesideTheError) {
  ApiError error = NotServing("model_loading", "soon", absl::Seconds(5));
  error.loading_json = R"({"model":"m","progress":0.5})";
  EXPECT_EQ(Json::parse(ErrorBody(error))["loading"]["progress"], 0.5);
  error.loading_json = "not json";
  EXPECT_FALSE(Json::parse(ErrorBody(error)).contains("loading"));
}

TEST(ApiError, EveryKindOfFailureHasAnAnswerThatIsNeverSuccessNorAConflict) {
  for (int32_t kind = 1; kind < kFailureKindCount; ++kind) {
    const auto failure = static_cast<FailureKind>(kind);
    const ApiError error = ErrorOf(MakeFailure(failure, "why"));
    SCOPED_TRACE(std::string(FailureKindName(failure)));
    EXPECT_GE(error.status, 400);
    EXPECT_NE(error.status, 409);
    EXPECT_EQ(error.message, "why");
    EXPECT_TRUE(error.code || error.status == 403);
  }
}

TEST(ApiError, KindsDecideStatusAndCode) {
  const auto shown = [](FailureKind kind) {
    const ApiError error = ErrorOf(MakeFailure(kind, ""));
    return std::pair(error.status, error.code.value_or(""));
  };
  EXPECT_EQ(shown(FailureKind::kInvalidRequest), std::pair(400, std::string("invalid_value")));
  EXPECT_EQ(shown(FailureKind::kDeadlineExceeded),
            std::pair(504, std::string("deadline_exceeded")));
  EXPECT_EQ(shown(FailureKind::kOverloaded), std::pair(429, std::string("queue_full")));
  EXPECT_EQ(shown(FailureKind::kKvExhausted), std::pair(429, std::string("queue_full")));
  EXPECT_EQ(shown(FailureKind::kHeartbeatLost), std::pair(503, std::string("shard_unavailable")));
  EXPECT_EQ(shown(FailureKind::kKeyConflict).first, 400);
  EXPECT_EQ(ErrorOf(absl::NotFoundError("no model x")).code, "model_not_found");
  EXPECT_EQ(ErrorOf(absl::UnknownError("?")).status, 500);
}

TEST(ApiError, AQueueWithANodeToBlameIsAMissingShard) {
  const absl::Status status = MakeFailure(
      {.kind = FailureKind::kOverloaded, .node = NodeId("n2"), .retry_after = absl::Seconds(3)},
      "m is degraded: layers 8 to 16");
  const ApiError error = ErrorOf(status);
  EXPECT_EQ(error.code, "shard_unavailable");
  EXPECT_THAT(HeadersOf(error), Contains(Pair("Retry-After", "3")));
}

TEST(ApiError, AnEventIsOneLineOfDataWhateverTheMessage) {
  const std::string event = ErrorEvent(InternalError("two\nlines and \xFF"));
  EXPECT_TRUE(event.starts_with("data: {\"error\":{\"message\":"));
  EXPECT_TRUE(event.ends_with("\n\n"));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
  EXPECT_EQ(Json::parse(event.substr(6))["error"]["message"], "two\nlines and \uFFFD");
}

TEST(ApiError, WhatAClientSentIsQuotedOnlySoFar) {
  EXPECT_LT(ModelNotFound(std::string(100'000, 'x')).message.size(), 300u);
}

}  // namespace
}  // namespace shardline
