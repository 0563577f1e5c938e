#pragma once

// What this build is called. One number for the three binaries.

#include <cstdint>
#include <string_view>

namespace shardline {

inline constexpr std::string_view kVersion = "0.1.0";

// Versions of the wire protocol this build speaks. A hello carries both; peers use the highest
// they share, and a refusal names both ranges.
inline constexpr uint32_t kProtocolVersionMin = 1;
inline constexpr uint32_t kProtocolVersionMax = 1;

// Version of the numerics contract (kernels/NUMERICS.md). Part of every numerics id: raised by
// any change that moves a bit of any result.
inline constexpr uint32_t kNumericsSpecVersion = 2;

// Tokens in one page of KV, everywhere.
inline constexpr int32_t kPageTokens = 16;

}  // namespace shardline
