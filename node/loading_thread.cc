#include "node/loading_thread.h"

#include <utility>

namespace shardline {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

}  // namespace

LoadingThread::LoadingThread(ShardLoader* loader, const Clock* clock, LoadingEvents events)
    : loader_(loader), clock_(clock), events_(std::move(events)), thread_([this] { Run(); }) {}

LoadingThread::~LoadingThread() {
  {
    absl::MutexLock lock(&mu_);
    wanted_ = 0;
    waiting_.reset();
    stopping_ = true;
  }
  thread_.join();
}

uint64_t LoadingThread::Load(ShardOrder order) {
  absl::MutexLock lock(&mu_);
  wanted_ = ++tickets_;
  waiting_ = Wanted{.ticket = wanted_, .order = std::move(order)};
  return wanted_;
}

void LoadingThread::Cancel() {
  absl::MutexLock lock(&mu_);
  wanted_ = 0;
  waiting_.reset();
}

void LoadingThread::Free(std::shared_ptr<DeviceExecutor> executor) {
  absl::MutexLock lock(&mu_);
  freeing_.push_back(std::move(executor));
}

void LoadingThread::Run() {
  while (true) {
    std::shared_ptr<DeviceExecutor> old;
    std::optional<Wanted> wanted;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &LoadingThread::HasWork));
      if (!freeing_.empty()) {
        old = std::move(freeing_.front());
        freeing_.pop_front();
      } else if (stopping_) {
        return;
      } else {
        wanted.swap(waiting_);
      }
    }
    if (old != nullptr) old->Shutdown();
    if (wanted) LoadNow(*wanted);
  }
}

void LoadingThread::LoadNow(const Wanted& wanted) {
  Instant reported;
  const auto progress = [&](uint64_t bytes_done, uint64_t bytes_total) {
    if (!IsWanted(wanted.ticket)) return false;
    const Instant now = clock_->Now();
    if (now - reported < kProgressInterval) return true;
    reported = now;
    events_.on_progress(wanted.ticket, bytes_done, bytes_total);
    return true;
  };
  absl::StatusOr<LoadedShard> loaded = loader_->Load(wanted.order, progress);
  // Nobody waits for it: it is freed right here.
  if (!IsWanted(wanted.ticket)) return;
  events_.on_loaded(wanted.ticket, std::move(loaded));
}

bool LoadingThread::IsWanted(uint64_t ticket) const {
  absl::MutexLock lock(&mu_);
  return wanted_ == ticket;
}

}  // namespace shardline
