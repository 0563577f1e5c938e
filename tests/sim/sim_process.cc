#include "tests/sim/sim_process.h"

#include <limits>

namespace shardline::sim {
namespace {

constexpr SimTime kNever = std::numeric_limits<SimTime>::max();
constexpr SimTime kMillion = 1'000'000;
// Where every clock starts: a bug that takes an instant for a length should show.
constexpr SimTime kOrigin = 1000 * kSecond;

}  // namespace

void SimProcess::Run(Action action) {
  if (paused_) {
    deferred_.push_back(std::move(action));
    return;
  }
  action();
  AfterEvent();
}

void SimProcess::Resume() {
  if (!paused_) return;
  paused_ = false;
  resumed_at_ = context_->queue.now();
  for (Action& action : std::exchange(deferred_, {})) After(0, std::move(action));
}

Instant SimProcess::Now() const {
  const SimTime now = context_->queue.now();
  if (now != told_at_) {  // Asked many times within one event.
    told_at_ = now;
    told_ = Instant::FromOrigin(absl::Nanoseconds(kOrigin + now + now / 1000 * rate_ppm_ / 1000));
  }
  return told_;
}

SimTime SimProcess::ToGlobal(Instant local) const {
  const SimTime at = absl::ToInt64Nanoseconds(local.since_origin());
  if (at == kNever) return kNever;
  const SimTime since = at - kOrigin;
  // A microsecond late at most, never early.
  return since - since / (kMillion + rate_ppm_) * rate_ppm_ + (rate_ppm_ == 0 ? 0 : 2000);
}

void SimProcess::BeginLife() {
  ++life_;
  alive_ = true;
  paused_ = false;
  silent_ = false;
  wake_at_ = kNever;
  armed_at_ = kNever;
  deferred_.clear();
}

void SimProcess::EndLife(bool silent) {
  ++life_;
  alive_ = false;
  paused_ = false;
  silent_ = silent;
  deferred_.clear();
}

void SimProcess::WakeAt(Instant wake) {
  wake_at_ = ToGlobal(wake);
  if (wake_at_ < armed_at_) ArmWake(wake_at_);
}

void SimProcess::ArmWake(SimTime at) {
  armed_at_ = at;
  context_->queue.At(at, this, [this] {
    // A later, older timer that was overtaken looks too, and finds nothing to do.
    const SimTime now = context_->queue.now();
    if (armed_at_ > now) return;
    armed_at_ = kNever;
    if (wake_at_ <= now) {
      wake_at_ = kNever;
      context_->trace.Add(TraceKind::kWake, number_);
      OnWake();
    } else if (wake_at_ != kNever) {
      ArmWake(wake_at_);
    }
  });
}

}  // namespace shardline::sim
