#pragma once

// What this machine can do, measured briefly at start for the coordinator's placement.

#include <cstdint>
#include <string>

namespace shardline {

struct MeasuredSpeed {
  double read_bytes_per_s = 0.0;  // Streaming reads from memory, all threads.
  double int8_ops_per_s = 0.0;    // Multiplies and adds of 8-bit integers from cache, all threads.
};

// Takes less than 200 ms on a machine that is not overloaded, and 64 MiB while it runs.
MeasuredSpeed MeasureSpeed(int threads);

// Of this machine, or of the cgroup if that allows less.
uint64_t MemoryTotalBytes();

// The same for all processes of this machine, until it boots again; empty where that is unknown.
std::string MachineId();

}  // namespace shardline
