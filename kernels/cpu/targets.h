#pragma once

// The instruction sets the CPU kernels are compiled for, and which of them this CPU has.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace shardline::cpu {

// OK if this CPU has a target with real fused multiply-add (AVX2 and FMA, or better);
// kIncompatibleRecipe otherwise. The kernels must not be called then.
absl::Status CheckCpu();

// Best first: "AVX3_DL" (AVX-512 with VNNI), "AVX3", "AVX2".
std::vector<std::string> SupportedTargetNames();

// For tests: every Highway kernel of the process runs as compiled for `name`, one of
// SupportedTargetNames(), until reset. Not while a kernel runs.
void ForceTargetForTest(std::string_view name);
void ResetTargetForTest();

}  // namespace shardline::cpu
