#include "kernels/embedding.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"

namespace shardline {

absl::Status CheckEmbeddingArgs(const EmbeddingArgs& args) {
  SL_CHECK(args.table != nullptr);
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.tokens[row] < 0 || args.tokens[row] >= args.table->n()) {
      return MakeFailure(FailureKind::kInvalidRequest,
                         absl::StrCat("token ", args.tokens[row], " of row ", row,
                                      " is not in the vocabulary of ", args.table->n()));
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline
