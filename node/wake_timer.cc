#include "node/wake_timer.h"

#include <utility>

namespace shardline {

WakeTimer::WakeTimer(const Clock* clock, std::function<void()> on_wake)
    : clock_(clock), on_wake_(std::move(on_wake)), thread_([this] { Run(); }) {}

WakeTimer::~WakeTimer() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    earlier_.Signal();
  }
  thread_.join();
}

void WakeTimer::Set(Instant when) {
  absl::MutexLock lock(&mu_);
  when_ = when;
  if (when_ < sleeping_until_) earlier_.Signal();
}

void WakeTimer::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      while (!stopping_ && clock_->Now() < when_) {
        sleeping_until_ = when_;
        earlier_.WaitWithTimeout(&mu_, when_ - clock_->Now());
      }
      if (stopping_) return;
      when_ = Instant::InfiniteFuture();
      sleeping_until_ = Instant::InfiniteFuture();
    }
    on_wake_();
  }
}

}  // namespace shardline
