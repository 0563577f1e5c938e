#include "coordinator/gateway/access.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "coordinator/gateway/header_exchange.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_exchange.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::FailsWith;
using ::shardline::testing::FakeExchange;
using ::shardline::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOwnHost[] = "127.0.0.1:8080";
const AccessPolicy kLoopback;
const AccessPolicy kOpenToAll = {.loopback = false, .cors_origins = {}};

HttpRequest Get(const std::string& path, HttpHeaders headers = {}) {
  HttpRequest request{.method = "GET", .path = path};
  request.headers = {{"host", kOwnHost}};
  for (auto& header : headers) {
    if (header.first == "host") request.headers.clear();
    request.headers.push_back(std::move(header));
  }
  return request;
}

std::string HeaderOf(const HttpHeaders& headers, const std::string& name) {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return value;
  }
  return "";
}

// 0: let through.
int StatusOf(const AccessVerdict& verdict) { return verdict.answer ? verdict.answer->status : 0; }

int Ask(const AccessPolicy& policy, const ApiKeys& keys, const HttpRequest& request) {
  return StatusOf(Decide(policy, keys, request, "req-fresh"));
}

class AccessWithKeys : public ::testing::Test {
 protected:
  AccessWithKeys()
      : app_(*MakeApiKey("app", KeyKind::kInference)),
        ops_(*MakeApiKey("ops", KeyKind::kAdmin)),
        keys_(*ApiKeys::Parse(app_.line + "\n" + ops_.line)) {}

  int With(const std::string& path, const std::string& secret) {
    return Ask(kOpenToAll, keys_, Get(path, {{"authorization", "Bearer " + secret}}));
  }

  const NewApiKey app_;
  const NewApiKey ops_;
  const ApiKeys keys_;
};

TEST_F(AccessWithKeys, EveryPathTakesItsKindOfKeyAndNoOther) {
  struct Row {
    const char* path;
    int none;
    int app;
    int ops;
  };
  for (const Row& row : {
           Row{"/v1/chat/completions", 401, 0, 403},
           Row{"/v1/models", 401, 0, 403},
           Row{"/tokenize", 401, 0, 403},
           Row{"/no/such/path", 401, 0, 403},
           Row{"/status.txt", 401, 0, 0},
           Row{"/version", 401, 0, 0},
           Row{"/admin/v1/state", 401, 403, 0},
           Row{"/admin", 401, 403, 0},
           Row{"/slots", 401, 403, 0},
           Row{"/livez", 0, 0, 0},
           Row{"/readyz", 0, 0, 0},
           Row{"/health", 0, 0, 0},
           Row{"/", 0, 0, 0},
           Row{"/assets/app.js", 0, 0, 0},
       }) {
    EXPECT_EQ(Ask(kOpenToAll, keys_, Get(row.path)), row.none) << row.path;
    EXPECT_EQ(With(row.path, app_.secret), row.app) << row.path;
    EXPECT_EQ(With(row.path, ops_.secret), row.ops) << row.path;
    if (row.none != 0) {
      EXPECT_EQ(With(row.path, "sl-guess"), 401) << row.path;
      EXPECT_EQ(With(row.path, std::string(300, 'a')), 401) << row.path;
    }
  }
}

TEST_F(AccessWithKeys, NoSpellingOfAnAdminPathIsAnythingElse) {
  for (const char* path :
       {"/admin/v1/../../livez", "/admin/", "/admin//", "/admin/\n", "/slots/1"}) {
    EXPECT_EQ(PathClassOf(path), PathClass::kAdmin) << path;
  }
  // What only looks public is nobody's path, but is not open either.
  for (const char* path : {"/livez/", "/livez/../admin/v1/state", "//", "/assets/../admin/v1/state",
                           "/ADMIN/v1/state", "/health.txt", "/assetsadmin", "/administrator"}) {
    const PathClass path_class = PathClassOf(path);
    EXPECT_NE(path_class, PathClass::kAdmin) << path;
    if (std::string(path).starts_with("/assets/")) continue;  // Names of files alone are found.
    EXPECT_EQ(path_class, PathClass::kInference) << path;
  }
}

TEST_F(AccessWithKeys, AKeyMayComeEitherWayAndNamesItsOwner) {
  for (const HttpHeaders& headers :
       {HttpHeaders{{"authorization", "Bearer " + app_.secret}},
        HttpHeaders{{"authorization", "bearer " + app_.secret}},
        HttpHeaders{{"x-api-key", app_.secret}},
        // What a client library makes of no key at all.
        HttpHeaders{{"authorization", "Basic x"}, {"x-api-key", app_.secret}}}) {
    const AccessVerdict verdict = Decide(kOpenToAll, keys_, Get("/v1/models", headers), "id");
    EXPECT_EQ(StatusOf(verdict), 0);
    EXPECT_EQ(verdict.key_name, "app");
  }
}

TEST_F(AccessWithKeys, ARefusalSaysWhatIsMissingAndNeverTheKey) {
  const AccessVerdict none = Decide(kOpenToAll, keys_, Get("/v1/models"), "id");
  EXPECT_THAT(HeaderOf(none.answer->headers, "www-authenticate"), HasSubstr("Bearer"));
  EXPECT_THAT(none.answer->body, HasSubstr("invalid_api_key"));
  const std::string wrong = "sl-wrong-but-secret";
  const AccessVerdict bad =
      Decide(kOpenToAll, keys_, Get("/v1/models", {{"authorization", "Bearer " + wrong}}), "id");
  EXPECT_THAT(bad.answer->body, Not(HasSubstr(wrong)));
  const AccessVerdict low =
      Decide(kOpenToAll, keys_, Get("/admin/v1/state", {{"x-api-key", app_.secret}}), "id");
  EXPECT_THAT(low.answer->body, HasSubstr("permission_error"));
  EXPECT_THAT(low.answer->body, Not(HasSubstr(app_.secret)));
}

TEST_F(AccessWithKeys, WithoutAnAdminKeyAdminStaysShut) {
  const ApiKeys inference = *ApiKeys::Parse(app_.line);
  EXPECT_EQ(Ask(kLoopback, inference, Get("/admin/v1/state")), 401);
  EXPECT_EQ(Ask(kLoopback, inference, Get("/admin/v1/state", {{"x-api-key", app_.secret}})), 403);
  const ApiKeys admin = *ApiKeys::Parse(ops_.line);
  EXPECT_EQ(Ask(kLoopback, admin, Get("/v1/models")), 401) << "nor does inference open by it";
}

TEST_F(AccessWithKeys, APreflightIsAnsweredBeforeAnybodyAsksForAKey) {
  HttpRequest request = Get("/v1/chat/completions",
                            {{"origin", "http://localhost:3000"},
                             {"access-control-request-method", "POST"},
                             {"access-control-request-headers",
                              "authorization,content-type, X-Stainless-OS,x-stainless-\x01,evil"}});
  request.method = "OPTIONS";
  const AccessVerdict verdict = Decide(kOpenToAll, keys_, request, "req-fresh");
  ASSERT_EQ(StatusOf(verdict), 204);
  EXPECT_EQ(HeaderOf(verdict.headers, "access-control-allow-origin"), "http://localhost:3000");
  EXPECT_THAT(HeaderOf(verdict.headers, "access-control-expose-headers"),
              HasSubstr("x-request-id"));
  EXPECT_EQ(HeaderOf(verdict.headers, "x-request-id"), "req-fresh");
  const std::string allowed = HeaderOf(verdict.answer->headers, "access-control-allow-headers");
  for (const char* name : {"Authorization", "Content-Type", "x-stainless-os"}) {
    EXPECT_THAT(allowed, HasSubstr(name));
  }
  EXPECT_THAT(allowed, Not(HasSubstr("evil")));
  EXPECT_THAT(allowed, Not(HasSubstr("\x01")));
  EXPECT_THAT(HeaderOf(verdict.answer->headers, "access-control-allow-methods"), HasSubstr("POST"));

  request.headers[1].second = "https://evil.example";
  const AccessVerdict foreign = Decide(kOpenToAll, keys_, request, "id");
  EXPECT_EQ(StatusOf(foreign), 204);
  EXPECT_EQ(HeaderOf(foreign.headers, "access-control-allow-origin"), "");
  EXPECT_EQ(HeaderOf(foreign.answer->headers, "access-control-allow-headers"), "");
}

TEST_F(AccessWithKeys, APageReadsAnswersIfItsSiteIsOneOfOurs) {
  const auto origin_allowed = [&](const AccessPolicy& policy, const char* path,
                                  const std::string& origin) {
    const AccessVerdict verdict =
        Decide(policy, keys_, Get(path, {{"host", "llm.example"}, {"origin", origin}}), "id");
    EXPECT_EQ(HeaderOf(verdict.headers, "vary"), "Origin");
    return HeaderOf(verdict.headers, "access-control-allow-origin") == origin;
  };
  const AccessPolicy listed = {.loopback = false, .cors_origins = {"https://chat.example"}};
  const AccessPolicy any = {.loopback = false, .cors_origins = {"*"}};
  EXPECT_TRUE(origin_allowed(kOpenToAll, "/v1/models", "https://llm.example"));
  EXPECT_TRUE(origin_allowed(kOpenToAll, "/v1/models", "http://localhost:5173"));
  EXPECT_TRUE(origin_allowed(kOpenToAll, "/v1/models", "http://[::1]:5173"));
  EXPECT_FALSE(origin_allowed(kOpenToAll, "/v1/models", "https://chat.example"));
  EXPECT_TRUE(origin_allowed(listed, "/v1/models", "https://chat.example"));
  EXPECT_FALSE(origin_allowed(listed, "/v1/models", "https://chat.example.evil.example"));
  EXPECT_FALSE(origin_allowed(listed, "/v1/models", "https://evil.example/chat.example"));
  EXPECT_FALSE(origin_allowed(kOpenToAll, "/v1/models", "http://localhost.evil.example"));
  EXPECT_FALSE(origin_allowed(kOpenToAll, "/v1/models", "http://127.0.0.1.evil.example"));
  EXPECT_FALSE(origin_allowed(kOpenToAll, "/v1/models", "null"));
  EXPECT_TRUE(origin_allowed(any, "/v1/models", "https://chat.example"));
  EXPECT_FALSE(origin_allowed(any, "/admin/v1/state", "https://chat.example"))
      << "admin is for its own page alone";
}

TEST(AccessWithoutKeys, OnLoopbackEverythingIsOpenToWhatIsNoForeignPage) {
  const ApiKeys none;
  for (const char* host : {"127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080",
                           "127.8.9.1", "shardline.localhost:1"}) {
    for (const char* path : {"/v1/models", "/admin/v1/state", "/status.txt"}) {
      EXPECT_EQ(Ask(kLoopback, none, Get(path, {{"host", host}})), 0) << host << path;
    }
  }
}

TEST(AccessWithoutKeys, ANameThatPointsHereIsNotServed) {
  const ApiKeys none;
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
        "192.168.1.7:8080", "", "[::2]", "127.0.0.1@evil.example"}) {
    for (const char* path : {"/v1/models", "/admin/v1/state", "/status.txt"}) {
      EXPECT_EQ(Ask(kLoopback, none, Get(path, {{"host", host}})), 403) << host << path;
    }
    EXPECT_EQ(Ask(kLoopback, none, Get("/livez", {{"host", host}})), 0)
        << "probes come as they are";
  }
  // Told to serve everybody it does, but an operator's verbs are not for names of the internet.
  EXPECT_EQ(Ask(kOpenToAll, none, Get("/v1/models", {{"host", "llm.example"}})), 0);
  EXPECT_EQ(Ask(kOpenToAll, none, Get("/admin/v1/state", {{"host", "llm.example"}})), 403);
  for (const char* host : {"192.168.1.7:8080", "coordinator:8080", "[fe80::1]:8080"}) {
    EXPECT_EQ(Ask(kOpenToAll, none, Get("/admin/v1/state", {{"host", host}})), 0) << host;
  }
}

TEST(AccessWithoutKeys, APageOfAnotherSiteGetsNothing) {
  const ApiKeys none;
  const auto from = [&](const char* path, const char* origin) {
    return Ask(kLoopback, none, Get(path, {{"origin", origin}}));
  };
  EXPECT_EQ(from("/v1/chat/completions", "https://evil.example"), 403);
  EXPECT_EQ(from("/v1/chat/completions", "null"), 403);
  EXPECT_EQ(from("/v1/chat/completions", "http://127.0.0.1:8080"), 0);
  EXPECT_EQ(from("/v1/chat/completions", "http://localhost:3000"), 0);
  EXPECT_EQ(from("/admin/v1/state", "http://127.0.0.1:8080"), 0);
  EXPECT_EQ(from("/admin/v1/state", "http://localhost:3000"), 403)
      << "another page of this machine";
  EXPECT_EQ(from("/admin/v1/state", "http://127.0.0.1:80800"), 403);
}

TEST(RequestIds, AFitOneIsKeptAndAnyOtherReplaced) {
  const ApiKeys none;
  const auto id_of = [&](const std::string& sent) {
    const AccessVerdict verdict =
        Decide(kLoopback, none, Get("/livez", {{"x-request-id", sent}}), "req-fresh");
    EXPECT_EQ(HeaderOf(verdict.headers, "x-request-id"), verdict.request_id);
    return verdict.request_id;
  };
  EXPECT_EQ(id_of("trace:7f-3_a.B"), "trace:7f-3_a.B");
  EXPECT_EQ(id_of(std::string(128, 'x')), std::string(128, 'x'));
  for (const std::string& hostile :
       {std::string(129, 'x'), std::string("a\nlevel=error msg=forged"), std::string("a b"),
        std::string("\"},{\""), std::string("a\0b", 3), std::string("é"), std::string("\x1b[2J"),
        std::string("<script>")}) {
    EXPECT_EQ(id_of(hostile), "req-fresh") << hostile;
  }
  EXPECT_EQ(Decide(kLoopback, none, Get("/livez"), "req-fresh").request_id, "req-fresh");
}

TEST(RequestIds, FreshOnesAreFitAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = MakeRequestId();
    EXPECT_EQ(id.size(), 24u);
    EXPECT_TRUE(seen.insert(id).second);
  }
  const std::string id = *seen.begin();
  EXPECT_EQ(Decide(kLoopback, {}, Get("/livez", {{"x-request-id", id}}), "x").request_id, id);
}

TEST(Exposure, AListenerThatOthersReachNeedsKeysOrTheOperatorsWord) {
  for (const char* listen : {"127.0.0.1:8080", "localhost:0", "[::1]:8080", "127.3.2.1:1"}) {
    EXPECT_THAT(CheckExposure(listen, false, false), IsOk()) << listen;
  }
  for (const char* listen : {"0.0.0.0:8080", "[::]:8080", "10.0.0.7:80", "llm.example:443", ":8080",
                             "", "127.0.0.1.evil.example:1"}) {
    EXPECT_THAT(CheckExposure(listen, false, false), FailsWith(FailureKind::kInvalidRequest))
        << listen;
    EXPECT_THAT(CheckExposure(listen, true, false), IsOk()) << listen;
    EXPECT_THAT(CheckExposure(listen, false, true), IsOk()) << listen;
  }
  EXPECT_THAT(std::string(CheckExposure("0.0.0.0:1", false, false).message()),
              HasSubstr("--api-keys"));
}

TEST(HeaderExchange, EveryAnswerCarriesTheHeadersUnlessItHasItsOwn) {
  for (const bool stream : {false, true}) {
    auto fake = std::make_shared<FakeExchange>(Get("/"));
    const std::shared_ptr<HttpExchange> exchange =
        WithHeaders(fake, {{"x-request-id", "7"}, {"vary", "Origin"}});
    HttpResponse response{.status = 201, .headers = {{"vary", "*"}}, .body = "text"};
    stream ? exchange->Begin(response) : exchange->Answer(response);
    EXPECT_EQ(fake->status(), 201);
    EXPECT_EQ(fake->body(), "text");
    EXPECT_EQ(fake->Header("x-request-id"), "7");
    EXPECT_EQ(fake->Header("vary"), "*");
    if (stream) EXPECT_TRUE(exchange->Write("more"));
  }
}

}  // namespace
}  // namespace shardline
