#include "coordinator/gateway/gateway.h"

#include <thread>

#include "base/failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/gateway_rig.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using testing::EndOf;
using testing::FakeClients;
using testing::GatewayRig;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::Started;
using ::testing::StartsWith;
using testing::Token;

Json Prompt() { return {{"model", "tiny"}, {"prompt", "abc"}, {"max_tokens", 4}}; }

std::string CodeOf(const testing::FakeExchange& exchange) {
  const ApiResult<Json> body = ParseJson(exchange.body());
  if (!body.ok() || !body->contains("error")) return exchange.body();
  const Json& code = (*body)["error"]["code"];
  return code.is_string() ? code.get<std::string>() : "none";
}

TEST(Gateway, ARequestIsOneCallAChoiceAndItsEventsFindIt) {
  GatewayRig rig;
  Json body = Prompt();
  body["prompt"] = {"abc", "abd"};
  body["n"] = 2;
  const auto exchange = rig.Complete(body);
  ASSERT_THAT(rig.clients.calls, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rig.clients.calls[i].id, RequestId(kFirstHttpCall + i));
    EXPECT_EQ(rig.clients.calls[i].request.model(), "tiny");
    EXPECT_EQ(rig.clients.calls[i].request.tokens().ids(2), i < 2 ? 'c' : 'd');
  }
  for (const FakeClients::Call& call : rig.clients.calls) {
    EXPECT_TRUE(rig.gateway.Send(call.id, Started()));
    EXPECT_TRUE(rig.gateway.Send(call.id, Token(0, "H")));
    EXPECT_TRUE(rig.gateway.Send(call.id, EndOf(1)));
    EXPECT_FALSE(exchange->ended());
    rig.gateway.End(call.id, absl::OkStatus());
  }
  EXPECT_EQ(exchange->status(), 200);
  EXPECT_THAT(exchange->Header("x-request-id"), StartsWith("req-"));
  EXPECT_THAT(rig.requests.List(), SizeIs(1));
  // From here on nobody listens.
  EXPECT_FALSE(rig.gateway.Send(rig.clients.calls[0].id, Token(1, "i")));
  EXPECT_FALSE(rig.gateway.Send(RequestId(kFirstHttpCall + 99), Token(0, "x")));
  EXPECT_EQ(rig.gateway.figures().generations, 0u);
}

TEST(Gateway, CallsThatAreOverBeforeTheyBeginAreCancelledBehindTheirBegin) {
  GatewayRig rig;
  rig.clients.on_generate = [&rig](const FakeClients::Call& call) {
    if (rig.clients.calls.size() > 1) return;
    rig.gateway.End(call.id, MakeFailure(FailureKind::kInvalidRequest, "no"));
  };
  Json body = Prompt();
  body["n"] = 2;
  EXPECT_EQ(rig.Complete(body)->status(), 400);
  EXPECT_EQ(rig.clients.order.back(), "gone");
  EXPECT_EQ(rig.clients.gone.back(), RequestId(kFirstHttpCall + 1));
}

TEST(Gateway, AClientThatLeavesWhileItsCallsBeginLeavesNone) {
  GatewayRig rig;
  auto exchange = std::make_shared<testing::FakeExchange>(
      HttpRequest{.method = "POST",
                  .path = "/v1/completions",
                  .headers = {{"host", "localhost"}},
                  .body = R"({"model":"tiny","prompt":"abc","n":2})"});
  rig.clients.on_generate = [&](const FakeClients::Call&) {
    if (rig.clients.calls.size() == 1) exchange->HangUp();
  };
  rig.gateway.OnRequest(exchange);
  ASSERT_THAT(rig.clients.calls, SizeIs(2));
  EXPECT_EQ(rig.clients.order.back(), "gone");
  EXPECT_EQ(rig.clients.gone.back(), RequestId(kFirstHttpCall + 1));
  EXPECT_EQ(rig.gateway.figures().generations, 0u);
}

