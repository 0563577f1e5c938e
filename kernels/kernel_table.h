#pragma once

// One function an operator: the back end, chosen once at start-up. Whoever runs a model calls
// through a table and never names a back end.

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/append_kv.h"
#include "kernels/argmax.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/finite.h"
#include "kernels/matmul.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace shardline {

struct KernelTable {
  std::string_view backend;  // "cpu", "ref"; the back end class in a numerics id.
  absl::Status (*embedding)(const EmbeddingArgs& args, DeviceStream stream);
  absl::Status (*rms_norm)(const RmsNormArgs& args, DeviceStream stream);
  absl::Status (*matmul)(const MatmulArgs& args, DeviceStream stream);
  absl::Status (*rope)(const RopeArgs& args, DeviceStream stream);
  absl::Status (*append_kv)(const AppendKvArgs& args, DeviceStream stream);
  absl::Status (*attention)(const AttentionArgs& args, DeviceStream stream);
  absl::Status (*swiglu)(const SwiGluArgs& args, DeviceStream stream);
  absl::Status (*residual_add)(const ResidualAddArgs& args, DeviceStream stream);
  int64_t (*first_non_finite_row)(const FiniteArgs& args, DeviceStream stream);
  void (*argmax)(const ArgmaxArgs& args, DeviceStream stream);
};

// kIncompatibleRecipe on a CPU without AVX2 and FMA.
absl::StatusOr<const KernelTable*> CpuKernels();

// The specification, for tests: plain loops, one thread, the same bits.
const KernelTable& RefKernels();

}  // namespace shardline
