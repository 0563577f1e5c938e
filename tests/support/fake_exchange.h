#pragma once

// An HTTP exchange without a socket: what was answered, for tests to look at.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/gateway/http_message.h"

namespace shardline::testing {

class FakeExchange final : public HttpExchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }

  void Answer(HttpResponse response) override {
    absl::MutexLock lock(&mu_);
    if (begun_ || ended_) return;
    head_ = std::move(response);
    body_ = head_.body;
    ended_ = true;
  }
  void Begin(HttpResponse response) override {
    absl::MutexLock lock(&mu_);
    if (begun_ || ended_) return;
    head_ = std::move(response);
    body_ = head_.body;
    begun_ = true;
  }
  bool Write(std::string piece) override {
    absl::MutexLock lock(&mu_);
    if (is_full_ || is_gone_ || ended_) return false;
    body_ += piece;
    return true;
  }
  void Finish() override {
    absl::MutexLock lock(&mu_);
    ended_ = true;
  }
  void Abort() override {
    absl::MutexLock lock(&mu_);
    ended_ = true;
    aborted_ = true;
  }
  void OnGone(absl::AnyInvocable<void()> gone) override {
    absl::MutexLock lock(&mu_);
    on_gone_ = std::move(gone);
  }

  // The client's side.
  void HangUp() {
    absl::AnyInvocable<void()> gone;
    {
      absl::MutexLock lock(&mu_);
      is_gone_ = true;
      gone = std::move(on_gone_);
    }
    if (gone) gone();
  }
  void StopReading() {
    absl::MutexLock lock(&mu_);
    is_full_ = true;
  }

  // Wait for what must come; false after half a minute without it.
  bool AwaitEnd() const {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&ended_), kLimit);
  }
  bool AwaitBody(const std::string& part) const {
    absl::MutexLock lock(&mu_);
    const auto has = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
      return body_.find(part) != std::string::npos;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&has), kLimit);
  }

  int status() const {
    absl::MutexLock lock(&mu_);
    return head_.status;
  }
  std::string body() const {
    absl::MutexLock lock(&mu_);
    return body_;
  }
  std::string Header(const std::string& name) const {
    absl::MutexLock lock(&mu_);
    for (const auto& [key, value] : head_.headers) {
      if (absl::EqualsIgnoreCase(key, name)) return value;
    }
    return "";
  }
  bool ended() const {
    absl::MutexLock lock(&mu_);
    return ended_;
  }
  bool aborted() const {
    absl::MutexLock lock(&mu_);
    return aborted_;
  }

 private:
  static constexpr absl::Duration kLimit = absl::Seconds(30);

  const HttpRequest request_;
  mutable absl::Mutex mu_;
  HttpResponse head_ ABSL_GUARDED_BY(mu_) = {.status = 0, .headers = {}, .body = {}};
  std::string body_ ABSL_GUARDED_BY(mu_);
  bool begun_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  bool is_full_ ABSL_GUARDED_BY(mu_) = false;
  bool is_gone_ ABSL_GUARDED_BY(mu_) = false;
  absl::AnyInvocable<void()> on_gone_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline::testing
