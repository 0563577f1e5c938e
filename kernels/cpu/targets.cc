#include "kernels/cpu/targets.h"

#include "base/check.h"
#include "base/failure.h"
#include "hwy/targets.h"

namespace shardline::cpu {

absl::Status CheckCpu() {
  static const bool usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                             !hwy::SupportedAndGeneratedTargets().empty();
  if (usable) return absl::OkStatus();
  return MakeFailure(FailureKind::kIncompatibleRecipe,
                     "the CPU kernels need AVX2 and FMA, which this CPU or its hypervisor lacks");
}

std::vector<std::string> SupportedTargetNames() {
  std::vector<std::string> names;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

void ForceTargetForTest(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return;
  }
  SL_CHECK(false, "not a target of this CPU: ", std::string(name));
}

void ResetTargetForTest() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace shardline::cpu
