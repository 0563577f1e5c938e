#pragma once

// What this machine can do, measured briefly at start for the coordinator's placement.

#include <cstdint>

namespace shardline {

struct MeasuredSpeed {
  double read_bytes_per_s = 0.0;  // Streaming reads from memory, all threads.
  double int8_ops_per_s = 0.0;    // Multiplies and adds of 8-bit integers from cache, all threads.
};

// Takes less than 200 ms on a machine that is not overloaded, and 64 MiB while it runs.
MeasuredSpeed MeasureSpeed(int threads);

// Of this machine, or of the cgroup if that allows less.
uint64_t MemoryTotalBytes();

}  // namespace shardline
