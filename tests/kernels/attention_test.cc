#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/append_kv.h"
#include "kernels/half.h"
#include "tests/kernels/ops_fixture.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;

constexpr uint16_t kHalfNan = 0x7e00;

struct Shape {
  int32_t q_heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 16;
};

// One session: its keys, values and queries for every position, and a cache whose every other
// slot is NaN. Page ids are shuffled, and the table ends where the tokens end.
struct Session {
  Session(const Shape& a_shape, int32_t a_tokens, uint32_t seed, float magnitude = 1.0f)
      : shape(a_shape), tokens(a_tokens) {
    const size_t rows = static_cast<size_t>(tokens);
    q = RandomFloats(rows * shape.q_heads * shape.head_dim, magnitude, seed);
    k = RandomFloats(rows * shape.kv_heads * shape.head_dim, magnitude, seed + 1);
    v = RandomFloats(rows * shape.kv_heads * shape.head_dim, magnitude, seed + 2);
    pages.resize((rows + kPageTokens - 1) / kPageTokens);
    std::iota(pages.begin(), pages.end(), 1);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
    Forget();
  }

  void Forget() {
    view = KvLayerView{.kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
    view.page_stride = view.page_halves() + 32;
    cache.assign((pages.size() + 2) * static_cast<size_t>(view.page_stride), kHalfNan);
    view.base = cache.data();
  }

  SequenceSlice SliceAt(int32_t position, int32_t count) const {
    return SequenceSlice{.row_count = count, .position = position, .pages = pages.data()};
  }

  // Appends tokens [position, position + count).
  void Append(absl::Status (*op)(const AppendKvArgs&, DeviceStream), int32_t position,
              int32_t count, DeviceStream stream, int32_t kept_rows = 0) {
    SequenceSlice slice = SliceAt(position, count);
    slice.kept_rows = kept_rows;
    const int64_t stride = int64_t{shape.kv_heads} * shape.head_dim;
    EXPECT_THAT(op(AppendKvArgs{.k = k.data() + position * stride,
                                .v = v.data() + position * stride,
                                .k_stride = stride,
                                .v_stride = stride,
                                .slices = {&slice, 1},
                                .kv = view},
                   stream),
                IsOk());
  }

  // Attention of rows [position, position + count) into `out`, [tokens, q_heads, head_dim].
  void Attend(absl::Status (*op)(const AttentionArgs&, DeviceStream), int32_t position,
              int32_t count, DeviceStream stream, std::vector<float>& out,
              std::vector<float>* workspace = nullptr) const {
    const SequenceSlice slice = SliceAt(position, count);
    const int64_t stride = int64_t{shape.q_heads} * shape.head_dim;
    AttentionArgs args{.q = q.data() + position * stride,
                       .out = out.data() + position * stride,
                       .q_stride = stride,
                       .out_stride = stride,
                       .q_heads = shape.q_heads,
                       .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                       .slices = {&slice, 1},
                       .kv = view};
    if (workspace != nullptr) {
      args.workspace = workspace->data();
      args.workspace_floats = static_cast<int64_t>(workspace->size());
    }
    EXPECT_THAT(op(args, stream), IsOk());
  }

  std::vector<float> Prefill(int32_t chunk, DeviceStream stream) {
    Forget();
    std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
    for (int32_t position = 0; position < tokens; position += chunk) {
      const int32_t count = std::min(chunk, tokens - position);
      Append(&cpu::AppendKv, position, count, stream);
      Attend(&cpu::Attention, position, count, stream, out);
    }
    return out;
  }

  std::vector<float> Specification() {
    Forget();
    std::vector<float> out(q.size());
    Append(&ref::AppendKv, 0, tokens, {});
    Attend(&ref::Attention, 0, tokens, {}, out);
    return out;
  }

  Shape shape;
  int32_t tokens;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<int32_t> pages;
  std::vector<uint16_t> cache;
  KvLayerView view;
};

TEST(AppendKv, LeavesKeptRowsAlone) {
  for (const auto op : {&ref::AppendKv, &cpu::AppendKv}) {
    Session session(Shape(), 77, 1);
    session.Append(op, 10, 30, {});
    const std::vector<uint16_t> want = session.cache;
    session.Forget();
    session.Append(op, 3, 37, {}, 7);
    EXPECT_EQ(session.cache, want);
    session.Append(op, 3, 37, {}, 37);
    EXPECT_EQ(session.cache, want);
  }
}

TEST(AppendKv, HasTheBitsOfTheSpecificationAndTouchesNothingElse) {
  OnEveryTarget([](DeviceStream stream) {
    for (const Shape& shape : {Shape{4, 2, 16}, Shape{9, 3, 64}, Shape{2, 1, 80}}) {
      Session session(shape, 77, 1, 3.0f);
      const float edges[] = {65519.0f, 65520.0f, 1e30f, 5.9e-8f, 2.9e-8f, 3e-8f, 1e-40f, -0.0f};
      std::copy(std::begin(edges), std::end(edges), session.k.begin());
      std::copy(std::begin(edges), std::end(edges), session.v.begin());
      session.Append(&ref::AppendKv, 3, 60, {});
      const std::vector<uint16_t> want = session.cache;
      session.Forget();
      session.Append(&cpu::AppendKv, 3, 60, stream);
      EXPECT_EQ(session.cache, want);
    }
  });
}

TEST(Attention, HasTheBitsOfTheSpecification) {
  for (const Shape& shape : {Shape{4, 2, 16}, Shape{9, 3, 64}, Shape{3, 3, 80}, Shape{20, 1, 32},
                             Shape{5, 1, 128}, Shape{2, 1, 256}}) {
    Session session(shape, 150, 10);
    const std::vector<float> want = session.Specification();
    OnEveryTarget([&](DeviceStream stream) {
      EXPECT_TRUE(SameBits(session.Prefill(150, stream), want)) << shape.head_dim;
      EXPECT_TRUE(SameBits(session.Prefill(1, stream), want)) << shape.head_dim;
    });
  }
}

TEST(Attention, APromptInPiecesEqualsTheWholePrompt) {
  Session session({2, 1, 16}, 1100, 20);
  const std::vector<float> want = session.Specification();
  for (const std::string& target : cpu::SupportedTargetNames()) {
    cpu::ForceTargetForTest(target);
    ThreadPool pool(ThreadPoolOptions{.threads = 2});
    for (int32_t chunk = 1; chunk <= 17; ++chunk) {
      EXPECT_TRUE(SameBits(session.Prefill(chunk, {.pool = &pool}), want)) << chunk;
    }
    for (const int32_t chunk : {64, 511, 512, 513, 1100}) {
      EXPECT_TRUE(SameBits(session.Prefill(chunk, {.pool = &pool}), want)) << chunk;
    }
  }
  cpu::ResetTargetForTest();
}

TEST(Attention, SplitsSideBySideEqualSplitsInTurn) {
  Session session({6, 2, 32}, 1700, 30);
  session.Append(&cpu::AppendKv, 0, 1700, {});
  std::vector<float> workspace(AttentionWorkspaceFloats(2, 6, 32, 1700),
                               std::numeric_limits<float>::quiet_NaN());
  OnEveryTarget([&](DeviceStream stream) {
    for (const int32_t position : {0, 510, 511, 512, 1023, 1024, 1535, 1536, 1698}) {
      std::vector<float> in_turn(session.q.size());
      std::vector<float> side_by_side(session.q.size());
      session.Attend(&cpu::Attention, position, 2, stream, in_turn);
      session.Attend(&cpu::Attention, position, 2, stream, side_by_side, &workspace);
      EXPECT_TRUE(SameBits(side_by_side, in_turn)) << position;
    }
  });
}

TEST(Attention, ManySessionsInOneCallEqualEachAlone) {
  const Shape shape{6, 3, 32};
  const int32_t lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 130, 511, 512, 513, 600};
  const int64_t q_stride = int64_t{shape.q_heads} * shape.head_dim;
  OnEveryTarget([&](DeviceStream stream) {
    // The sessions share one pool: session i's pages are renumbered behind those of the others.
    std::vector<Session> sessions;
    std::vector<uint16_t> pool;
    std::vector<std::vector<int32_t>> pages;
    std::vector<float> q;
    std::vector<float> want;
    std::vector<SequenceSlice> slices;
    for (const int32_t length : lengths) {
      Session session(shape, length, static_cast<uint32_t>(length));
      session.Append(&cpu::AppendKv, 0, length, stream);
      const int32_t rows = std::min(length, 3);
      std::vector<float> out(session.q.size());
      session.Attend(&cpu::Attention, length - rows, rows, stream, out);
      const int32_t first_page = static_cast<int32_t>(pool.size() / session.view.page_stride);
      pages.push_back(session.pages);
      for (int32_t& page : pages.back()) page += first_page;
      pool.insert(pool.end(), session.cache.begin(), session.cache.end());
      slices.push_back({.first_row = static_cast<int32_t>(q.size() / q_stride),
                        .row_count = rows,
                        .position = length - rows});
      q.insert(q.end(), session.q.end() - rows * q_stride, session.q.end());
      want.insert(want.end(), out.end() - rows * q_stride, out.end());
      sessions.push_back(std::move(session));
    }
    for (size_t i = 0; i < slices.size(); ++i) slices[i].pages = pages[i].data();
    std::vector<float> got(q.size());
    AttentionArgs args{.q = q.data(),
                       .out = got.data(),
                       .q_stride = q_stride,
                       .out_stride = q_stride,
                       .q_heads = shape.q_heads,
                       .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                       .slices = slices,
                       .kv = sessions[0].view};
    args.kv.base = pool.data();
    EXPECT_THAT(cpu::Attention(args, stream), IsOk());
    EXPECT_TRUE(SameBits(got, want));
  });
}

