#pragma once

// Proposers that know the answer to a request, or are sure of something else.

#include <cstdint>
#include <memory>
#include <vector>

#include "node/rounds/proposer.h"
#include "tests/node/rounds/fake_device.h"

namespace shardline::testing {

// Who guesses what the model says next.
enum class Guesses {
  kNobody,
  kOurs,       // DefaultProposers.
  kOracle,     // Knows it.
  kHostile,    // Knows nothing, believes in it, and names tokens that do not exist.
  kCorrupted,  // The oracle, now and then wrong.
};

// One that guesses so about a model of `layers` layers. REQUIRES: neither kNobody nor kOurs.
std::vector<std::unique_ptr<Proposer>> ScriptedProposers(Guesses guesses, uint32_t seed,
                                                         const FakeRequest& request,
                                                         int32_t layers);

}  // namespace shardline::testing
