#pragma once

// How this process dials: one connection a channel, watched by keepalive, with short timeouts.

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace shardline {

// Both ends ping a silent connection this often and give up after as long again.
inline constexpr int kKeepaliveMs = 2000;
// A peer that does not answer the handshake is given up after this.
inline constexpr int kConnectTimeoutMs = 2000;

// A channel of its own to `address`: same-target channels would share one connection, and control
// would wait behind activations. Dials when first used.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

}  // namespace shardline
