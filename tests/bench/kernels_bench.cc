// Matmul against its two floors, measured in the same run and interleaved with it: a plain read
// of the same buffers by the same threads, and a loop of nothing but byte dot products.
//
// Prints ratios, which is all that means anything on a shared machine:
//   of_read   plain read time / matmul time; 1 is memory speed (few rows)
//   of_peak   matmul's products a CPU second / the peak loop's (many rows); an instruction does
//             half as many products of bf16 as of bytes, and a quarter of f16 and f32

#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/thread_pool.h"
#include "tests/bench/floors.h"

namespace shardline {
namespace {

using bench::CpuSecondsOf;
using bench::Quantile;
using bench::SecondsOf;

ThreadPool& Pool() {
  static ThreadPool pool({});
  return pool;
}

std::vector<std::byte> RandomFile(WeightFormat format, int64_t n, int64_t k) {
  const WeightFormatTraits& traits = TraitsOf(format);
  std::vector<std::byte> file(
      static_cast<size_t>(n * (k / traits.block_elements) * traits.block_bytes));
  std::mt19937_64 random(1);
  for (size_t at = 0; at + 8 <= file.size(); at += 8) {
    const uint64_t bits = random() & 0x3f3f3f3f3f3f3f3f;  // No infinities among the floats.
    std::memcpy(file.data() + at, &bits, 8);
  }
  return file;
}

// Layers enough to leave every cache: what decoding streams.
struct Layers {
  Layers(WeightFormat format, int64_t n, int64_t k, int64_t bytes_min, int64_t rows)
      : x(static_cast<size_t>(rows * k)), out(static_cast<size_t>(rows * n)) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random);
    const std::vector<std::byte> file = RandomFile(format, n, k);
    int64_t bytes = 0;
    while (bytes < bytes_min || weights.empty()) {
      weights.push_back(PackWeight(format, n, k, file, {.pool = &Pool()}).value());
      bytes += weights.back().bytes();
    }
    part = {.weight = &weights[0], .out = out.data(), .out_stride = n};
    args = {.x = x.data(), .x_stride = k, .rows = rows, .parts = {&part, 1}};
    scratch.resize(MatmulScratchBytes(args));
    args.scratch = scratch.data();
    args.scratch_bytes = scratch.size();
  }

  void Multiply() {
    for (const PackedWeight& weight : weights) {
      part.weight = &weight;
      if (!cpu::Matmul(args, {.pool = &Pool()}).ok()) std::abort();
    }
  }

  int64_t Bytes() const { return static_cast<int64_t>(weights.size()) * weights[0].bytes(); }

  std::vector<PackedWeight> weights;
  std::vector<float> x, out;
  std::vector<std::byte> scratch;
  MatmulPart part;
  MatmulArgs args;
};

void PlainRead(const Layers& layers) {
  std::vector<std::span<const std::byte>> buffers;
  for (const PackedWeight& weight : layers.weights) {
    buffers.emplace_back(weight.panel(0), static_cast<size_t>(weight.bytes()));
  }
  bench::PlainRead(buffers, Pool());
}

void FewRows(benchmark::State& state, WeightFormat format, int64_t rows) {
  constexpr int64_t kBytes = int64_t{256} << 20;  // Far beyond the L3 cache.
  Layers layers(format, 4096, 4096, kBytes, rows);
  layers.Multiply();
  std::vector<double> ratios, rates;
  for (auto _ : state) {
    const double read = SecondsOf([&] { PlainRead(layers); });
    const double multiply = SecondsOf([&] { layers.Multiply(); });
    ratios.push_back(read / multiply);
    rates.push_back(static_cast<double>(layers.Bytes()) / multiply * 1e-9);
  }
  state.counters["of_read"] = Quantile(ratios, 0.5);
  state.counters["of_read_p10"] = Quantile(ratios, 0.1);
  state.counters["of_read_p90"] = Quantile(ratios, 0.9);
  state.counters["GB/s"] = Quantile(rates, 0.5);
}

double PeakShare(WeightFormat format) {
  if (format == WeightFormat::kBF16) return 0.5;
  return format == WeightFormat::kF16 || format == WeightFormat::kF32 ? 0.25 : 1.0;
}

