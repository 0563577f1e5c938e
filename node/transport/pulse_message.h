#pragma once

// Beats of Shard.Pulse, to and from the words of the cores.

#include "node/pulse/pulse_words.h"
#include "shardline/v1/link.pb.h"

namespace shardline {

v1::PeerBeat ToProto(const PulseBeat& beat, const StagePeer& from, const StagePeer& to);
PulseBeat FromProto(const v1::PeerBeat& beat);
StagePeer SpeakerOf(const v1::PeerBeat& beat);
StagePeer AddresseeOf(const v1::PeerBeat& beat);

}  // namespace shardline
