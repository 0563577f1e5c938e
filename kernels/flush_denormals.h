#pragma once

// Denormal floats count as zero, on input and on output, wherever kernels compute: the canonical
// arithmetic of kernels/NUMERICS.md. MXCSR is a property of the thread.

#include <xmmintrin.h>

namespace shardline {

// Sets FTZ and DAZ on this thread and puts back what was there.
class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFtz | kDaz); }
  ~ScopedFlushDenormals() { _mm_setcsr(saved_); }

  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  static constexpr unsigned kFtz = 0x8000;
  static constexpr unsigned kDaz = 0x0040;
  const unsigned saved_;
};

}  // namespace shardline
