#pragma once

// The wires between processes: delays, losses, cuts, and what connections make of them.
//
// A stream is an ordered connection with two ends. Nothing on it is lost but by a reset; a cut
// wire holds what is on it until it heals, as TCP does. A call is one question and one answer on
// no particular connection: either may be late, doubled, or held by a cut until the caller's
// timeout is long over.
//
// Streams live until the simulation ends, so that raw pointers to them stay good.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_process.h"

namespace shardline::sim {

// One direction between two processes.
struct Wire {
  SimTime delay_min = 20 * kMicrosecond;
  SimTime delay_max = 200 * kMicrosecond;
  int late_per_mille = 0;  // A message that takes `late` longer.
  SimTime late = 0;
  int repeat_per_mille = 0;    // A call that arrives twice, or a link frame.
  int drop_per_mille = 0;      // Link frames only: a stream loses nothing.
  int reorder_per_mille = 0;   // Link frames only.
  int misroute_per_mille = 0;  // Link frames only: they arrive at another node.
  bool cut = false;
};

class SimNetwork;

class Stream {
 public:
  using OnEnd = absl::AnyInvocable<void()>;

  // Never used twice in a simulation.
  uint64_t id() const { return id_; }
  // As this end sees it.
  bool open(int end) const { return ends_[end].open; }

 private:
  friend class SimNetwork;
  struct End {
    SimProcess* process = nullptr;
    uint32_t life = 0;
    bool open = true;
    OnEnd on_end;
    Wire* out = nullptr;  // What it sends travels on this.
  };
  // What travels from one end to the other, in order.
  struct Pipe {
    Action Take() {
      Action first = std::move(messages[begin++]);
      if (begin == messages.size()) {
        messages.clear();
        begin = 0;
      }
      return first;
    }
    bool empty() const { return messages.empty(); }

    std::vector<Action> messages;  // From `begin` on.
    size_t begin = 0;
    SimTime last_arrival = 0;
  };

  SimNetwork* network_ = nullptr;
  uint64_t id_ = 0;
  End ends_[2];
  Pipe pipes_[2];  // By sending end.
  bool reset_ = false;
  SimTime stalled_until_ = 0;
};

class SimNetwork {
 public:
  explicit SimNetwork(SimContext* context) : context_(context) {}

  Wire& wire(const SimProcess& from, const SimProcess& to) {
    return wires_[{from.number(), to.number()}];
  }

  // A connection from `a` (end 0) to `b` (end 1). Dialling a dead process ends the stream soon.
  Stream* Dial(SimProcess* a, SimProcess* b);
  // What an end does when it learns that the other end is gone. Not called after its own HangUp.
  void OnEnd(Stream* stream, int end, Stream::OnEnd handler);
  // Dropped if this end is no longer open.
  void Send(Stream* stream, int end, Action at_the_other_end);
  // This end leaves: the other one is told after all that was sent before.
  void HangUp(Stream* stream, int end);
  // This end leaves without a word: the other one may wait for ever.
  void Abandon(Stream* stream, int end);
  // What is on its way, both ways, arrives no sooner than after `delay`.
  void Stall(Stream* stream, SimTime delay);
  // Breaks in the middle: what is on its way is lost, both ends are told.
  void Reset(Stream* stream);
  // Every stream between the two.
  void ResetBetween(const SimProcess& a, const SimProcess& b);

  // Asks `to`. `serve` answers through its argument, at once or later, and may be called twice.
  // `done` is called exactly once in this life of `from`: with the answer, kUnavailable when the
  // connection broke, kDeadlineExceeded after `timeout`.
  template <typename Reply>
  void Call(SimProcess* from, SimProcess* to, SimTime timeout,
            std::function<void(std::function<void(absl::StatusOr<Reply>)>)> serve,
            std::function<void(absl::StatusOr<Reply>)> done);

  void Cut(const SimProcess& from, const SimProcess& to);
  // Heals one direction: what it held arrives.
  void Mend(const SimProcess& from, const SimProcess& to);
  // Every wire is as new.
  void MendAll();

  // `process` has died: the other ends of its streams are told, if anybody is left to tell them.
  void OnDeath(const SimProcess& process);

  // How long the next message takes.
  SimTime Delay(const Wire& wire);
  SimTime Delay(const SimProcess& from, const SimProcess& to) { return Delay(wire(from, to)); }

 private:
  struct Held {
    SimProcess* to = nullptr;
    Action action;
  };

  static void Arrive(Stream* stream, int from_end);
  void TakeIn(Stream* stream, int from_end);
  void Tell(Stream* stream, int end, SimTime delay);
  // Carries a packet over the wire, or holds it there. `lost` runs at `from` if `to` is dead.
  void Carry(SimProcess* from, SimProcess* to, Action action, Action lost);
  void Land(SimProcess* from, SimProcess* to, Action action, Action lost);

  SimContext* const context_;
  std::map<std::pair<int, int>, Wire> wires_;  // None is ever taken away.
  std::map<std::pair<int, int>, std::vector<Held>> held_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

template <typename Reply>
void SimNetwork::Call(SimProcess* from, SimProcess* to, SimTime timeout,
                      std::function<void(std::function<void(absl::StatusOr<Reply>)>)> serve,
                      std::function<void(absl::StatusOr<Reply>)> done) {
  struct Pending {
    std::function<void(absl::StatusOr<Reply>)> done;
    bool answered = false;
  };
  auto pending = std::make_shared<Pending>();
  pending->done = std::move(done);
  const auto finish = [pending, from, life = from->life()](absl::StatusOr<Reply> reply) {
    if (from->life() != life || std::exchange(pending->answered, true)) return;
    std::exchange(pending->done, nullptr)(std::move(reply));
  };
  context_->queue.At(context_->queue.now() + timeout, from,
                     [finish] { finish(absl::DeadlineExceededError("no answer in time")); });
  const auto reset = [finish] { finish(absl::UnavailableError("connection reset")); };
  auto ask = [this, from, to, serve = std::move(serve), finish] {
    serve([this, from, to, finish](absl::StatusOr<Reply> reply) {
      Carry(
          to, from, [finish, reply = std::move(reply)] { finish(reply); }, [] {});
    });
  };
  const bool comes_twice = context_->rng.Chance(wire(*from, *to).repeat_per_mille);
  if (comes_twice) Carry(from, to, ask, reset);
  Carry(from, to, std::move(ask), reset);
}

}  // namespace shardline::sim
