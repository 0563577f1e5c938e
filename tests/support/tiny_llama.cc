#include "tests/support/tiny_llama.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline::testing {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine and compiler.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }
  // Mean 0, deviation 1, bounded: four uniforms, no libm.
  float Normal() {
    const float sum = Uniform() + Uniform() + Uniform() + Uniform();
    return (sum - 2.0f) * 1.7320508f;
  }

 private:
  uint64_t state_;
};

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

// IEEE binary16 of `value`, nearest even; no infinities or NaN come in.
uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  SL_CHECK(magnitude < 65'504.0f);
  if (magnitude < 0x1p-14f) {  // Subnormal: a whole number of 2^-24.
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f)));
  }
  const uint32_t absolute = bits & 0x7FFFFFFF;
  const uint32_t rounded = absolute + 0xFFF + ((absolute >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// The float that a half stands for, so that codes fit the scale that is really stored.
float FromHalf(uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const float mantissa = static_cast<float>(half & 0x3FF);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024.0f, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

int Code(float value, float scale, int low, int high) {
  if (scale == 0.0f) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::nearbyint(value / scale)), low, high);
}

constexpr int kBlock = 32;

// d, then 32 signed bytes.
void EncodeQ8_0(const float* x, std::string& out) {
  float top = 0.0f;
  for (int i = 0; i < kBlock; ++i) top = std::max(top, std::fabs(x[i]));
  const uint16_t d = ToHalf(top / 127.0f);
  AppendNumber(out, d);
  for (int i = 0; i < kBlock; ++i) {
    AppendNumber(out, static_cast<int8_t>(Code(x[i], FromHalf(d), -127, 127)));
  }
}

// d, then 16 bytes: element i in the low nibble, i + 16 in the high; value = d * (q - 8).
void EncodeQ4_0(const float* x, std::string& out) {
  float top = 0.0f;
  for (int i = 0; i < kBlock; ++i) top = std::fabs(x[i]) > std::fabs(top) ? x[i] : top;
  const uint16_t d = ToHalf(top / -8.0f);
  AppendNumber(out, d);
  for (int i = 0; i < kBlock / 2; ++i) {
    const int low = Code(x[i], FromHalf(d), -8, 7) + 8;
    const int high = Code(x[i + kBlock / 2], FromHalf(d), -8, 7) + 8;
    AppendNumber(out, static_cast<uint8_t>(low | high << 4));
  }
}

// d, m, then nibbles as q4_0; value = d * q + m.
void EncodeQ4_1(const float* x, std::string& out) {
  const auto [low_x, high_x] = std::minmax_element(x, x + kBlock);
  const uint16_t d = ToHalf((*high_x - *low_x) / 15.0f);
  const uint16_t m = ToHalf(*low_x);
  AppendNumber(out, d);
  AppendNumber(out, m);
  for (int i = 0; i < kBlock / 2; ++i) {
    const int low = Code(x[i] - FromHalf(m), FromHalf(d), 0, 15);
    const int high = Code(x[i + kBlock / 2] - FromHalf(m), FromHalf(d), 0, 15);
    AppendNumber(out, static_cast<uint8_t>(low | high << 4));
  }
}

void AppendRandomBytes(Random& random, int count, std::string& out) {
  for (int i = 0; i < count; ++i) out.push_back(static_cast<char>(random.Next()));
}

// A block of random codes, with scales that give values of about `deviation`.
void RandomBlock(GgufTensorType type, float deviation, Random& random, std::string& out) {
  switch (type) {
    case GgufTensorType::kQ5_0:  // d, 4 bytes of high bits, 16 of nibbles; d * (q - 16).
      AppendNumber(out, ToHalf(deviation / 9.2f));
      return AppendRandomBytes(random, 20, out);
    case GgufTensorType::kQ5_1:  // d, m, as above; d * q + m.
      AppendNumber(out, ToHalf(deviation / 9.2f));
      AppendNumber(out, ToHalf(deviation * -15.5f / 9.2f));
      return AppendRandomBytes(random, 20, out);
    case GgufTensorType::kQ4_K:  // d, dmin, 12 bytes of 6-bit scales, 128 of nibbles.
      AppendNumber(out, ToHalf(deviation / 200.0f));
      AppendNumber(out, ToHalf(deviation * 7.5f / 200.0f));
      return AppendRandomBytes(random, 12 + 128, out);
    case GgufTensorType::kQ5_K:  // d, dmin, 12 of scales, 32 of high bits, 128 of nibbles.
      AppendNumber(out, ToHalf(deviation / 400.0f));
      AppendNumber(out, ToHalf(deviation * 15.5f / 400.0f));
      return AppendRandomBytes(random, 12 + 32 + 128, out);
    case GgufTensorType::kQ6_K:  // 128 of low bits, 64 of high, 16 signed scales, d.
      AppendRandomBytes(random, 128 + 64, out);
      for (int i = 0; i < 16; ++i) out.push_back(static_cast<char>(16 + random.Next() % 48));
      return AppendNumber(out, ToHalf(deviation / 740.0f));
    default:
      SL_CHECK(false, "an encoder exists for ", std::string(TraitsOf(type).name));
  }
}

float Deviation(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * value;
  return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
}

// How GPT-2's byte-level tokenizers spell byte `b`: printable Latin-1 as itself, the rest, in
// order, as the code points from 256.
std::string SpellByte(int b) {
  const auto printable = [](int c) {
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
  };
  int code_point = b;
  if (!printable(b)) {
    code_point = 256;
    for (int c = 0; c < b; ++c) code_point += printable(c) ? 0 : 1;
  }
  std::string out;
  if (code_point < 128) {
    out.push_back(static_cast<char>(code_point));
  } else {
    out.push_back(static_cast<char>(0xC0 | code_point >> 6));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
  return out;
}

// Left and right of each merge; "\u0120" is how a space is spelt.
constexpr std::pair<const char*, const char*> kMerges[] = {
    {"\u0120", "t"},   {"\u0120", "a"},    {"h", "e"},          {"i", "n"},
    {"\u0120t", "he"}, {"l", "l"},         {"o", "n"},          {"r", "e"},
    {"he", "ll"},      {"hell", "o"},      {"\u0120", "w"},     {"o", "r"},
    {"\u0120w", "or"}, {"\u0120wor", "l"}, {"\u0120worl", "d"}, {"\u0120", "\u0120"},
};

int32_t VocabSizeOf(const TinyLlamaOptions& options) {
  return std::max(options.vocab, TinyVocabSize());
}

void SetTokenizer(const TinyLlamaOptions& options, GgufWriter& writer) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> token_types(tokens.size(), 3);  // Control.
  for (int b = 0; b < 256; ++b) tokens.push_back(SpellByte(b));
  std::vector<std::string> merges;
  for (const auto& [left, right] : kMerges) {
    merges.push_back(absl::StrCat(left, " ", right));
    tokens.push_back(absl::StrCat(left, right));
  }
  token_types.resize(tokens.size(), 1);  // Normal.
  while (tokens.size() < static_cast<size_t>(VocabSizeOf(options))) {
    tokens.push_back(absl::StrCat("<|unused_", tokens.size(), "|>"));
  }
  token_types.resize(tokens.size(), 5);  // Unused.
  writer.SetString("tokenizer.ggml.model", "gpt2")
      .SetString("tokenizer.ggml.pre", "smollm")
      .SetStringArray("tokenizer.ggml.tokens", tokens)
      .SetInt32Array("tokenizer.ggml.token_type", token_types)
      .SetStringArray("tokenizer.ggml.merges", merges)
      .SetUint32("tokenizer.ggml.bos_token_id", kTinyBos)
      .SetUint32("tokenizer.ggml.eos_token_id", kTinyEos)
      .SetUint32("tokenizer.ggml.unknown_token_id", kTinyEndOfText)
      .SetUint32("tokenizer.ggml.padding_token_id", kTinyEos)
      .SetBool("tokenizer.ggml.add_bos_token", false)
      .SetBool("tokenizer.ggml.add_space_prefix", false)
      .SetString("tokenizer.chat_template",
                 "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
                 "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
}

void SetHyperParameters(const TinyLlamaOptions& options, GgufWriter& writer) {
  const auto key = [&](const char* suffix) {
    return absl::StrCat(options.architecture, ".", suffix);
  };
  writer.SetString("general.architecture", options.architecture)
      .SetString("general.name", options.name)
      .SetUint32(key("block_count"), options.layers)
      .SetUint32(key("context_length"), options.context)
      .SetUint32(key("embedding_length"), options.hidden)
      .SetUint32(key("feed_forward_length"), options.ff)
      .SetUint32(key("attention.head_count"), options.q_heads)
      .SetUint32(key("attention.head_count_kv"), options.kv_heads)
      .SetFloat32(key("attention.layer_norm_rms_epsilon"), 1e-5f)
      .SetFloat32(key("rope.freq_base"), options.rope_base);
  if (options.head_dim != 0) {
    writer.SetUint32(key("attention.key_length"), options.head_dim)
        .SetUint32(key("attention.value_length"), options.head_dim);
  }
}

class TensorMaker {
 public:
  TensorMaker(const TinyLlamaOptions& options, GgufWriter& writer)
      : options_(options), writer_(writer) {}

  // Numbers of mean `mean` and deviation `deviation`, the same for the same name and seed.
  void Add(const std::string& name, const TensorShape& shape, GgufTensorType type, float mean,
           float deviation) {
    const uint64_t seed = options_.seed ^ HashName(name);
    Random random(seed);
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = mean + deviation * random.Normal();
    writer_.AddTensor(name, type, shape, EncodeWeights(type, values, seed + 1));
  }

  void Matrix(const std::string& name, int64_t inputs, int64_t outputs, GgufTensorType type,
              float gain) {
    const auto wanted = options_.types.find(name);
    if (wanted != options_.types.end()) type = wanted->second;
    Add(name, {inputs, outputs}, type, 0.0f, gain / std::sqrt(static_cast<float>(inputs)));
  }

  void Norm(const std::string& name, int64_t size) {
    Add(name, {size}, GgufTensorType::kF32, 1.0f, 0.1f);
  }
  void Bias(const std::string& name, int64_t size) {
    Add(name, {size}, GgufTensorType::kF32, 0.0f, 0.1f);
  }

 private:
  const TinyLlamaOptions& options_;
  GgufWriter& writer_;
};

void AddLayer(const TinyLlamaOptions& options, int32_t layer, TensorMaker& make) {
  const int64_t head_dim =
      options.head_dim != 0 ? options.head_dim : options.hidden / options.q_heads;
  const int64_t q_dim = head_dim * options.q_heads;
  const int64_t kv_dim = head_dim * options.kv_heads;
  const auto name = [&](const char* suffix) { return absl::StrCat("blk.", layer, ".", suffix); };
  make.Norm(name("attn_norm.weight"), options.hidden);
  make.Matrix(name("attn_q.weight"), options.hidden, q_dim, options.weights, 1.5f);
  make.Matrix(name("attn_k.weight"), options.hidden, kv_dim, options.weights, 1.5f);
  make.Matrix(name("attn_v.weight"), options.hidden, kv_dim, options.weights, 1.0f);
  if (options.attention_bias || options.architecture == "qwen2") {
    make.Bias(name("attn_q.bias"), q_dim);
    make.Bias(name("attn_k.bias"), kv_dim);
    make.Bias(name("attn_v.bias"), kv_dim);
  }
  if (options.architecture == "qwen3") {
    make.Norm(name("attn_q_norm.weight"), head_dim);
    make.Norm(name("attn_k_norm.weight"), head_dim);
  }
  make.Matrix(name("attn_output.weight"), q_dim, options.hidden, options.weights, 1.0f);
  make.Norm(name("ffn_norm.weight"), options.hidden);
  make.Matrix(name("ffn_gate.weight"), options.hidden, options.ff, options.weights, 1.0f);
  make.Matrix(name("ffn_up.weight"), options.hidden, options.ff, options.weights, 1.0f);
  make.Matrix(name("ffn_down.weight"), options.ff, options.hidden, options.weights, 1.0f);
}

}  // namespace

int32_t TinyVocabSize() { return kTinyFirstByte + 256 + static_cast<int32_t>(std::size(kMerges)); }

std::string EncodeWeights(GgufTensorType type, const std::vector<float>& values, uint64_t seed) {
  const GgufTensorTypeTraits& traits = TraitsOf(type);
  SL_CHECK(values.size() % static_cast<size_t>(traits.block_elements) == 0, "rows of ",
           std::string(traits.name), " are whole blocks of ", traits.block_elements);
  Random random(seed);
  const float deviation = Deviation(values);
  std::string out;
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(traits.block_elements)) {
    switch (type) {
      case GgufTensorType::kF32:
        AppendNumber(out, values[i]);
        break;
      case GgufTensorType::kF16:
        AppendNumber(out, ToHalf(values[i]));
        break;
      case GgufTensorType::kBF16:
        AppendNumber(out, ToBf16(values[i]));
        break;
      case GgufTensorType::kQ8_0:
        EncodeQ8_0(&values[i], out);
        break;
      case GgufTensorType::kQ4_0:
        EncodeQ4_0(&values[i], out);
        break;
      case GgufTensorType::kQ4_1:
        EncodeQ4_1(&values[i], out);
        break;
      default:
        RandomBlock(type, deviation, random, out);
    }
  }
  return out;
}

