#pragma once

// A weight matrix as the CPU kernels read it: repacked once, at load, from the file's rows.
//
// Panel-16: 16 rows of the matrix (16 output columns of the product) stand side by side, so that
// a vector lane is an output column and K is walked in order (kernels/cpu/panel_layout.h has
// the bytes). N is padded with zero rows to whole panels; K must be whole blocks of the format.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/device_stream.h"
#include "kernels/weight_format.h"

namespace shardline {

// Immutable once packed; may be read by any number of threads.
class PackedWeight {
 public:
  PackedWeight() = default;
  PackedWeight(PackedWeight&&) = default;
  PackedWeight& operator=(PackedWeight&&) = default;

  WeightFormat format() const { return format_; }
  int64_t n() const { return n_; }  // Rows in the file, outputs of the product.
  int64_t k() const { return k_; }  // Elements of a row, inputs of the product.

  int64_t panel_count() const { return panel_count_; }
  int64_t panel_bytes() const { return panel_bytes_; }
  // What one pass over the matrix reads.
  int64_t bytes() const { return panel_count_ * panel_bytes_; }

  // 64-byte aligned. REQUIRES: 0 <= panel < panel_count().
  const std::byte* panel(int64_t panel) const { return data_.get() + panel * panel_bytes_; }

 private:
  friend absl::StatusOr<PackedWeight> PackWeight(WeightFormat format, int64_t n, int64_t k,
                                                 std::span<const std::byte> file_bytes,
                                                 DeviceStream stream);
  struct Free {
    void operator()(std::byte* data) const;
  };

  WeightFormat format_ = WeightFormat::kF32;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t panel_count_ = 0;
  int64_t panel_bytes_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

// Repacks `file_bytes`: n rows of k elements each, row after row, as GGUF stores them. Fails with
// kInvalidRequest when k is not whole blocks or the size is not n rows, and with
// kIncompatibleRecipe on a CPU that none of the kernels can run on. Uses the pool's workers if
// `stream.pool` is set, so that each touches first the panels it is likely to read.
absl::StatusOr<PackedWeight> PackWeight(WeightFormat format, int64_t n, int64_t k,
                                        std::span<const std::byte> file_bytes, DeviceStream stream);

// Writes row `row` as k floats to `out`: the exact values of the file, a sum of scale and minimum
// rounded once. REQUIRES: 0 <= row < weight.n().
void DequantizeRow(const PackedWeight& weight, int64_t row, float* out);

}  // namespace shardline
