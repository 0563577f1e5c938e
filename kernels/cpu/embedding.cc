#include "kernels/embedding.h"

#include "base/status_macros.h"
#include "kernels/cpu/run_tasks.h"

namespace shardline::cpu {

absl::Status Embedding(const EmbeddingArgs& args, DeviceStream stream) {
  SL_RETURN_IF_ERROR(CheckEmbeddingArgs(args));
  RunRows(stream, args.rows, args.table->k(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      DequantizeRow(*args.table, args.tokens[row], args.hidden + row * args.hidden_stride);
    }
  });
  return absl::OkStatus();
}

}  // namespace shardline::cpu