GgufWriter TinyLlama(const TinyLlamaOptions& options) {
  GgufWriter writer;
  writer.set_version(options.version);
  SetHyperParameters(options, writer);
  SetTokenizer(options, writer);
  TensorMaker make(options, writer);
  make.Matrix("token_embd.weight", options.hidden, VocabSizeOf(options), options.embedding, 1.0f);
  if (options.rope_factors) {
    const int64_t head_dim =
        options.head_dim != 0 ? options.head_dim : options.hidden / options.q_heads;
    make.Add("rope_freqs.weight", {head_dim / 2}, GgufTensorType::kF32, 2.0f, 0.3f);
  }
  for (int32_t layer = 0; layer < options.layers; ++layer) AddLayer(options, layer, make);
  make.Norm("output_norm.weight", options.hidden);
  if (!options.tied) {
    make.Matrix("output.weight", options.hidden, VocabSizeOf(options), options.embedding, 1.0f);
  }
  return writer;
}

std::string MakeTinyLlama(const std::string& directory, const TinyLlamaOptions& options) {
  const GgufWriter writer = TinyLlama(options);
  const std::string prefix = absl::StrCat(directory, "/", options.name);
  if (options.split_parts > 1) return writer.WriteSplit(prefix, options.split_parts).front();
  return writer.WriteTo(prefix + ".gguf");
}

}  // namespace shardline::testing