// Softmax and sums in double over the halves in the cache.
std::vector<double> NaiveRow(const Session& session, int32_t position, int32_t head) {
  const Shape& s = session.shape;
  const int32_t kv_head = head / (s.q_heads / s.kv_heads);
  const auto cached = [&](const std::vector<float>& from, int32_t t, int32_t d) {
    return double{HalfToFloat(FloatToHalf(from[(t * s.kv_heads + kv_head) * s.head_dim + d]))};
  };
  std::vector<double> scores;
  for (int32_t t = 0; t <= position; ++t) {
    double dot = 0;
    for (int32_t d = 0; d < s.head_dim; ++d) {
      dot += session.q[(position * s.q_heads + head) * s.head_dim + d] * cached(session.k, t, d);
    }
    scores.push_back(dot / std::sqrt(double{1} * s.head_dim));
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(s.head_dim);
  for (int32_t t = 0; t <= position; ++t) {
    const double weight = std::exp(scores[t] - maximum);
    sum += weight;
    for (int32_t d = 0; d < s.head_dim; ++d) out[d] += weight * cached(session.v, t, d);
  }
  for (double& value : out) value /= sum;
  return out;
}

TEST(Attention, IsCloseToDoublePrecision) {
  for (const float magnitude : {0.1f, 1.0f, 6.0f}) {
    Session session({4, 2, 64}, 1050, 40, magnitude);
    const std::vector<float> out = session.Prefill(1050, {});
    for (const int32_t position : {0, 1, 15, 16, 63, 64, 200, 511, 512, 1049}) {
      for (int32_t head = 0; head < 4; ++head) {
        const std::vector<double> want = NaiveRow(session, position, head);
        for (int32_t d = 0; d < 64; ++d) {
          ASSERT_NEAR(out[(position * 4 + head) * 64 + d], want[d], 2e-5 * magnitude)
              << position << " " << magnitude;
        }
      }
    }
  }
}

TEST(Attention, TheFirstTokenIsItsOwnValue) {
  Session session({2, 2, 16}, 1, 50);
  const std::vector<float> out = session.Prefill(1, {});
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], HalfToFloat(FloatToHalf(session.v[i])));
  }
}

