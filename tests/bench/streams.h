#pragma once

// Many clients at once, and when their tokens came.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/instant.h"
#include "shardline/v1/inference.grpc.pb.h"

namespace shardline::bench {

struct Stream {
  Instant began;
  std::vector<Instant> tokens;  // When each came.
  absl::Status status;
  v1::GenerateEnd end;
};

// Calls Generate once a request, all at the same time, each on a thread of its own. `on_token`, if
// any, is called with the number of the request and of the token, from that thread.
std::vector<Stream> RunTogether(v1::Inference::Stub& stub,
                                const std::vector<v1::GenerateRequest>& requests,
                                const std::function<void(size_t, size_t)>& on_token = {});

// Tokens a second of all streams, between the moment when the last of them had its `skip`-th token
// and the moment when the first of them ended. Dies, with the reason, if one failed.
double SteadyTokensPerSecond(const std::vector<Stream>& streams, size_t skip = 4);

// Never ends early, takes no drafts and no cached prefix; tokens differ with `seed`.
v1::GenerateRequest PlainRequest(int prompt_tokens, uint32_t new_tokens, int seed);

}  // namespace shardline::bench
