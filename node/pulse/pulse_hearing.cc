#include "node/pulse/pulse_hearing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {

PulseHearing::PulseHearing(const PulseOptions& options) : options_(options) {}

absl::StatusOr<uint64_t> PulseHearing::OnBeat(PulseStreamId stream, const StagePeer& from,
                                              const PulseBeat& beat, Instant now) {
  auto it = streams_.find(stream);
  if (it == streams_.end()) {
    if (streams_.size() >= options_.streams_max) {
      return MakeFailure(FailureKind::kOverloaded,
                         absl::StrCat(options_.streams_max, " peers beat to this node already"));
    }
    it = streams_.emplace(stream, Stream{.from = from, .proved_at = now}).first;
  }
  Stream& known = it->second;
  const auto invalid = [](const std::string& message) {
    return MakeFailure(FailureKind::kInvalidRequest, message);
  };
  if (from != known.from) return invalid("a beat of another peer than before on this stream");
  if (beat.number <= known.last_number) {
    return invalid(absl::StrCat("beat ", beat.number, " after beat ", known.last_number));
  }
  if (beat.echo > known.last_number) {
    return invalid(
        absl::StrCat("echo of answer ", beat.echo, ", but the last was ", known.last_number));
  }
  if (beat.echo > known.last_echo) {
    known.last_echo = beat.echo;
    known.proved_at = now;
  }
  known.last_number = beat.number;
  return beat.number;
}

void PulseHearing::OnStreamClosed(PulseStreamId stream) { streams_.erase(stream); }

std::vector<SilentPeer> PulseHearing::Silent(Instant now) const {
  std::map<StagePeer, absl::Duration> shortest;  // A peer that dialled anew has two streams.
  for (const auto& [id, stream] : streams_) {
    const absl::Duration silent = now - stream.proved_at;
    const auto [it, is_new] = shortest.emplace(stream.from, silent);
    if (!is_new) it->second = std::min(it->second, silent);
  }
  std::vector<SilentPeer> peers;
  for (const auto& [peer, silent] : shortest) {
    if (silent >= options_.lease) peers.push_back({.peer = peer, .silent = silent});
  }
  return peers;
}

}  // namespace shardline
