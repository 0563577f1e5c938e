#include "node/pulse/pulse_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardline {
namespace {

std::string Seconds(absl::Duration d) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(d));
}

bool IsBusy(uint64_t jobs_started, uint64_t jobs_done) { return jobs_started > jobs_done; }

}  // namespace

PulseCore::PulseCore(const PulseOptions& options) : options_(options) {}

void PulseCore::OnPeerWanted(const StagePeer& id, const std::string& address, Instant now) {
  ForgiveOwnSleep(now);
  const auto [it, is_new] = peers_.try_emplace(id);
  Peer& peer = it->second;
  if (!is_new && peer.address == address) return;
  HangUp(peer);
  peer.address = address;
  peer.redial_pause = options_.beat;
  if (is_new) {
    peer.proved_at = now;
    peer.progress_at = now;
  }
  Dial(id, peer, now);
}

void PulseCore::OnPeerGone(const StagePeer& id, Instant now) {
  ForgiveOwnSleep(now);
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  HangUp(it->second);
  peers_.erase(it);
}

void PulseCore::OnAnswer(PulseConnection connection, const PulseBeat& answer, Instant now) {
  ForgiveOwnSleep(now);
  const auto it = PeerOf(connection);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  if (answer.number <= peer.last_answer || answer.number > peer.last_number ||
      answer.jobs_done > answer.jobs_started) {
    HangUp(peer);
    peer.dial_at = now + peer.redial_pause;
    return;
  }
  if (answer.jobs_done != peer.jobs_done || !IsBusy(answer.jobs_started, answer.jobs_done)) {
    peer.progress_at = now;
  }
  peer.jobs_started = answer.jobs_started;
  peer.jobs_done = answer.jobs_done;
  peer.last_answer = answer.number;
  peer.answered = true;
  peer.proved_at = now;
  peer.redial_pause = options_.beat;
  const bool wedged = now - peer.progress_at >= options_.wedge_timeout;
  if (peer.lost && !wedged) {
    peer.lost = false;
    actions_.recovered.push_back(it->first);
  }
  Judge(it->first, peer, now);
}

void PulseCore::OnStreamBroken(PulseConnection connection, const absl::Status& status,
                               Instant now) {
  ForgiveOwnSleep(now);
  const auto it = PeerOf(connection);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  peer.connection = PulseConnection();
  if (!peer.answered) {
    // Nobody is there, or it is not who is meant.
    Lose(it->first, peer, FailureKind::kHeartbeatLost,
         absl::StrCat("not reached: ", std::string(status.message())));
    peer.dial_at = now + peer.redial_pause;
    peer.redial_pause = std::min(2 * peer.redial_pause, options_.redial_max);
    return;
  }
  // At once, but a connection that breaks again and again gets no more dials than beats.
  peer.dial_at = std::max(now, peer.dialled_at + options_.beat);
  Judge(it->first, peer, now);
}

void PulseCore::OnTick(Instant now) {
  ForgiveOwnSleep(now);
  for (auto& [id, peer] : peers_) Judge(id, peer, now);
}

// Lists all, which are empty once they are moved from.
PulseActions PulseCore::TakeActions() { return std::move(actions_); }

Instant PulseCore::NextWake() const {
  if (wake_) return *wake_;  // Asked after every event of the node.
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [id, peer] : peers_) wake = std::min(wake, NextWakeOf(peer));
  wake_ = wake;
  return wake;
}

Instant PulseCore::NextWakeOf(const Peer& peer) const {
  const bool connected = peer.connection != PulseConnection();
  Instant wake = connected ? peer.beat_at : peer.dial_at;
  if (peer.lost) {
    // A stream that stays silent is given up as well.
    if (!connected) return wake;
    return std::min(wake, std::max(peer.proved_at, peer.dialled_at) + options_.lease);
  }
  wake = std::min(wake, peer.proved_at + options_.lease);
  if (IsBusy(peer.jobs_started, peer.jobs_done)) {
    wake = std::min(wake, peer.progress_at + options_.wedge_timeout);
  }
  return wake;
}

std::vector<SilentPeer> PulseCore::Silent(Instant now) const {
  std::vector<SilentPeer> silent;
  for (const auto& [id, peer] : peers_) {
    if (!peer.lost) continue;
    const bool busy = IsBusy(peer.jobs_started, peer.jobs_done);
    const Instant since = busy ? std::min(peer.proved_at, peer.progress_at) : peer.proved_at;
    silent.push_back({.peer = id, .silent = now - since});
  }
  return silent;
}

// An event later than the wake before it by more than a beat: this side did not run. The time it
// missed is taken out of every lease. The first thing that any event does.
void PulseCore::ForgiveOwnSleep(Instant now) {
  const Instant wake = NextWake();
  wake_.reset();
  if (wake == Instant::InfiniteFuture()) return;
  const absl::Duration slept = now - wake;
  if (slept <= options_.beat) return;
  for (auto& [id, peer] : peers_) {
    peer.dial_at = peer.dial_at + slept;
    peer.dialled_at = peer.dialled_at + slept;
    peer.beat_at = peer.beat_at + slept;
    peer.proved_at = peer.proved_at + slept;
    peer.progress_at = peer.progress_at + slept;
  }
}

void PulseCore::Dial(const StagePeer& id, Peer& peer, Instant now) {
  last_connection_ = last_connection_.Next();
  peer.connection = last_connection_;
  peer.dialled_at = now;
  peer.answered = false;
  peer.last_number = 0;
  peer.last_answer = 0;
  peer.beat_at = now;
  actions_.dial.push_back({.connection = peer.connection, .peer = id, .address = peer.address});
  Judge(id, peer, now);
}

void PulseCore::HangUp(Peer& peer) {
  if (peer.connection == PulseConnection()) return;
  actions_.hang_up.push_back(peer.connection);
  peer.connection = PulseConnection();
}

void PulseCore::Lose(const StagePeer& id, Peer& peer, FailureKind kind, std::string reason) {
  if (std::exchange(peer.lost, true)) return;
  actions_.lost.push_back({.peer = id, .kind = kind, .reason = std::move(reason)});
}

// What time has brought about.
void PulseCore::Judge(const StagePeer& id, Peer& peer, Instant now) {
  if (now - peer.proved_at >= options_.lease) {
    Lose(id, peer, FailureKind::kHeartbeatLost,
         absl::StrCat("no answer for ", Seconds(now - peer.proved_at)));
    if (peer.connection != PulseConnection() && now - peer.dialled_at >= options_.lease) {
      HangUp(peer);
      peer.dial_at = now;
    }
  }
  if (IsBusy(peer.jobs_started, peer.jobs_done) &&
      now - peer.progress_at >= options_.wedge_timeout) {
    Lose(id, peer, FailureKind::kDeviceLost,
         absl::StrCat("executor wedged in job ", peer.jobs_done + 1, " for ",
                      Seconds(now - peer.progress_at)));
  }
  if (peer.connection == PulseConnection()) {
    if (now >= peer.dial_at) Dial(id, peer, now);
    return;
  }
  if (now < peer.beat_at) return;
  actions_.beat.push_back(
      {.connection = peer.connection, .number = ++peer.last_number, .echo = peer.last_answer});
  peer.beat_at = now + options_.beat;
}

PulseCore::Peers::iterator PulseCore::PeerOf(PulseConnection connection) {
  if (connection == PulseConnection()) return peers_.end();
  return std::find_if(peers_.begin(), peers_.end(), [connection](const auto& entry) {
    return entry.second.connection == connection;
  });
}

}  // namespace shardline
