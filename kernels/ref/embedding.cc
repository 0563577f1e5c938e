#include "kernels/embedding.h"

#include "base/status_macros.h"
#include "kernels/flush_denormals.h"

namespace shardline::ref {

absl::Status Embedding(const EmbeddingArgs& args, DeviceStream /*stream*/) {
  SL_RETURN_IF_ERROR(CheckEmbeddingArgs(args));
  const ScopedFlushDenormals flush;
  for (int64_t row = 0; row < args.rows; ++row) {
    DequantizeRow(*args.table, args.tokens[row], args.hidden + row * args.hidden_stride);
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
