#pragma once

// The steps that bring one session to where a test begins.

#include <optional>
#include <string>
#include <vector>

#include "coordinator/sessions/sessions_core.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline::testing {

inline Instant At(int64_t ms) { return Instant::FromOrigin(absl::Milliseconds(ms)); }

// "abc" is a route over node-a, node-b and node-c, ten layers each, of incarnations 1, 2 and 3; a
// capital letter is the next life of its node, a hundred later.
inline Route RouteOver(const std::string& nodes) {
  Route route{.plan = PlanEpoch(3), .model = "qwen3", .model_id = {}, .numerics_id = {}};
  for (const char c : nodes) {
    const bool later = c >= 'A' && c <= 'Z';
    const char letter = later ? static_cast<char>(c - 'A' + 'a') : c;
    const auto at = static_cast<int32_t>(10 * route.stages.size());
    const uint64_t life = static_cast<uint64_t>(letter - 'a') + (later ? 101 : 1);
    route.stages.push_back({NodeId(std::string("node-") + letter),
                            Incarnation(life),
                            std::string(1, letter) + ":1",
                            {at, at + 10}});
  }
  return route;
}

inline SessionRequest ARequest(uint64_t request = 1) {
  SessionRequest r;
  r.request = RequestId(request);
  r.model = "qwen3";
  r.prompt_tokens = 5;
  r.new_tokens_max = 4;
  r.budget = absl::Seconds(10);
  return r;
}

inline AttemptKey KeyOf(uint64_t session, uint64_t epoch) {
  return {SessionId(session), Epoch(epoch)};
}

inline Admitted GrantOf(const AttemptKey& key) { return {.key = key, .granted = true}; }

}  // namespace shardline::testing