TEST(Gateway, ALongBodyIsReadOnAThreadOfItsOwn) {
  GatewayRig rig({.long_body_bytes = 100});
  std::thread::id reader;
  rig.clients.on_generate = [&](const FakeClients::Call& call) {
    reader = std::this_thread::get_id();
    rig.gateway.End(call.id, MakeFailure(FailureKind::kInvalidRequest, "enough"));
  };
  Json body = Prompt();
  EXPECT_TRUE(rig.Complete(body)->AwaitEnd());
  EXPECT_EQ(reader, std::this_thread::get_id());
  body["prompt"] = std::string(200, 'a');
  EXPECT_TRUE(rig.Complete(body)->AwaitEnd());
  EXPECT_NE(reader, std::this_thread::get_id());
}

TEST(Gateway, WhileItDrainsTextIsRefusedAndModelsAreListed) {
  GatewayRig rig;
  rig.gateway.Drain();
  const auto refused = rig.Complete(Prompt());
  EXPECT_EQ(refused->status(), 503);
  EXPECT_EQ(CodeOf(*refused), "draining");
  EXPECT_NE(refused->Header("Retry-After"), "");
  EXPECT_THAT(rig.clients.calls, SizeIs(0));
  EXPECT_EQ(rig.Get("/v1/models")->status(), 200);
}

TEST(Gateway, EveryRefusalHasTheEnvelopeAndTheRequestsId) {
  GatewayRig rig;
  const struct {
    HttpRequest request;
    int status;
    const char* code;
  } kCases[] = {
      {{.method = "GET", .path = "/nothing"}, 404, "unknown_url"},
      {{.method = "GET", .path = "/v1/completions"}, 405, "method_not_allowed"},
      {{.method = "DELETE", .path = "/v1/models/tiny"}, 405, "method_not_allowed"},
      {{.method = "POST", .path = "/v1/embeddings"}, 501, "unsupported_endpoint"},
      {{.method = "GET", .path = "/v1/models/other"}, 404, "model_not_found"},
      {{.method = "POST", .path = "/v1/completions", .body = "{"}, 400, "invalid_value"},
      {{.method = "POST", .path = "/tokenize", .body = "[]"}, 400, "invalid_value"},
      {{.method = "POST", .path = "/detokenize", .body = "{}"}, 400, "missing_required_parameter"},
  };
  for (const auto& [request, status, code] : kCases) {
    HttpRequest asked = request;
    asked.headers = {{"x-request-id", "mine-1"}};
    const auto exchange = rig.Ask(asked);
    EXPECT_EQ(exchange->status(), status) << request.path;
    EXPECT_EQ(CodeOf(*exchange), code) << request.path;
    EXPECT_EQ(exchange->Header("x-request-id"), "mine-1") << request.path;
  }
  EXPECT_EQ(rig.Ask({.method = "DELETE", .path = "/v1/models/tiny"})->Header("Allow"), "GET, HEAD");
  const HttpResponse refusal = rig.gateway.Refusal(431, "the headers are too long");
  EXPECT_EQ(refusal.status, 431);
  EXPECT_THAT(refusal.body, HasSubstr("\"error\""));
}

TEST(Gateway, AKeyMakesAskingAgainTheSameRequest) {
  GatewayRig rig;
  rig.Complete(Prompt(), {{"idempotency-key", "k"}});
  rig.Complete(Prompt(), {{"idempotency-key", "k"}});
  rig.Complete(Prompt(), {{"idempotency-key", "l"}});
  rig.Complete(Prompt());
  rig.Complete(Prompt());
  ASSERT_THAT(rig.clients.calls, SizeIs(5));
  const auto request = [&](size_t i) { return rig.clients.calls[i].request; };
  EXPECT_EQ(request(0).idempotency_key(), "k#0");
  EXPECT_EQ(request(0).SerializeAsString(), request(1).SerializeAsString());
  EXPECT_NE(request(0).sampling().seed(), request(2).sampling().seed());
  EXPECT_EQ(request(3).idempotency_key(), "");
  EXPECT_NE(request(3).sampling().seed(), request(4).sampling().seed());
}

