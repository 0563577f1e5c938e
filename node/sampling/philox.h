#pragma once

// Philox 4x32-10: a counter-based random number generator (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A pure function of counter and key: no state to carry,
// so any draw can be repeated anywhere.

#include <array>
#include <cstdint>

namespace shardline {

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter,
                                   const std::array<uint32_t, 2>& key);

}  // namespace shardline