void ManyRows(benchmark::State& state, WeightFormat format, int64_t rows) {
  Layers layers(format, 4096, 4096, 0, rows);
  layers.Multiply();
  const double products = static_cast<double>(rows) * 4096 * 4096;
  std::vector<double> ratios, rates;
  for (auto _ : state) {
    const double peak = bench::PeakProductsPerCpuSecond(Pool()) * PeakShare(format);
    const double multiply = CpuSecondsOf([&] { layers.Multiply(); });
    ratios.push_back(products / multiply / peak);
    rates.push_back(2 * products / multiply * 1e-9);
  }
  state.counters["of_peak"] = Quantile(ratios, 0.5);
  state.counters["of_peak_p10"] = Quantile(ratios, 0.1);
  state.counters["of_peak_p90"] = Quantile(ratios, 0.9);
  state.counters["GOPS/core"] = Quantile(rates, 0.5);
}

// A layer of a small model, hot in the caches: what a fork and its join cost shows here.
void SmallLayer(benchmark::State& state, WeightFormat format, int64_t n, int64_t k) {
  Layers layers(format, n, k, 0, 1);
  for (auto _ : state) layers.Multiply();
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(layers.Bytes()),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

// Repacking at load: bytes of the file a second.
void Pack(benchmark::State& state, WeightFormat format) {
  const std::vector<std::byte> file = RandomFile(format, 4096, 4096);
  for (auto _ : state) {
    benchmark::DoNotOptimize(PackWeight(format, 4096, 4096, file, {.pool = &Pool()}).value());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(file.size()));
}

void ForkJoin(benchmark::State& state) {
  for (auto _ : state) Pool().ParallelFor(8, [](int64_t task) { benchmark::DoNotOptimize(task); });
}

// Matmul while another thread wants one of the cores all the time: rate with it / rate without.
void OneHog(benchmark::State& state) {
  Layers layers(WeightFormat::kQ4_1, 2048, 2048, int64_t{64} << 20, 1);
  layers.Multiply();
  std::vector<double> ratios;
  for (auto _ : state) {
    const double alone = SecondsOf([&] { layers.Multiply(); });
    std::atomic<bool> stop = false;
    std::thread hog([&] {
      cpu_set_t last;
      CPU_ZERO(&last);
      CPU_SET(Pool().thread_count() - 1, &last);
      pthread_setaffinity_np(pthread_self(), sizeof(last), &last);
      while (!stop.load(std::memory_order_relaxed)) _mm_pause();
    });
    const double beside = SecondsOf([&] {
      for (int i = 0; i < 5; ++i) layers.Multiply();
    });
    stop = true;
    hog.join();
    ratios.push_back(alone * 5 / beside);
  }
  state.counters["with_hog"] = Quantile(ratios, 0.5);
  state.counters["with_hog_p10"] = Quantile(ratios, 0.1);
}

constexpr WeightFormat kFormats[] = {
    WeightFormat::kQ4_1, WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ5_0,
    WeightFormat::kQ5_1, WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K,
    WeightFormat::kBF16, WeightFormat::kF16,  WeightFormat::kF32,
};

void Register() {
  for (WeightFormat format : kFormats) {
    const std::string name(TraitsOf(format).name);
    for (int64_t rows : {1, 2, 4}) {
      benchmark::RegisterBenchmark(("few_rows/" + name + "/" + std::to_string(rows)).c_str(),
                                   FewRows, format, rows)
          ->Iterations(9)
          ->Unit(benchmark::kMillisecond);
    }
    for (int64_t rows : {8, 16, 64, 512}) {
      benchmark::RegisterBenchmark(("many_rows/" + name + "/" + std::to_string(rows)).c_str(),
                                   ManyRows, format, rows)
          ->Iterations(rows > 64 ? 7 : 15)
          ->Unit(benchmark::kMillisecond);
    }
  }
  for (WeightFormat format : kFormats) {
    benchmark::RegisterBenchmark(("pack/" + std::string(TraitsOf(format).name)).c_str(), Pack,
                                 format)
        ->Unit(benchmark::kMillisecond);
  }
  for (const auto& [n, k] : {std::pair{192, 576}, {576, 576}, {1536, 576}, {49152, 576}}) {
    benchmark::RegisterBenchmark(
        ("small_layer/q8_0/" + std::to_string(n) + "x" + std::to_string(k)).c_str(), SmallLayer,
        WeightFormat::kQ8_0, n, k);
  }
  benchmark::RegisterBenchmark("fork_join", ForkJoin);
  benchmark::RegisterBenchmark("hog", OneHog)->Iterations(9)->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace shardline

int main(int argc, char** argv) {
  if (!shardline::bench::HasVnni()) {
    std::fprintf(stderr, "the floors of this benchmark need AVX-512 VNNI\n");
    return 1;
  }
  shardline::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
