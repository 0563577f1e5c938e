#pragma once

// What the operator tests share: seeded numbers, bitwise comparison, and running one claim on
// every instruction set and on several thread counts.

#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "kernels/cpu/targets.h"
#include "kernels/device_stream.h"
#include "kernels/thread_pool.h"

namespace shardline {

inline std::vector<float> RandomFloats(size_t count, float magnitude, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, magnitude);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// Equal bits, except that any NaN equals any NaN: which payload survives an operation is no claim.
inline ::testing::AssertionResult SameBits(const std::vector<float>& got,
                                           const std::vector<float>& want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements, not " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != got[i] && want[i] != want[i]) continue;
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << got[i] << ", not " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// claim(stream) on each instruction set this CPU has, without a pool and with 1, 2 and 3 workers.
inline void OnEveryTarget(absl::FunctionRef<void(DeviceStream stream)> claim) {
  const std::vector<std::string> targets = cpu::SupportedTargetNames();
  ASSERT_FALSE(targets.empty());
  for (const std::string& target : targets) {
    cpu::ForceTargetForTest(target);
    SCOPED_TRACE(target);
    claim(DeviceStream{});
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      ThreadPool pool(ThreadPoolOptions{.threads = threads});
      claim(DeviceStream{.pool = &pool});
    }
  }
  cpu::ResetTargetForTest();
}

}  // namespace shardline
