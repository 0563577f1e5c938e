#include "node/transport/pulse_message.h"

namespace shardline {

v1::PeerBeat ToProto(const PulseBeat& beat, const StagePeer& from, const StagePeer& to) {
  v1::PeerBeat out;
  out.set_number(beat.number);
  out.set_echo(beat.echo);
  out.set_node_id(from.node.value());
  out.set_incarnation(from.incarnation.value());
  out.set_peer_node_id(to.node.value());
  out.set_peer_incarnation(to.incarnation.value());
  out.set_jobs_started(beat.jobs_started);
  out.set_jobs_done(beat.jobs_done);
  return out;
}

PulseBeat FromProto(const v1::PeerBeat& beat) {
  return {.number = beat.number(),
          .echo = beat.echo(),
          .jobs_started = beat.jobs_started(),
          .jobs_done = beat.jobs_done()};
}

StagePeer SpeakerOf(const v1::PeerBeat& beat) {
  return {NodeId(beat.node_id()), Incarnation(beat.incarnation())};
}

StagePeer AddresseeOf(const v1::PeerBeat& beat) {
  return {NodeId(beat.peer_node_id()), Incarnation(beat.peer_incarnation())};
}

}  // namespace shardline
