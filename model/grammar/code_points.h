#pragma once

// Sets of code points, and how UTF-8 spells them.
//
// Pure functions; any thread.

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace shardline {

inline constexpr uint32_t kCodePointMax = 0x10FFFF;

// Both included.
struct CodePointRange {
  uint32_t low = 0;
  uint32_t high = 0;
  friend bool operator==(const CodePointRange&, const CodePointRange&) = default;
};
using CodePoints = std::vector<CodePointRange>;

// The same set: sorted, without overlap or neighbours, and without what is no code point.
CodePoints Normalised(CodePoints set);
// All code points but those of `set`.
CodePoints Complement(const CodePoints& set);
CodePoints Intersection(const CodePoints& a, const CodePoints& b);
bool Contains(const CodePoints& set, uint32_t code_point);

struct ByteRange {
  uint8_t low = 0;
  uint8_t high = 0;
};
using ByteSequence = absl::InlinedVector<ByteRange, 4>;

// Sequences of byte ranges that together match the UTF-8 of `set` and nothing else; surrogates,
// which have none, are left out.
std::vector<ByteSequence> Utf8SequencesOf(const CodePoints& set);

}  // namespace shardline
