#include "kernels/attention.h"

namespace shardline {

int64_t AttentionWorkspaceFloats(int64_t rows, int64_t q_heads, int64_t head_dim,
                                 int64_t tokens_max) {
  const int64_t splits = (tokens_max + kAttentionSplitTokens - 1) / kAttentionSplitTokens;
  return rows * q_heads * splits * (head_dim + 2);
}

}  // namespace shardline
