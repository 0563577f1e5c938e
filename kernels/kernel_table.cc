#include "kernels/kernel_table.h"

#include "base/status_macros.h"
#include "kernels/cpu/targets.h"

namespace shardline {

absl::StatusOr<const KernelTable*> CpuKernels() {
  SL_RETURN_IF_ERROR(cpu::CheckCpu());
  static constexpr KernelTable kTable = {
      .backend = "cpu",
      .embedding = &cpu::Embedding,
      .rms_norm = &cpu::RmsNorm,
      .matmul = &cpu::Matmul,
      .rope = &cpu::Rope,
      .append_kv = &cpu::AppendKv,
      .attention = &cpu::Attention,
      .swiglu = &cpu::SwiGlu,
      .residual_add = &cpu::ResidualAdd,
      .first_non_finite_row = &cpu::FirstNonFiniteRow,
      .argmax = &cpu::Argmax,
  };
  return &kTable;
}

const KernelTable& RefKernels() {
  static constexpr KernelTable kTable = {
      .backend = "ref",
      .embedding = &ref::Embedding,
      .rms_norm = &ref::RmsNorm,
      .matmul = &ref::Matmul,
      .rope = &ref::Rope,
      .append_kv = &ref::AppendKv,
      .attention = &ref::Attention,
      .swiglu = &ref::SwiGlu,
      .residual_add = &ref::ResidualAdd,
      .first_non_finite_row = &ref::FirstNonFiniteRow,
      .argmax = &ref::Argmax,
  };
  return kTable;
}

}  // namespace shardline
