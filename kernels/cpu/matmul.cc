#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/targets.h"
#include "kernels/flush_denormals.h"
#include "kernels/matmul_check.h"
#include "kernels/thread_pool.h"

namespace shardline {
namespace cpu {
namespace {

using panel::kLanes;

constexpr int kTileRowsMax = 16;  // Of any target.
constexpr int64_t kScratchAlignment = 64;

// A task reads about this much of the weights: enough to make claiming it cheap. With many rows
// it must also stay in the L2 cache beside the rows, since every tile of rows reads it again.
constexpr int64_t kTaskBytesMin = 32 << 10;
constexpr int64_t kTaskBytesMaxManyRows = 256 << 10;
constexpr int64_t kTasksPerThread = 8;

// Preparing this many elements takes about as long as waking a worker that has just parked.
constexpr int64_t kForkElementsMin = 32 << 10;
constexpr int64_t kSliceElements = 2048;  // Whole blocks and pairs.

int64_t AlignUp(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// The prepared activations of one kind in the scratch.
struct Prepared {
  bool wanted = false;
  uint8_t* base = nullptr;
  int64_t row_bytes = 0;
};

struct PartPlan {
  int64_t panels_per_task = 0;
  int64_t task_count = 0;  // Per chunk of rows.
};

// One Matmul call, cut into tasks: (part, run of panels, chunk of row tiles), panels outermost.
class Job {
 public:
  explicit Job(const MatmulArgs& args)
      : args_(args), kernels_(ChosenMatmulKernels()), k_(args.parts[0].weight->k()) {
    tile_count_ = (args.rows + kernels_.tile_rows - 1) / kernels_.tile_rows;
    uint8_t* next = reinterpret_cast<uint8_t*>(args.scratch);
    for (const MatmulPart& part : args.parts) {
      Prepared& prepared = PreparedFor(part);
      if (prepared.wanted) continue;
      const ActivationKind kind = kernels_.kind(part.weight->format());
      prepared = {.wanted = true, .base = next, .row_bytes = ActivationBytes(kind, k_)};
      next += AlignUp((args.rows + 3) / 4 * 4 * prepared.row_bytes);
    }
  }

  void Run(ThreadPool* pool) {
    Prepare(pool);
    const int64_t task_count = Plan(pool == nullptr ? 1 : pool->thread_count());
    For(pool, task_count, [this](int64_t task) { Multiply(task); });
  }

 private:
  template <typename Body>
  static void For(ThreadPool* pool, int64_t count, const Body& body) {
    if (pool != nullptr) return pool->ParallelFor(count, body);
    const ScopedFlushDenormals flush;
    for (int64_t task = 0; task < count; ++task) body(task);
  }

  Prepared& PreparedFor(const MatmulPart& part) {
    return prepared_[static_cast<size_t>(kernels_.kind(part.weight->format()))];
  }

  int TileRows(int64_t tile) const {
    return static_cast<int>(
        std::min<int64_t>(kernels_.tile_rows, args_.rows - tile * kernels_.tile_rows));
  }

  // Tiles and slices of K are independent. Little work is done by the caller: it takes less than
  // a fork.
  void Prepare(ThreadPool* pool) {
    const bool alone = args_.rows * k_ < kForkElementsMin;
    const int64_t slice_count = alone ? 1 : (k_ + kSliceElements - 1) / kSliceElements;
    const int64_t slice_k = alone ? k_ : kSliceElements;
    for (size_t kind = 0; kind < prepared_.size(); ++kind) {
      if (!prepared_[kind].wanted) continue;
      For(alone ? nullptr : pool, tile_count_ * slice_count, [&](int64_t task) {
        const int64_t k_begin = task % slice_count * slice_k;
        PrepareSlice(static_cast<ActivationKind>(kind), task / slice_count, k_begin,
                     std::min(slice_k, k_ - k_begin));
      });
    }
  }

  void PrepareSlice(ActivationKind kind, int64_t tile, int64_t k_begin, int64_t k_count) const {
    const Prepared& prepared = prepared_[static_cast<size_t>(kind)];
    const int64_t row = tile * kernels_.tile_rows;
    const int rows = TileRows(tile);
    const int padded_rows = kernels_.padded_rows(rows);
    kernels_.prepare(
        kind, args_.x + row * args_.x_stride + k_begin, args_.x_stride, rows, padded_rows, k_count,
        prepared.base + row * prepared.row_bytes + padded_rows * ActivationBytes(kind, k_begin));
  }

  // Chooses the cut; the number of tasks in all.
  int64_t Plan(int threads) {
    int64_t bytes = 0;
    for (const MatmulPart& part : args_.parts) bytes += part.weight->bytes();
    int64_t task_bytes = std::max(bytes / (kTasksPerThread * threads), kTaskBytesMin);
    if (tile_count_ > 1) task_bytes = std::min(task_bytes, kTaskBytesMaxManyRows);
    int64_t runs = 0;
    for (size_t i = 0; i < args_.parts.size(); ++i) {
      const PackedWeight& weight = *args_.parts[i].weight;
      PartPlan& plan = plans_[i];
      plan.panels_per_task = std::max<int64_t>(task_bytes / weight.panel_bytes(), 1);
      plan.task_count = (weight.panel_count() + plan.panels_per_task - 1) / plan.panels_per_task;
      runs += plan.task_count;
    }
    const int64_t wanted = 4 * threads;
    chunk_count_ = std::min(tile_count_, (wanted + runs - 1) / runs);
    return runs * chunk_count_;
  }

  void Multiply(int64_t task) const {
    const int64_t chunk = task % chunk_count_;
    int64_t run = task / chunk_count_;
    size_t i = 0;
    while (run >= plans_[i].task_count) run -= plans_[i++].task_count;
    const MatmulPart& part = args_.parts[i];
    const PackedWeight& weight = *part.weight;
    const Prepared& prepared = prepared_[static_cast<size_t>(kernels_.kind(weight.format()))];
    const int64_t first = run * plans_[i].panels_per_task;
    const int64_t last = std::min(first + plans_[i].panels_per_task, weight.panel_count());

    alignas(64) float acc[kTileRowsMax * kLanes];
    for (int64_t tile = tile_count_ * chunk / chunk_count_;
         tile < tile_count_ * (chunk + 1) / chunk_count_; ++tile) {
      const int64_t row = tile * kernels_.tile_rows;
      const int rows = TileRows(tile);
      const TileKernel kernel = kernels_.tile(weight.format(), kernels_.padded_rows(rows));
      const uint8_t* x = prepared.base + row * prepared.row_bytes;
      for (int64_t panel = first; panel < last; ++panel) {
        kernel(reinterpret_cast<const uint8_t*>(weight.panel(panel)), x, k_, acc);
        Store(part, acc, row, rows, panel);
      }
    }
  }

  static void Store(const MatmulPart& part, const float* acc, int64_t row, int rows,
                    int64_t panel) {
    const int64_t column = panel * kLanes;
    const int64_t lanes = part.weight->n() - column;
    for (int r = 0; r < rows; ++r) {
      const float* from = acc + r * kLanes;
      float* to = part.out + (row + r) * part.out_stride + column;
      if (lanes < kLanes) {
        StoreLanes(part, column, from, lanes, to);
      } else {
        StoreLanes(part, column, from, WholePanel(), to);
      }
    }
  }

  // A number of lanes that the compiler knows becomes vectors.
  using WholePanel = std::integral_constant<int64_t, kLanes>;
  template <typename Count>
  static void StoreLanes(const MatmulPart& part, int64_t column, const float* from, Count lanes,
                         float* to) {
    float values[kLanes];
    float others[kLanes];
    std::copy_n(from, static_cast<int64_t>(lanes), values);
    if (part.bias != nullptr) {
      std::copy_n(part.bias + column, static_cast<int64_t>(lanes), others);
      for (int64_t lane = 0; lane < lanes; ++lane) values[lane] += others[lane];
    }
    if (part.accumulate) {
      std::copy_n(to, static_cast<int64_t>(lanes), others);
      for (int64_t lane = 0; lane < lanes; ++lane) values[lane] = others[lane] + values[lane];
    }
    std::copy_n(values, static_cast<int64_t>(lanes), to);
  }

  const MatmulArgs& args_;
  const MatmulKernels& kernels_;
  const int64_t k_;
  int64_t tile_count_ = 0;
  int64_t chunk_count_ = 1;
  std::array<Prepared, kActivationKinds> prepared_;
  std::array<PartPlan, kMatmulPartsMax> plans_;
};

}  // namespace

absl::Status Matmul(const MatmulArgs& args, DeviceStream stream) {
  SL_RETURN_IF_ERROR(CheckCpu());
  SL_RETURN_IF_ERROR(CheckMatmul(args));
  if (args.rows == 0 || args.parts.empty()) return absl::OkStatus();
  const size_t needed = MatmulScratchBytes(args);
  if (args.scratch == nullptr || args.scratch_bytes < needed) {
    return MakeFailure(FailureKind::kInvalidRequest,
                       absl::StrCat("matmul of ", args.rows, " rows: scratch of ",
                                    args.scratch_bytes, " bytes, needs ", needed));
  }
  Job(args).Run(stream.pool);
  return absl::OkStatus();
}

}  // namespace cpu

size_t MatmulScratchBytes(const MatmulArgs& args) {
  if (args.parts.empty()) return 0;
  const cpu::MatmulKernels& kernels = cpu::ChosenMatmulKernels();
  const int64_t rows = (args.rows + 3) / 4 * 4;  // No tile is padded further.
  std::array<bool, cpu::kActivationKinds> seen = {};
  int64_t bytes = 0;
  for (const MatmulPart& part : args.parts) {
    const cpu::ActivationKind kind = kernels.kind(part.weight->format());
    bool& counted = seen[static_cast<size_t>(kind)];
    if (!counted) bytes += cpu::AlignUp(rows * cpu::ActivationBytes(kind, part.weight->k()));
    counted = true;
  }
  return static_cast<size_t>(bytes);
}

}  // namespace shardline
