#pragma once

// Proposers whose guesses are right or wrong by order.

#include <cstdint>
#include <memory>
#include <vector>

#include "node/rounds/proposer.h"
#include "tests/node/rounds/fake_device.h"
#include "tests/node/rounds/ring.h"

namespace shardline::testing {

// For a request to a fake model of `layers`. REQUIRES: kOracle, kHostile or kCorrupted.
std::vector<std::unique_ptr<Proposer>> ScriptedProposers(Guesses guesses, uint32_t seed,
                                                         const FakeRequest& request,
                                                         int32_t layers);

}  // namespace shardline::testing
