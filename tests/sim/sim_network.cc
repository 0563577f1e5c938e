#include "tests/sim/sim_network.h"

#include <algorithm>

namespace shardline::sim {
namespace {

// A reset is seen within this; it is what T_rst of the specification is made of.
constexpr SimTime kResetSeenMax = 5 * kMillisecond;

}  // namespace

SimTime SimNetwork::Delay(const Wire& w) {
  SimTime delay = context_->rng.Between(w.delay_min, w.delay_max);
  if (w.late_per_mille > 0 && context_->rng.Chance(w.late_per_mille)) {
    delay += context_->rng.Between(0, w.late);
  }
  return delay;
}

Stream* SimNetwork::Dial(SimProcess* a, SimProcess* b) {
  streams_.push_back(std::make_unique<Stream>());
  Stream* stream = streams_.back().get();
  stream->network_ = this;
  stream->id_ = streams_.size();
  stream->ends_[0].process = a;
  stream->ends_[0].life = a->life();
  stream->ends_[1].process = b;
  stream->ends_[1].life = b->life();
  stream->ends_[0].out = &wire(*a, *b);
  stream->ends_[1].out = &wire(*b, *a);
  if (!b->alive() && !b->silent()) Tell(stream, 0, Delay(*b, *a));
  return stream;
}

void SimNetwork::OnEnd(Stream* stream, int end, Stream::OnEnd handler) {
  stream->ends_[end].on_end = std::move(handler);
}

void SimNetwork::Send(Stream* stream, int end, Action at_the_other_end) {
  const Stream::End& from = stream->ends_[end];
  if (!from.open) return;
  Stream::Pipe& pipe = stream->pipes_[end];
  pipe.messages.push_back(std::move(at_the_other_end));
  const SimTime now = context_->queue.now();
  pipe.last_arrival = std::max(now + Delay(*from.out), pipe.last_arrival + 1);
  context_->queue.At(pipe.last_arrival, nullptr, [stream, end] { Arrive(stream, end); });
}

// Named by so little that the event holds it without an allocation.
void SimNetwork::Arrive(Stream* stream, int from_end) {
  stream->network_->TakeIn(stream, from_end);
}

void SimNetwork::TakeIn(Stream* stream, int from_end) {
  Stream::End& from = stream->ends_[from_end];
  Stream::End& to = stream->ends_[1 - from_end];
  Stream::Pipe& pipe = stream->pipes_[from_end];
  if (stream->reset_ || pipe.empty()) return;
  if (context_->queue.now() < stream->stalled_until_) {
    context_->queue.At(stream->stalled_until_, nullptr,
                       [stream, from_end] { Arrive(stream, from_end); });
    return;
  }
  if (from.out->cut) {
    held_[{from.process->number(), to.process->number()}].push_back(
        {.to = nullptr, .action = [stream, from_end] { Arrive(stream, from_end); }});
    return;
  }
  if (!to.process->alive() || to.process->life() != to.life) {
    // A machine that is gone says nothing; one that is there knows no such connection.
    if (to.process->silent()) return;
    stream->reset_ = true;
    Tell(stream, from_end, Delay(*to.process, *from.process));
    return;
  }
  if (to.process->paused()) {
    to.process->Run([stream, from_end] { Arrive(stream, from_end); });
    return;
  }
  Action message = pipe.Take();
  if (!to.open) return;
  to.process->Run(std::move(message));
}

void SimNetwork::HangUp(Stream* stream, int end) {
  if (!stream->ends_[end].open) return;
  const int other = 1 - end;
  Send(stream, end, [stream, other] {
    Stream::End& left = stream->ends_[other];
    if (!left.open) return;
    left.open = false;
    if (left.on_end) std::exchange(left.on_end, nullptr)();
  });
  stream->ends_[end].open = false;
  stream->ends_[end].on_end = nullptr;
}

void SimNetwork::Abandon(Stream* stream, int end) {
  stream->ends_[end].open = false;
  stream->ends_[end].on_end = nullptr;
}

void SimNetwork::Stall(Stream* stream, SimTime delay) {
  stream->stalled_until_ = context_->queue.now() + delay;
}

void SimNetwork::Reset(Stream* stream) {
  if (stream->reset_) return;
  stream->reset_ = true;
  for (const int end : {0, 1}) Tell(stream, end, context_->rng.Between(0, kResetSeenMax));
}

// The end learns by itself that the connection is gone: no message is needed for that.
void SimNetwork::Tell(Stream* stream, int end, SimTime delay) {
  Stream::End& told = stream->ends_[end];
  if (!told.open || told.process->life() != told.life) return;
  context_->queue.At(context_->queue.now() + delay, told.process, [stream, end] {
    Stream::End& left = stream->ends_[end];
    if (!left.open) return;
    left.open = false;
    if (left.on_end) std::exchange(left.on_end, nullptr)();
  });
}

void SimNetwork::ResetBetween(const SimProcess& a, const SimProcess& b) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream* stream = streams_[i].get();
    const int x = stream->ends_[0].process->number();
    const int y = stream->ends_[1].process->number();
    if ((x == a.number() && y == b.number()) || (x == b.number() && y == a.number())) {
      Reset(stream);
    }
  }
}