TEST(Attention, HugeScoresNeitherOverflowNorMix) {
  // Token t's key points along axis t % 16 with a weight no softmax survives naively.
  Session session({1, 1, 16}, 600, 60);
  std::fill(session.k.begin(), session.k.end(), 0.0f);
  std::fill(session.q.begin(), session.q.end(), 0.0f);
  for (int32_t t = 0; t < 600; ++t) session.q[t * 16] = 30000.0f;
  session.k[7 * 16] = 30000.0f;
  const std::vector<float> out = session.Prefill(600, {});
  for (int32_t t = 7; t < 600; ++t) {
    for (int32_t d = 0; d < 16; ++d) {
      ASSERT_EQ(out[t * 16 + d], HalfToFloat(FloatToHalf(session.v[7 * 16 + d])));
    }
  }
  EXPECT_TRUE(SameBits(out, session.Specification()));
}

TEST(Attention, ANanReachesEveryRowThatSeesItAndNoOther) {
  Session session({1, 1, 16}, 100, 70);
  session.k[40 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  session.v[80 * 16 + 5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = session.Prefill(9, {});
  for (int32_t t = 0; t < 100; ++t) {
    for (int32_t d = 0; d < 16; ++d) {
      EXPECT_EQ(std::isnan(out[t * 16 + d]), t >= 40 || (t >= 80 && d == 5)) << t << " " << d;
    }
  }
}

}  // namespace
}  // namespace shardline
