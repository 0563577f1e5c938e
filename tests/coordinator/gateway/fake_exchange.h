#pragma once

// An exchange without a socket: what was answered, and a client that can hang up or stop reading.

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/gateway/http_message.h"

namespace shardline::testing {

class FakeExchange final : public HttpExchange {
 public:
  enum class End { kNone, kAnswered, kFinished, kAborted };

  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }

  void Answer(HttpResponse response) override {
    absl::MutexLock lock(&mu_);
    if (answer_.has_value()) return;
    body_ = response.body;
    answer_ = std::move(response);
    end_ = End::kAnswered;
  }
  void Begin(HttpResponse response) override {
    absl::MutexLock lock(&mu_);
    if (answer_.has_value()) return;
    body_ = response.body;
    answer_ = std::move(response);
  }
  bool Write(std::string piece) override {
    absl::MutexLock lock(&mu_);
    if (!reads_ || end_ != End::kNone) return false;
    body_ += piece;
    return true;
  }
  void Finish() override { SetEnd(End::kFinished); }
  void Abort() override { SetEnd(End::kAborted); }
  void OnGone(absl::AnyInvocable<void()> gone) override { gone_ = std::move(gone); }

  // The client.
  void HangUp() { std::exchange(gone_, nullptr)(); }
  void StopReading() {
    absl::MutexLock lock(&mu_);
    reads_ = false;
  }

  // What it has been told; any thread.
  bool answered() const {
    absl::MutexLock lock(&mu_);
    return answer_.has_value();
  }
  int status() const {
    absl::MutexLock lock(&mu_);
    return answer_.has_value() ? answer_->status : 0;
  }
  std::string Header(std::string_view name) const {
    absl::MutexLock lock(&mu_);
    if (!answer_.has_value()) return {};
    for (const auto& [key, value] : answer_->headers) {
      if (key == name) return value;
    }
    return {};
  }
  std::string body() const {
    absl::MutexLock lock(&mu_);
    return body_;
  }
  End end() const {
    absl::MutexLock lock(&mu_);
    return end_;
  }

 private:
  void SetEnd(End end) {
    absl::MutexLock lock(&mu_);
    if (end_ == End::kNone) end_ = end;
  }

  const HttpRequest request_;
  absl::AnyInvocable<void()> gone_;

  mutable absl::Mutex mu_;
  std::optional<HttpResponse> answer_ ABSL_GUARDED_BY(mu_);
  std::string body_ ABSL_GUARDED_BY(mu_);
  End end_ ABSL_GUARDED_BY(mu_) = End::kNone;
  bool reads_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace shardline::testing
