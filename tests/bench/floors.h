#pragma once

// What this machine can do at best, measured beside the thing under test: a plain read of the same
// buffers by the same threads, and a loop of nothing but byte dot products.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/thread_pool.h"

namespace shardline::bench {

double SecondsOf(absl::FunctionRef<void()> body);

// CPU time of all threads of this process: what arithmetic takes, whoever else wants the cores.
double CpuSecondsOf(absl::FunctionRef<void()> body);

double Quantile(std::vector<double> values, double q);

// Reads every buffer once, in slices spread over the pool's workers.
void PlainRead(std::span<const std::span<const std::byte>> buffers, ThreadPool& pool);

// Byte products a CPU second of a loop of independent VNNI dot products, all workers at it.
// REQUIRES: HasVnni().
double PeakProductsPerCpuSecond(ThreadPool& pool);
bool HasVnni();

}  // namespace shardline::bench