TEST(Gateway, AClientWithAKeyThatLeavesMayComeBack) {
  GatewayRig rig({.return_grace = absl::Seconds(5)});
  rig.Complete(Prompt(), {{"idempotency-key", "k"}})->HangUp();
  EXPECT_THAT(rig.clients.gone, SizeIs(0));
  rig.Complete(Prompt())->HangUp();
  EXPECT_THAT(rig.clients.gone, ElementsAre(RequestId(kFirstHttpCall + 1)));
}

TEST(Gateway, HeadersThatCannotBeAreRefusedByName) {
  GatewayRig rig;
  Json stream = Prompt();
  stream["stream"] = true;
  const auto bad_key = rig.Complete(stream, {{"idempotency-key", "two words"}});
  EXPECT_EQ(bad_key->status(), 400);
  EXPECT_THAT(bad_key->body(), HasSubstr("Idempotency-Key"));
  EXPECT_EQ(rig.Complete(stream, {{"idempotency-key", std::string(201, 'k')}})->status(), 400);
  EXPECT_EQ(rig.Complete(stream, {{"last-event-id", "7.3"}})->status(), 400);
  EXPECT_EQ(rig.Complete(Prompt(), {{"idempotency-key", "k"}, {"last-event-id", "7.3"}})->status(),
            400);
  EXPECT_EQ(rig.Complete(stream, {{"idempotency-key", "k"}, {"last-event-id", "no"}})->status(),
            400);
  stream["n"] = 2;
  EXPECT_EQ(rig.Complete(stream, {{"idempotency-key", "k"}, {"last-event-id", "7.3"}})->status(),
            400);
  EXPECT_THAT(rig.clients.calls, SizeIs(0));
}

TEST(Gateway, AnotherSaltIsAnotherTenant) {
  GatewayRig rig;
  Json salted = Prompt();
  salted["cache_salt"] = "pepper";
  rig.Complete(salted);
  rig.Complete(Prompt());
  ASSERT_THAT(rig.clients.calls, SizeIs(2));
  EXPECT_NE(rig.clients.calls[0].request.tenant(), rig.clients.calls[1].request.tenant());
}

TEST(Gateway, TokensOfATextComeBackAsTheText) {
  GatewayRig rig;
  const auto tokens = rig.Ask({.method = "POST",
                               .path = "/tokenize",
                               .body = R"({"content":"h\u00e9","with_pieces":true})"});
  EXPECT_EQ(tokens->status(), 200);
  const ApiResult<Json> listed = ParseJson(tokens->body());
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ((*listed)["count"], 3);
  EXPECT_EQ((*listed)["max_model_len"], 512);
  EXPECT_EQ((*listed)["tokens"][0]["piece"], "h");
  EXPECT_EQ((*listed)["tokens"][1]["piece"], Json::array({0xc3}));  // Half a character.
  const auto text =
      rig.Ask({.method = "POST", .path = "/detokenize", .body = R"({"tokens":[104,195,169]})"});
  EXPECT_THAT(text->body(), HasSubstr("hé"));
  const auto outside =
      rig.Ask({.method = "POST", .path = "/detokenize", .body = R"({"tokens":[1,-1]})"});
  EXPECT_EQ(outside->status(), 400);
  EXPECT_THAT(outside->body(), HasSubstr("tokens[1]"));
}

TEST(Gateway, RequestsAreCountedByRouteAndStatusHoweverTheyAreSpelled) {
  GatewayRig rig;
  rig.Get("/v1/models/");
  rig.Get("/nothing/1");
  rig.Get("/nothing/2");
  rig.Ask({.method = "BREW", .path = "/v1/models/a/b"});
  const GatewayFigures figures = rig.gateway.figures();
  EXPECT_EQ(figures.requests.at({"/v1/models", "GET", 200}), 1u);
  EXPECT_EQ(figures.requests.at({"other", "GET", 404}), 2u);
  EXPECT_EQ(figures.requests.at({"/v1/models/{id}", "other", 405}), 1u);
}

}  // namespace
}  // namespace shardline
