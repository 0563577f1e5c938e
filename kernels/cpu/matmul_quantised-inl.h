// The kernel of all quantised weight formats: one panel times one tile of rows.
//
// Per output: acc = fma(float(isum), dw * dx, acc) for each 32-block in the order of K, and where
// the format has minima acc = fma(mw, dx * sum(q), acc) after it (kernels/NUMERICS.md). The
// integer sums are exact, so only the float chain, one a lane, has an order.

#include "kernels/cpu/matmul_simd-inl.h"
#include "kernels/cpu/panel_layout.h"

#if defined(SHARDLINE_KERNELS_CPU_MATMUL_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHARDLINE_KERNELS_CPU_MATMUL_QUANTISED_INL_H_
#undef SHARDLINE_KERNELS_CPU_MATMUL_QUANTISED_INL_H_
#else
#define SHARDLINE_KERNELS_CPU_MATMUL_QUANTISED_INL_H_
#endif

SL_BEFORE_SIMD();
namespace shardline::cpu::HWY_NAMESPACE {

template <int kField>  // Two bits of each byte to bits 4 and 5.
HWY_INLINE VI HighPair(VI bits) {
  const VI mask = SetI8(0x30);
  if constexpr (kField == 0) return And(ShiftLeft16<4>(bits), mask);
  if constexpr (kField == 1) return And(ShiftLeft16<2>(bits), mask);
  if constexpr (kField == 2) return And(bits, mask);
  if constexpr (kField == 3) return And(ShiftRight16<2>(bits), mask);
}

template <int kBit>  // One bit of each byte to bit 4.
HWY_INLINE VI HighBit(VI bits) {
  const VI mask = SetI8(0x10);
  if constexpr (kBit < 4) return And(ShiftLeft16<4 - kBit>(bits), mask);
  if constexpr (kBit == 4) return And(bits, mask);
  if constexpr (kBit > 4) return And(ShiftRight16<kBit - 4>(bits), mask);
}

// Weights of block j of a record, lanes from 16 / kHalves * half: a vector of bytes per group.
template <WeightFormat kFormat>
HWY_INLINE void UnpackGroups(const uint8_t* HWY_RESTRICT record, int j, int half,
                             VI* HWY_RESTRICT w) {
  constexpr panel::Layout kLayout = panel::LayoutOf(kFormat);
  const uint8_t* quants = record + kLayout.quants_at + j * kLayout.quants_bytes + 32 * half;
  if constexpr (kLayout.quants_bytes == 512) {
    HWY_UNROLL(8)
    for (int g = 0; g < 8; ++g) w[g] = LoadI(quants + 64 * g);
    return;
  }
  const VI low = SetI8(0x0f);
  HWY_UNROLL(4)
  for (int v = 0; v < 4; ++v) {
    const VI bytes = LoadI(quants + 64 * v);
    w[v] = And(bytes, low);
    w[v + 4] = And(ShiftRight16<4>(bytes), low);
  }
  const uint8_t* high = record + kLayout.high_at + j * kLayout.high_bytes + 32 * half;
  if constexpr (kLayout.high_bytes == 64) {
    const VI bits = LoadI(high);
    w[0] = Or(w[0], HighBit<0>(bits));
    w[1] = Or(w[1], HighBit<1>(bits));
    w[2] = Or(w[2], HighBit<2>(bits));
    w[3] = Or(w[3], HighBit<3>(bits));
    w[4] = Or(w[4], HighBit<4>(bits));
    w[5] = Or(w[5], HighBit<5>(bits));
    w[6] = Or(w[6], HighBit<6>(bits));
    w[7] = Or(w[7], HighBit<7>(bits));
  } else if constexpr (kLayout.high_bytes == 128) {
    HWY_UNROLL(2)
    for (int u = 0; u < 2; ++u) {
      const VI bits = LoadI(high + 64 * u);
      w[4 * u] = Or(w[4 * u], HighPair<0>(bits));
      w[4 * u + 1] = Or(w[4 * u + 1], HighPair<1>(bits));
      w[4 * u + 2] = Or(w[4 * u + 2], HighPair<2>(bits));
      w[4 * u + 3] = Or(w[4 * u + 3], HighPair<3>(bits));
    }
  }
}

template <typename T>
HWY_INLINE T LoadScalar(const uint8_t* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

// acc += block j of `record` for kRows rows whose prepared block is at `x`.
template <WeightFormat kFormat, int kRows>
HWY_INLINE void MultiplyBlock(const uint8_t* HWY_RESTRICT record, int j, int half,
                              const uint8_t* HWY_RESTRICT x, VF super_d, VF super_m,
                              VF* HWY_RESTRICT acc) {
  using panel::MetaKind;
  constexpr panel::Layout kLayout = panel::LayoutOf(kFormat);
  constexpr MetaKind kMeta = kLayout.meta;
  constexpr int kBits =
      kLayout.quants_bytes == 512 ? 8 : 4 + kLayout.high_bytes / 64;  // 8, 4, 5 or 6.
  const uint8_t* meta = record + kLayout.meta_at + j * kLayout.meta_bytes;
  VI w[8];
  UnpackGroups<kFormat>(record, j, half, w);

  VF dw = super_d;
  VF mw = ZeroF();
  VI sub[2] = {};
  if constexpr (kMeta == MetaKind::kScale || kMeta == MetaKind::kScaleMin) {
    dw = LoadF16(meta + 16 * half);
  }
  if constexpr (kMeta == MetaKind::kScaleMin) mw = LoadF16(meta + 32 + 16 * half);
  if constexpr (kMeta == MetaKind::kSubMin) {  // Products of 11 and 6 bits: exact.
    dw = MulF(super_d, ToFloat(WidenU8(meta + 8 * half)));
    mw = MulF(super_m, ToFloat(WidenU8(meta + 16 + 8 * half)));
  }
  if constexpr (kMeta == MetaKind::kSubPair) {
    sub[0] = WidenI8(meta + 8 * half);
    sub[1] = WidenI8(meta + 16 + 8 * half);
  }

  const uint8_t* dx = x + 32 * kRows;
  const uint8_t* extra = dx + 4 * kRows;
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    const uint8_t* q = x + 32 * r;
    VI isum;
    if constexpr (kMeta == MetaKind::kSubPair) {
      const VI first = SetI32(LoadScalar<int32_t>(extra + 4 * r));
      const VI last = SetI32(LoadScalar<int32_t>(extra + 4 * (kRows + r)));
      isum = Add32(Mul32(Dot<kBits, 4>(w, q, first), sub[0]),
                   Mul32(Dot<kBits, 4>(w + 4, q + 16, last), sub[1]));
    } else {
      constexpr bool kHasMin = kMeta != MetaKind::kScale;
      const VI start = SetI32(kHasMin ? 0 : LoadScalar<int32_t>(extra + 4 * r));
      if constexpr (kRows < 4) {  // Too few rows to hide the latency of one chain.
        isum = kBits == 8 && HWY_TARGET != HWY_AVX3_DL
                   ? Dot<kBits, 8>(w, q, start)
                   : Add32(Dot<kBits, 4>(w, q, start), Dot<kBits, 4>(w + 4, q + 16, SetI32(0)));
      } else {
        isum = Dot<kBits, 8>(w, q, start);
      }
    }
    const VF scale = MulF(dw, SetF(LoadScalar<float>(dx + 4 * r)));
    acc[r] = Fma(ToFloat(isum), scale, acc[r]);
    if constexpr (kMeta == MetaKind::kScaleMin) {
      acc[r] = Fma(mw, SetF(LoadScalar<float>(extra + 4 * r)), acc[r]);
    }
    if constexpr (kMeta == MetaKind::kSubMin) {
      acc[r] = NegFma(mw, SetF(LoadScalar<float>(extra + 4 * r)), acc[r]);
    }
  }
}

template <WeightFormat kFormat, int kRows>
void MultiplyQuantised(const uint8_t* HWY_RESTRICT panel, const uint8_t* HWY_RESTRICT x, int64_t k,
                       float* HWY_RESTRICT out) {
  using panel::MetaKind;
  constexpr panel::Layout kLayout = panel::LayoutOf(kFormat);
  constexpr int kPerRecord = kLayout.record_k / panel::kBlock;
  constexpr int kRowBytes = kLayout.meta == MetaKind::kSubPair ? 44 : 40;
  // Far enough ahead to cover DRAM latency at the rate one core streams; the panels of a task
  // are adjacent, so the end of one fetches the start of the next.
  constexpr int kPrefetchBytes = 4096;
  const int64_t blocks = k / panel::kBlock;

  for (int half = 0; half < kHalves; ++half) {
    VF acc[kRows];
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) acc[r] = ZeroF();
    const uint8_t* record = panel;
    const uint8_t* block_x = x;
    for (int64_t block = 0; block < blocks; block += kPerRecord) {
      if constexpr (kRows <= 4) {
        for (int line = 0; line < kLayout.record_bytes; line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(record + kPrefetchBytes + line), _MM_HINT_T0);
        }
      }
      VF super_d = ZeroF();
      VF super_m = ZeroF();
      if constexpr (kPerRecord == 8) {
        super_d = LoadF16(record + 16 * half);
        super_m = LoadF16(record + 32 + 16 * half);
      }
      const int here = blocks - block < kPerRecord ? static_cast<int>(blocks - block) : kPerRecord;
      for (int j = 0; j < here; ++j) {
        MultiplyBlock<kFormat, kRows>(record, j, half, block_x, super_d, super_m, acc);
        block_x += kRows * kRowBytes;
      }
      record += kLayout.record_bytes;
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) StoreF(acc[r], out + 16 * r + kWidth * half);
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
