#pragma once

// What the HTTP API counts; coordinator_metrics.h names it for operators.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "base/histogram.h"

namespace shardline {

struct GatewayFigures {
  // Route template, method, status.
  using RequestKey = std::tuple<std::string, std::string, int>;
  std::map<RequestKey, uint64_t> requests;
  // Route template, and how far it was: "queue", "prefill" or "decode".
  std::map<std::pair<std::string, std::string>, uint64_t> disconnects;
  uint64_t generations = 0;              // Requests for text that are being answered now.
  uint64_t streams_stalled = 0;          // Ended because their readers did not keep up.
  uint64_t resumed = 0;                  // Streams that went on behind what the client had.
  Histogram ttft_seconds{SlowBounds()};  // Arrival of the request to its first token.
};

}  // namespace shardline
