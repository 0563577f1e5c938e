#pragma once

// One process of the simulated cluster: its lives, its pauses, its own clock.
//
// A life ends with Die; events of an older life are never run. A paused process runs nothing and
// gets everything at once when it resumes, its timer first or last as chance has it. Its clock
// goes on meanwhile, with a rate of its own.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/trace.h"

namespace shardline::sim {

class Checker;

// What everything in one simulation shares.
struct SimContext {
  explicit SimContext(uint64_t seed) : rng(seed), queue(rng.Next()), trace(&queue) {}

  Rng rng;
  EventQueue queue;
  Trace trace;
  Checker* checker = nullptr;
};

class SimProcess {
 public:
  // `number` names it in traces; `rate_ppm` is how much faster its clock runs.
  SimProcess(SimContext* context, int number, int rate_ppm)
      : context_(context), number_(number), rate_ppm_(rate_ppm) {}
  virtual ~SimProcess() = default;
  SimProcess(const SimProcess&) = delete;
  SimProcess& operator=(const SimProcess&) = delete;

  int number() const { return number_; }
  uint32_t life() const { return life_; }
  bool alive() const { return alive_; }
  bool paused() const { return paused_; }
  // Died without a word: its machine is gone, so nobody is told of broken connections.
  bool silent() const { return silent_; }

  // Runs the action in this life, now or when it resumes.
  void Run(Action action);

  void Pause() { paused_ = true; }
  void Resume();

  // It has just resumed, and may not have looked at everything yet.
  bool resuming() const {
    return context_->queue.now() < resumed_at_ + 5 * kMillisecond && resumed_at_ > 0;
  }
  SimContext& context() { return *context_; }
  // Its own monotonic clock.
  Instant Now() const;

 protected:
  void BeginLife();
  void EndLife(bool silent);

  void After(SimTime delay, Action action) {
    context_->queue.At(context_->queue.now() + delay, this, std::move(action));
  }

  // Calls OnWake once the own clock shows `wake`; the newest call counts.
  void WakeAt(Instant wake);
  virtual void OnWake() {}
  // After every event of this process.
  virtual void AfterEvent() {}

 private:
  SimTime ToGlobal(Instant local) const;
  void ArmWake(SimTime at);

  SimContext* const context_;
  const int number_;
  const int rate_ppm_;
  uint32_t life_ = 0;
  bool alive_ = false;
  bool paused_ = false;
  bool silent_ = false;
  SimTime resumed_at_ = 0;
  SimTime wake_at_ = 0;   // Wanted; the largest: never.
  SimTime armed_at_ = 0;  // The earliest event that will look; the largest: none.
  std::vector<Action> deferred_;
  mutable SimTime told_at_ = -1;  // What Now() said last, and when.
  mutable Instant told_;
};

}  // namespace shardline::sim
