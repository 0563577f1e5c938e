#include "tests/bench/floors.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "base/clock.h"

namespace shardline::bench {
namespace {

constexpr int64_t kSliceBytes = int64_t{256} << 10;

__attribute__((target("avx2"))) int64_t ReadSlice(const std::byte* data, int64_t bytes) {
  __m256i sum[4] = {};
  for (int64_t at = 0; at + 128 <= bytes; at += 128) {
    for (int i = 0; i < 4; ++i) {
      const auto* const line = reinterpret_cast<const __m256i*>(data + at + 32 * i);
      sum[i] = _mm256_xor_si256(sum[i], _mm256_loadu_si256(line));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return _mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 1) ^
         _mm256_extract_epi64(all, 2) ^ _mm256_extract_epi64(all, 3);
}

__attribute__((target("avx512f,avx512vnni"))) void DotLoop(int64_t rounds) {
  __m512i acc[12] = {};
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 12; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
    asm volatile("" : "+v"(a));  // Or the sums would be multiplied out.
  }
  for (__m512i& value : acc) asm volatile("" : : "v"(value));
}

}  // namespace

double SecondsOf(absl::FunctionRef<void()> body) {
  const Instant start = SystemClock()->Now();
  body();
  return absl::ToDoubleSeconds(SystemClock()->Now() - start);
}

double CpuSecondsOf(absl::FunctionRef<void()> body) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = now();
  body();
  return now() - start;
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

void PlainRead(std::span<const std::span<const std::byte>> buffers, ThreadPool& pool) {
  std::vector<std::span<const std::byte>> slices;
  for (std::span<const std::byte> buffer : buffers) {
    while (!buffer.empty()) {
      slices.push_back(buffer.first(std::min<size_t>(buffer.size(), kSliceBytes)));
      buffer = buffer.subspan(slices.back().size());
    }
  }
  std::atomic<int64_t> sum = 0;
  pool.ParallelFor(static_cast<int64_t>(slices.size()), [&](int64_t i) {
    const std::span<const std::byte> slice = slices[static_cast<size_t>(i)];
    sum += ReadSlice(slice.data(), static_cast<int64_t>(slice.size()));
  });
  asm volatile("" : : "r"(sum.load()));
}

bool HasVnni() { return __builtin_cpu_supports("avx512vnni") != 0; }

double PeakProductsPerCpuSecond(ThreadPool& pool) {
  // Long enough that the ticks by which CPU time is counted do not show.
  constexpr int64_t kRounds = 15'000'000;
  const int threads = pool.thread_count();
  const double seconds =
      CpuSecondsOf([&] { pool.ParallelFor(threads, [](int64_t) { DotLoop(kRounds); }); });
  return static_cast<double>(kRounds * 12 * 64 * threads) / seconds;
}

}  // namespace shardline::bench
