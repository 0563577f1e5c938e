#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

absl::Status Validate(const RopeSpec& p, int64_t positions_count) {
  if (p.rope_dims <= 0 || p.rope_dims % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: rotated dimensions must be even and positive, not ", p.rope_dims));
  }
  if (!(p.base > 0) || !(p.factor > 0) || !std::isfinite(p.base) || !std::isfinite(p.factor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: base ", p.base, " and factor ", p.factor, " must be positive"));
  }
  if (positions_count <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: a table of ", positions_count, " positions"));
  }
  if (p.stretch == RopeStretch::kYarn && (p.original_context_tokens <= 0 || !(p.base > 1))) {
    return absl::InvalidArgumentError(absl::StrCat("rope: yarn needs its original context, not ",
                                                   p.original_context_tokens, " tokens"));
  }
  if (p.frequency_divisors.empty()) return absl::OkStatus();
  if (p.frequency_divisors.size() != static_cast<size_t>(p.rope_dims / 2)) {
    return absl::InvalidArgumentError(absl::StrCat("rope: ", p.frequency_divisors.size(),
                                                   " frequency divisors for ", p.rope_dims / 2,
                                                   " pairs"));
  }
  for (const float divisor : p.frequency_divisors) {
    if (!(divisor > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rope: frequency divisor ", divisor, " is not positive"));
    }
  }
  return absl::OkStatus();
}

// The (fractional) pair that makes `turns` full turns over the original context.
double YarnPairOfTurns(const RopeSpec& p, double turns) {
  return p.rope_dims * std::log(p.original_context_tokens / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(p.base));
}

// How much of pair i's own speed is kept: 1 for fast pairs, 0 for slow ones, a ramp between.
double YarnKept(const RopeSpec& p, int32_t i) {
  const double low = std::max(0.0, std::floor(YarnPairOfTurns(p, p.yarn_beta_fast)));
  const double high =
      std::min<double>(p.rope_dims - 1, std::ceil(YarnPairOfTurns(p, p.yarn_beta_slow)));
  const double ramp = (i - low) / std::max(0.001, high - low);
  return 1.0 - std::clamp(ramp, 0.0, 1.0);
}

double RadiansPerPosition(const RopeSpec& p, int32_t i) {
  double speed = std::pow(p.base, -2.0 * i / p.rope_dims);
  if (!p.frequency_divisors.empty()) speed /= p.frequency_divisors[i];
  switch (p.stretch) {
    case RopeStretch::kNone:
      return speed;
    case RopeStretch::kLinear:
      return speed / p.factor;
    case RopeStretch::kYarn: {
      const double kept = YarnKept(p, i);
      return speed * kept + speed / p.factor * (1 - kept);
    }
  }
  SL_CHECK(false, "rope scaling ", static_cast<int>(p.stretch));
  return 0;
}

double Magnitude(const RopeSpec& p) {
  if (p.stretch != RopeStretch::kYarn) return 1;
  return p.yarn_attention_factor * (p.factor <= 1 ? 1 : 1 + 0.1 * std::log(p.factor));
}

}  // namespace

RopeTable::RopeTable(int32_t rope_dims, int64_t positions_count)
    : rope_dims_(rope_dims),
      positions_count_(positions_count),
      values_(static_cast<size_t>(positions_count * rope_dims)) {}

absl::StatusOr<RopeTable> RopeTable::Build(const RopeSpec& spec, int64_t positions_count) {
  SL_RETURN_IF_ERROR(Validate(spec, positions_count));
  RopeTable table(spec.rope_dims, positions_count);
  const int32_t pairs = spec.rope_dims / 2;
  const double magnitude = Magnitude(spec);
  for (int32_t i = 0; i < pairs; ++i) {
    const double speed = RadiansPerPosition(spec, i);
    for (int64_t position = 0; position < positions_count; ++position) {
      const double angle = static_cast<double>(position) * speed;
      float* row = table.values_.data() + position * spec.rope_dims;
      row[i] = static_cast<float>(std::cos(angle) * magnitude);
      row[pairs + i] = static_cast<float>(std::sin(angle) * magnitude);
    }
  }
  return table;
}

absl::Status CheckRopeArgs(const RopeArgs& args) {
  SL_CHECK(args.table != nullptr);
  SL_CHECK(args.table->rope_dims() <= args.head_dim);
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t position = args.positions[row];
    if (position < 0 || position >= args.table->positions_count()) {
      return absl::OutOfRangeError(absl::StrCat("rope: position ", position, " of row ", row,
                                                " is outside the table of ",
                                                args.table->positions_count(), " positions"));
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline
