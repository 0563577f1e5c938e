#pragma once

// A handler for tests of the server: it echoes, holds requests for the test to answer, and refuses
// in words that a test can recognise.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "coordinator/gateway/http_message.h"
#include "coordinator/gateway/http_server.h"
#include "gtest/gtest.h"
#include "tests/support/raw_http.h"

namespace shardline {

//   /echo    answered at once with "METHOD path?query body"
//   /hold    kept for AwaitHeld
//   /drop    let go
//   others   404
class FakeHandler : public HttpHandler {
 public:
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override {
    const HttpRequest& request = exchange->request();
    if (request.path == "/hold") {
      Hold(std::move(exchange));
    } else if (request.path == "/echo") {
      exchange->Answer(
          {.body = request.method + " " + request.path + "?" + request.query + " " + request.body});
    } else if (request.path != "/drop") {
      exchange->Answer({.status = 404, .body = "no such path"});
    }
  }

  HttpResponse Refusal(int status, std::string_view reason) override {
    return {.status = status, .body = "refused: " + std::string(reason)};
  }

  void Hold(std::shared_ptr<HttpExchange> exchange) {
    absl::MutexLock lock(&mu_);
    held_.push_back(std::move(exchange));
  }

  // The next held request; null if none comes.
  std::shared_ptr<HttpExchange> AwaitHeld() {
    absl::MutexLock lock(&mu_);
    const auto any = [](std::deque<std::shared_ptr<HttpExchange>>* held) { return !held->empty(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(+any, &held_), testing::kRawPatience)) return nullptr;
    std::shared_ptr<HttpExchange> first = std::move(held_.front());
    held_.pop_front();
    return first;
  }

 private:
  absl::Mutex mu_;
  std::deque<std::shared_ptr<HttpExchange>> held_ ABSL_GUARDED_BY(mu_);
};

// Whether the client of `exchange` is told to be gone.
class GoneWatch {
 public:
  explicit GoneWatch(HttpExchange& exchange) {
    exchange.OnGone([gone = gone_] { gone->Notify(); });
  }
  bool Await() const { return gone_->WaitForNotificationWithTimeout(testing::kRawPatience); }
  bool HasCome() const { return gone_->HasBeenNotified(); }

 private:
  const std::shared_ptr<absl::Notification> gone_ = std::make_shared<absl::Notification>();
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(const HttpServerOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(options, &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  testing::RawHttp Connect() const { return testing::RawHttp::Connect(server_->port()); }

  // Until the figures are as they must be; false if they never are.
  bool AwaitFigures(const std::function<bool(const HttpFigures&)>& wanted) const {
    const absl::Time until = absl::Now() + testing::kRawPatience;
    while (!wanted(server_->figures())) {
      if (absl::Now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  FakeHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

inline std::string Get(std::string_view target, std::string_view fields = "") {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: test\r\n" + std::string(fields) +
         "\r\n";
}
inline std::string Post(std::string_view target, std::string_view body,
                        std::string_view fields = "") {
  return absl::StrCat("POST ", std::string(target),
                      " HTTP/1.1\r\nHost: test\r\nContent-Length: ", body.size(), "\r\n",
                      std::string(fields), "\r\n", std::string(body));
}

}  // namespace shardline