void SimNetwork::OnDeath(const SimProcess& process) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream* stream = streams_[i].get();
    for (const int end : {0, 1}) {
      Stream::End& dead = stream->ends_[end];
      Stream::End& left = stream->ends_[1 - end];
      if (dead.process->number() != process.number()) continue;
      dead.open = false;
      dead.on_end = nullptr;
      if (stream->reset_ || process.silent()) continue;
      if (wire(*dead.process, *left.process).cut) continue;
      stream->reset_ = true;
      Tell(stream, 1 - end, context_->rng.Between(0, kResetSeenMax));
    }
  }
}

void SimNetwork::Carry(SimProcess* from, SimProcess* to, Action action, Action lost) {
  const uint32_t life = from->life();
  context_->queue.At(
      context_->queue.now() + Delay(*from, *to), nullptr,
      [this, from, to, life, action = std::move(action), lost = std::move(lost)]() mutable {
        if (wire(*from, *to).cut) {
          held_[{from->number(), to->number()}].push_back({.to = to, .action = std::move(action)});
          return;
        }
        if (from->life() != life && from->alive() && context_->rng.Chance(500)) {
          return;  // Died with the connection of its sender.
        }
        Land(from, to, std::move(action), std::move(lost));
      });
}

void SimNetwork::Land(SimProcess* from, SimProcess* to, Action action, Action lost) {
  if (to->alive()) {
    to->Run(std::move(action));
    return;
  }
  if (to->silent()) return;
  context_->queue.At(context_->queue.now() + Delay(*to, *from), from, std::move(lost));
}

void SimNetwork::Cut(const SimProcess& from, const SimProcess& to) { wire(from, to).cut = true; }

void SimNetwork::Mend(const SimProcess& from, const SimProcess& to) {
  wire(from, to).cut = false;
  auto found = held_.find({from.number(), to.number()});
  if (found == held_.end()) return;
  std::vector<Held> held = std::exchange(found->second, {});
  for (Held& packet : held) {
    const SimTime at = context_->queue.now() + Delay(from, to);
    if (packet.to == nullptr) {
      context_->queue.At(at, nullptr, std::move(packet.action));
    } else if (packet.to->alive()) {
      context_->queue.At(at, packet.to, std::move(packet.action));
    }
  }
}

void SimNetwork::MendAll() {
  for (auto& [ends, w] : wires_) {
    w = Wire();
    auto found = held_.find(ends);
    if (found == held_.end()) continue;
    for (Held& packet : std::exchange(found->second, {})) {
      const SimTime at = context_->queue.now() + context_->rng.Between(w.delay_min, w.delay_max);
      if (packet.to == nullptr) {
        context_->queue.At(at, nullptr, std::move(packet.action));
      } else if (packet.to->alive()) {
        context_->queue.At(at, packet.to, std::move(packet.action));
      }
    }
  }
}

}  // namespace shardline::sim
