#include "kernels/matmul_check.h"

#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

template <typename... Words>
absl::Status Refuse(const Words&... words) {
  return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat("matmul: ", words...));
}

}  // namespace

absl::Status CheckMatmul(const MatmulArgs& args) {
  if (args.rows < 0) return Refuse(args.rows, " rows");
  if (args.parts.size() > kMatmulPartsMax) {
    return Refuse(args.parts.size(), " parts, at most ", kMatmulPartsMax);
  }
  for (size_t i = 0; i < args.parts.size(); ++i) {
    const MatmulPart& part = args.parts[i];
    if (part.weight == nullptr || part.weight->n() == 0)
      return Refuse("part ", i, " has no weight");
    const int64_t k = args.parts[0].weight->k();
    if (part.weight->k() != k) {
      return Refuse("part ", i, " has k = ", part.weight->k(), ", part 0 has ", k);
    }
    if (args.rows == 0) continue;
    if (part.out == nullptr || args.x == nullptr) return Refuse("part ", i, ": no input or output");
    if (args.rows > 1 && (part.out_stride < part.weight->n() || args.x_stride < k)) {
      return Refuse("part ", i, " is [", part.weight->n(), ", ", k, "]: strides ", part.out_stride,
                    " and ", args.x_stride);
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline
