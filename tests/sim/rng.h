#pragma once

// All chance of a simulation, from one seed. SplitMix64: small, cheap, and the same everywhere.

#include <cstdint>

namespace shardline::sim {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  }

  // In [0, n). REQUIRES: 0 < n < 2^32.
  uint64_t Below(uint64_t n) { return ((Next() >> 32) * n) >> 32; }

  // In [low, high], both included. REQUIRES: low <= high.
  int64_t Between(int64_t low, int64_t high) {
    const auto width = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int64_t>(width < (uint64_t{1} << 32) ? Below(width) : Next() % width);
  }

  // True `per_mille` times in a thousand.
  bool Chance(int per_mille) { return static_cast<int>(Below(1000)) < per_mille; }

  // A generator of its own, so that what it feeds does not shift anybody else's numbers.
  Rng Fork(uint64_t salt) { return Rng(Next() ^ (salt * 0xD6E8FEB86659FD93ULL)); }

 private:
  uint64_t state_;
};

}  // namespace shardline::sim
